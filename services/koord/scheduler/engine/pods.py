"""What the engine places and what comes of it."""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from koord.accounting.takes import Take
from koord.scheduler.engine.classes import SchedulingClass
from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.framework.contract import AssignedPod, PodRef

NOTHING: Mapping[str, str] = MappingProxyType({})
"""No annotations."""


class PodInfo(msgspec.Struct, gc=False, eq=False):
    """One pod to place. Equality is identity; the class is shared. ``owner`` is the kind of its controller."""

    ref: PodRef
    class_: SchedulingClass
    priority: int = 0
    owner: str = ""

    @property
    def uid(self) -> str:
        """The pod's uid."""
        return self.ref.uid

    def planned(self, node: str, now: float) -> AssignedPod:
        """The pod as it counts from its planning at ``now`` (epoch seconds) on."""
        template = self.class_.template
        return AssignedPod(
            self.ref, template.spec, template.footprint, node, self.priority, now, 0.0, 0.0, self.owner, False, True
        )


class Placed(msgspec.Struct, frozen=True, gc=False):
    """Where a pod goes, at which total score, and what plugins gave it there: annotations to write with its binding,
    and what to claim in the ledger besides its amounts. The score is 0 where there was one node to choose from."""

    node: str
    score: int
    annotations: Mapping[str, str] = NOTHING
    takes: tuple[Take, ...] = ()
    slots: tuple[str, ...] = ()
    request: Mapping[str, int] | None = None
    """What the pod takes there, where a plugin changed it."""


Outcome = Placed | Diagnosis
