"""What pods of a class get on machines that are alike and in the same state: worked out once.

Machines come in a few models, and pods of one class fill them in the same way, so most nodes that are asked about are
in a state that some other node was in before.
"""

from collections.abc import Hashable
from typing import Final

from koord.accounting.requests import resource_list
from koord.kube.protocol.numa import RESOURCE_SPEC, RESOURCE_STATUS, completed_resource_spec, write_resource_status
from koord.scheduler.numa.layout import Layout
from koord.scheduler.numa.placing import Placement, PodWish, place, rating
from koord.scheduler.numa.state import NodeState
from koord.scheduler.plugins.nodenumaresource.settings import NUMASettings
from koord.scheduler.plugins.nodenumaresource.terms import NUMATerms

MOST: Final = 4096
"""Answers that are kept."""


class Worked:
    """One answer. ``found``: what the pod gets, a text why it gets nothing, None where it asks for nothing special.

    ``rating``: over the NUMA nodes that it would share, None where that is the whole node.
    """

    __slots__ = ("_annotations", "_wish", "found", "layout", "rating")

    def __init__(self, state: NodeState, terms: NUMATerms, settings: NUMASettings) -> None:
        self.layout: Layout = state.layout
        wish = self._wish = terms.wish(state.layout, settings)
        self._annotations: dict[str, str] | None = None
        self.found: Placement | str | None = None
        self.rating: float | None = None
        if wish.cpus is None and not wish.policy and not wish.burst:
            return
        self.found = place(state, wish)
        if isinstance(self.found, Placement) and self.found.mask is not None:
            self.rating = float(rating(state, wish, self.found.mask, settings.scoring.scoring))

    @property
    def wish(self) -> PodWish:
        """What the pod wants on such a node."""
        return self._wish

    def annotations(self, spec: str) -> dict[str, str]:
        """What is written on the pod; ``spec`` is its resource-spec, the same for all pods of a class."""
        if self._annotations is None:
            assert isinstance(self.found, Placement), "only what is given is written"
            given = self.found.allocation
            zones = [(zone, resource_list(taken)) for zone, taken in given.zones]
            self._annotations = {RESOURCE_STATUS: write_resource_status(given.cpus, zones)}
            if self._wish.cpus is not None:
                required = bool(self.layout.bind)
                completed = completed_resource_spec(spec, self._wish.cpus.policy, required=required)
                if completed != spec:
                    self._annotations[RESOURCE_SPEC] = completed
        return self._annotations


class Working:
    """The answers of one plugin."""

    def __init__(self, settings: NUMASettings) -> None:
        self._settings = settings
        self._kept: dict[Hashable, Worked] = {}

    def out(self, state: NodeState, terms: NUMATerms) -> Worked:
        """What a pod of the class gets on a node in that state."""
        layout = state.layout
        key = (terms, id(layout), state.signature)
        known = self._kept.get(key)
        if known is not None and known.layout is layout:
            return known
        if len(self._kept) >= MOST:
            self._kept.clear()
        made = self._kept[key] = Worked(state, terms, self._settings)
        return made
