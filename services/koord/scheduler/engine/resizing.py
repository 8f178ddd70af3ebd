"""What pods take on the node chosen for them, where plugins change it (ResizePod, spec 10 section 3.4)."""

from collections.abc import Mapping, Sequence

import numpy as np

from koord.scheduler.engine.cluster import Cluster
from koord.scheduler.engine.reserving import Refusal
from koord.scheduler.engine.resources import FIRST, Footprint
from koord.scheduler.framework.contract import PluginError, PodRef, ResizePlugin, Template, Terms

ResizeStep = tuple[ResizePlugin, Terms]
_FLOORED = ("cpu", "memory")
"""Of these a pod counts as asking for something in scores, also where it asks for nothing."""


def resized(
    steps: Sequence[ResizeStep], cluster: Cluster, pod: PodRef, template: Template, row: int
) -> Footprint | Refusal | None:
    """What the pod takes on ``row``, None if that is what its class takes; a refusal where the row has no room for it.

    The plugins are asked in their order, each sees what the one before made of it. PluginError: one raised, or answered
    what is no amount.
    """
    node = cluster.index.name(row)
    assert node is not None, "only live rows are chosen"
    before: Mapping[str, int] = template.request
    request, by = before, ""
    for plugin, terms in steps:
        begun = cluster.timing.begun()
        try:
            found = plugin.resize(pod, terms, request, node)
            if begun:
                cluster.timing.took(plugin.name, "ResizePod", begun)
            if found is not None:
                request, by = _checked(found), plugin.name
        except Exception as error:
            raise PluginError(plugin.name, "ResizePod", error) from error
    if request == before:
        return None
    floors = template.footprint.nonzero
    nonzero = [request[key] if request.get(key) != before.get(key) else floors[i] for i, key in enumerate(_FLOORED)]
    footprint = cluster.footprint(request, (nonzero[0], nonzero[1]))
    lacking = _lacking(cluster, footprint, row)
    return Refusal(by, f"Insufficient {lacking}", row) if lacking else footprint


def _checked(request: Mapping[str, int]) -> dict[str, int]:
    found = dict(request)
    for name, amount in found.items():
        if not isinstance(name, str) or isinstance(amount, bool) or not isinstance(amount, int) or amount < 0:
            raise ValueError(f"{name}: {amount!r} is not a whole number of at least 0")
    for name in _FLOORED:
        found.setdefault(name, 0)
    return found


def _lacking(cluster: Cluster, footprint: Footprint, row: int) -> str:
    """A resource of which the row has not enough left; empty: there is room."""
    if footprint.unlisted:
        return min(footprint.unlisted)
    vector = footprint.vector[FIRST:]
    fields = slice(FIRST, len(footprint.vector))
    free = cluster.usage[fields, row]
    short = np.flatnonzero((vector > 0) & (vector > free))
    return cluster.resources[int(short[0])] if len(short) else ""
