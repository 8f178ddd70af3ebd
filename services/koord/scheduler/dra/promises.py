"""What was given to claims and the API does not show yet, and who is to use them.

A promise begins when a pod that uses the claim is given its node (*planned*). When the pod's claim of room has been
accepted the claim's finalizer is written, then its status, in one write for all pods planned by then (*marking*,
*writing*). It ends when the API shows what became of that write.

A write of which nobody knows the outcome may still happen. Until the claim has another version, which voids it, its
devices are nobody else's, and the pods that use the claim go where these devices are.
"""

import enum

import msgspec

from koord.kube.dynamicresources import ResourceClaim
from koord.scheduler.dra.results import Allocation


class Stage(enum.Enum):
    """How far a promise is."""

    PLANNED = 0
    MARKING = 1
    WRITING = 2


class Promise(msgspec.Struct, gc=False):
    """``allocation``: None if the claim has its devices. ``pods``: names by uid. ``seen``: the version of the claim for
    which the last write was made; ``covered``: the pods that wait for the one of the status."""

    uid: str
    allocation: Allocation | None
    pods: dict[str, str] = {}
    stage: Stage = Stage.PLANNED
    seen: str = ""
    covered: set[str] = set()

    @property
    def begun(self) -> bool:
        """Whether something was written, so that further pods have to wait."""
        return self.stage is not Stage.PLANNED

    def void(self, claim: ResourceClaim) -> bool:
        """Whether the API shows what became of it, or that it can become nothing any more."""
        if claim.metadata.uid != self.uid:
            return True
        if self.stage is Stage.WRITING:
            return claim.metadata.resource_version != self.seen
        return self.allocation is not None and claim.status.allocation is not None

    def doubtful(self, claim: ResourceClaim | None) -> bool:
        """Whether its write may still happen though nobody waits for it."""
        return (
            self.stage is Stage.WRITING
            and self.allocation is not None
            and claim is not None
            and claim.metadata.uid == self.uid
            and claim.metadata.resource_version == self.seen
        )
