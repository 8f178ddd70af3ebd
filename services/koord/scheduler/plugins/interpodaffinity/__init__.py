"""InterPodAffinity: near to these pods, far from those; and what pods that run already say about it."""

from koord.scheduler.plugins.interpodaffinity.plugin import InterPodAffinity

__all__ = ["InterPodAffinity"]
