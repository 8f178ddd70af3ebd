"""Ending tasks for sure, for services: the bus has the same need, so it stands there."""

from koord.bus.ending import cancelled, end, finish

__all__ = ["cancelled", "end", "finish"]
