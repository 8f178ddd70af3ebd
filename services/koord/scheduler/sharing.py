"""How replicas share the pods: by a hash of the unit's key, so that each plans its own and they hardly meet.

Rendezvous hashing: of all live replicas the one with the highest weight for a key has it. When a replica comes or goes,
only its own share moves. Views may differ for moments; what two plan at once the ledger gives to one.

The ledger does not know which pods may be near each other. So pods that must look at other pods are shared by
namespace, those that look into other namespaces all together: one replica plans all of them, one after the other.
Otherwise two replicas would put two pods that repel each other on the node that both like best. Host ports the ledger
does know; pods that want the same are one replica's so that it need not refuse half of them. Devices it knows, too, but
not what they share, and a claim that several pods use is to be given its devices once: pods with claims on devices are
all one replica's.
"""

from collections.abc import Iterable
from hashlib import blake2b
from zlib import crc32

from koord.kube.pods import PodSpec
from koord.scheduler.plugins.nodeports import host_ports

_MULTIPLIER = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio: spreads what differs in few bits over all of them
_MASK = (1 << 64) - 1


def shared_by(key: str, namespace: str, spec: PodSpec) -> str:
    """By what a pod of that unit's key, namespace and spec is shared."""
    if spec.resource_claims:
        return "devices"
    affinity = spec.affinity
    if affinity is not None:
        for side in (affinity.pod_affinity, affinity.pod_anti_affinity):
            if side is not None and side.required:
                if any(term.namespaces or term.namespace_selector is not None for term in side.required):
                    return "all namespaces"
                return f"namespace {namespace}"
    if any(constraint.when_unsatisfiable == "DoNotSchedule" for constraint in spec.topology_spread_constraints):
        return f"namespace {namespace}"
    ports = host_ports(spec)
    return f"host port {ports[0].port}" if ports else key


class Share:
    """Which keys are this replica's (``own``)."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._seed = _seed(own)
        self._others: tuple[int, ...] = ()
        self._alone = ""

    @property
    def replicas(self) -> int:
        """How many share the keys."""
        return len(self._others) + 1

    def set_members(self, members: Iterable[str]) -> None:
        """All live replicas; this one counts in any case."""
        self._others = tuple(_seed(member) for member in sorted(set(members) - {self._own}))

    def set_alone(self, member: str) -> bool:
        """Only this replica has keys, whoever else lives; empty: they share. Whether that is new."""
        new, self._alone = member != self._alone, member
        return new

    @property
    def stands_by(self) -> bool:
        """Whether another replica has all keys."""
        return bool(self._alone) and self._alone != self._own

    def mine(self, key: str) -> bool:
        """Whether a key is this replica's. Costs about half a microsecond per replica."""
        if self._alone:
            return self._alone == self._own
        if not self._others:
            return True
        hashed = crc32(key.encode()) * _MULTIPLIER
        weight = _mix(hashed, self._seed)
        return all(weight > _mix(hashed, seed) for seed in self._others)


def _seed(member: str) -> int:
    return int.from_bytes(blake2b(member.encode(), digest_size=8).digest(), "big")


def _mix(hashed: int, seed: int) -> tuple[int, int]:
    mixed = ((hashed ^ seed) * _MULTIPLIER) & _MASK
    mixed = ((mixed ^ (mixed >> 29)) * _MULTIPLIER) & _MASK
    return mixed, seed  # equal weights are told apart
