"""Feature gates by name, as ``--feature-gates`` of the original takes them (spec 10 section 2.3).

Every gate that the original's scheduler has is known here with what it means in koord; any other name is an error that
names it. What each came to is what the parts of the service ask for.
"""

from collections.abc import Mapping

import msgspec

from koord.scheduler.config.switches import GATES, Gate
from koord.scheduler.transformers.pods import PodGates

_KNOWN: dict[str, Gate] = {gate.name: gate for gate in GATES}

INLINE_BATCH = "EnableInlineBatchSchedule"
RESIZE_POD = "ResizePod"
EXPECTATION = "NominatedNodeNameForExpectation"
ONLY_BESIDE = "SkipFilterWithNominatedPods"
_TRANSFORMERS = {
    "ReplaceResourcesTransformer": "replace_resources",
    "PriorityTransformer": "priority",
    "PreemptionPolicyTransformer": "preemption_policy",
}


class Gates(msgspec.Struct, frozen=True):
    """``on``: the gates that are on; ``notes``: which of those that were set change nothing, and why."""

    on: frozenset[str]
    notes: tuple[str, ...] = ()

    @property
    def inline_batch(self) -> bool:
        """Whether the pods of a plugin's plan are placed together."""
        return INLINE_BATCH in self.on

    @property
    def resize_pod(self) -> bool:
        """Whether plugins may change what a pod takes on its node."""
        return RESIZE_POD in self.on

    @property
    def expectation(self) -> bool:
        """Whether pods that wait before their binding say where they will be."""
        return EXPECTATION in self.on

    @property
    def only_beside(self) -> bool:
        """Whether a pod need not fit without the pods that are nominated to a node."""
        return ONLY_BESIDE in self.on

    def transformers(self, settings: PodGates) -> PodGates:
        """The optional transformers that the settings, or a gate, turn on."""
        on = {field: True for name, field in _TRANSFORMERS.items() if name in self.on}
        return msgspec.structs.replace(settings, **on) if on else settings


def read_gates(given: Mapping[str, bool]) -> Gates:
    """The gates with what was ``given`` by name. ValueError names each that is unknown or not there in koord."""
    wrong: list[str] = []
    notes: list[str] = []
    for name, value in given.items():
        gate = _KNOWN.get(name)
        if gate is None:
            wrong.append(f"feature_gates.{name}: unknown feature gate; known: {', '.join(sorted(_KNOWN))}")
        elif value != gate.default and gate.support == "absent":
            wrong.append(f"feature_gates.{name}: not there in koord: {gate.note}")
        elif value != gate.default and gate.support == "moot":
            notes.append(f"feature_gates.{name}: has no effect: {gate.note}")
    if wrong:
        raise ValueError("; ".join(wrong))
    values = {name: gate.default for name, gate in _KNOWN.items()} | dict(given)
    return Gates(frozenset(name for name, value in values.items() if value), tuple(notes))
