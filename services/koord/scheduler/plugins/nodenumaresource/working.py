"""What pods of a class get on machines that are alike and in the same state: worked out once.

Machines come in a few models, and pods of one class fill them in the same way, so most nodes that are asked about are
in a state that some other node was in before.
"""

from collections.abc import Hashable
from typing import Final, NamedTuple

from koord.accounting.requests import resource_list
from koord.kube.protocol.cpulist import cpu_ids
from koord.kube.protocol.numa import (
    FULL_PCPUS,
    RESOURCE_SPEC,
    RESOURCE_STATUS,
    completed_resource_spec,
    write_resource_status,
)
from koord.scheduler.numa.layout import Layout
from koord.scheduler.numa.placing import Placement, designate, place, rating
from koord.scheduler.numa.state import NodeState
from koord.scheduler.plugins.nodenumaresource.rows import (
    BIND_CONFLICT,
    INVALID_TOPOLOGY,
    NOT_WHOLE_CORES,
    POLICY_MISMATCH,
)
from koord.scheduler.plugins.nodenumaresource.settings import NUMASettings
from koord.scheduler.plugins.nodenumaresource.terms import INTEGER, NUMATerms

MOST: Final = 4096
"""Answers that are kept."""
AHEAD: Final = "ahead/"
"""Pods that are not there yet; no uid begins like this."""


class Answer(NamedTuple):
    """Of Filter and Score on one node; the score of one that does not fit means nothing."""

    fits: bool
    score: float = 0.0


REFUSED: Final = Answer(False)


class Worked:
    """One answer. ``at_once``: what Filter and Score say, None where the node's amounts have a say.

    ``found``: what the pod gets, a text why it gets nothing, None where it asks for nothing special. ``following``: the
    books as they are with the pod on them, and what the next pod of the class gets then; None before it was asked.
    """

    __slots__ = (
        "_annotations",
        "_cpus",
        "_rating",
        "at_once",
        "following",
        "found",
        "layout",
        "settings",
        "terms",
        "wish",
    )

    def __init__(self, state: NodeState, terms: NUMATerms, settings: NUMASettings) -> None:
        self.layout: Layout = state.layout
        self.terms = terms
        self.settings = settings
        wish = self.wish = terms.wish(state.layout, settings)
        self._annotations: dict[str, str] | None = None
        self._cpus: tuple[str, ...] | None = None
        self._rating: float | None = None
        self.following: tuple[NodeState, Worked] | None = None
        self.found: Placement | str | None = None
        self.at_once: Answer | None = None
        refused = _refused(terms, state.layout)
        if refused:
            self.found = refused
        elif terms.designated is not None:
            self.found = designate(state, wish, terms.designated)
        elif wish.cpus is not None or wish.policy or wish.burst:
            self.found = place(state, wish)
        if isinstance(self.found, str):
            self.at_once = REFUSED
        elif self.found is not None and self.found.mask is not None and state.layout.ratio == 1.0:
            self.at_once = Answer(True, self.rating(state, self.found.mask))

    def rating(self, state: NodeState, mask: int) -> float:
        """How well the pod suits the NUMA nodes that it gets; ``state`` is one that this is the answer for."""
        if self._rating is None:
            self._rating = float(rating(state, self.wish, mask, self.settings.scoring.scoring))
        return self._rating

    def cpus(self) -> tuple[str, ...]:
        """The CPUs that the pod gets, as texts."""
        if self._cpus is None:
            assert isinstance(self.found, Placement), "only what is given has CPUs"
            self._cpus = tuple([str(cpu) for cpu in cpu_ids(self.found.allocation.cpus)])
        return self._cpus

    def annotations(self, spec: str) -> dict[str, str]:
        """What is written on the pod; ``spec`` is its resource-spec, the same for all pods of a class."""
        if self._annotations is None:
            assert isinstance(self.found, Placement), "only what is given is written"
            given = self.found.allocation
            zones = [(zone, resource_list(taken)) for zone, taken in given.zones]
            self._annotations = {RESOURCE_STATUS: write_resource_status(given.cpus, zones)}
            if self.wish.cpus is not None:
                required = bool(self.layout.bind)
                completed = completed_resource_spec(spec, self.wish.cpus.policy, required=required)
                if completed != spec:
                    self._annotations[RESOURCE_SPEC] = completed
        return self._annotations


class Working:
    """The answers of one plugin."""

    def __init__(self, settings: NUMASettings) -> None:
        self._settings = settings
        self._kept: dict[Hashable, Worked] = {}

    def out(self, state: NodeState, terms: NUMATerms) -> Worked:
        """What a pod of the class gets on a node in that state. Terms and layouts are told apart as objects: equal ones
        are shared."""
        note = state.note
        if isinstance(note, Worked) and note.terms is terms and note.settings is self._settings:
            return note
        layout = state.layout
        owners = state.zone_owners() if terms.alone else ()
        key = (id(terms), id(layout), *owners, *state.signature)
        known = self._kept.get(key)
        if known is not None and known.layout is layout and known.terms is terms:
            state.note = known
            return known
        if len(self._kept) >= MOST:
            self._kept.clear()
        made = state.note = self._kept[key] = Worked(state, terms, self._settings)
        return made

    def following(self, state: NodeState, worked: Worked) -> tuple[NodeState, Worked]:
        """The same, one pod of the class later: ``worked`` is the answer for ``state``, which is left as it is."""
        known = worked.following
        if known is not None:
            return known
        if not isinstance(worked.found, Placement):
            return state, worked
        later = state.copy()
        later.add(AHEAD + str(len(later.pods)), worked.found.allocation)
        made = worked.following = later, self.out(later, worked.terms)
        return made


def _refused(terms: NUMATerms, layout: Layout) -> str:
    """Why pod and node do not go together, whatever is free; "" if they do. As ``Rows`` checks it."""
    if terms.error:
        return terms.error
    if terms.numa and layout.policy and terms.numa != layout.policy:
        return POLICY_MISMATCH
    if not terms.policy and not (layout.bind and terms.cpu):
        return ""
    if layout.bind and terms.cpu % 1000:
        return INTEGER
    if layout.topology is None:
        return INVALID_TOPOLOGY
    if terms.required and layout.bind and terms.policy != layout.bind:
        return BIND_CONFLICT
    required = layout.bind or (terms.policy if terms.required else "")
    return NOT_WHOLE_CORES if required == FULL_PCPUS and terms.cpus % layout.topology.per_core else ""
