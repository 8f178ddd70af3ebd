"""PodTopologySpread: pods that match are spread evenly over the values of a node label."""

from koord.scheduler.plugins.topologyspread.plugin import PodTopologySpread

__all__ = ["PodTopologySpread"]
