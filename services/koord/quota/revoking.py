"""Which pods are to end now because their quota is overused: :mod:`koord.quota.overuse` on what the keeper knows."""

from collections.abc import Mapping

import msgspec

from koord.accounting.requests import format_amounts
from koord.quota.keeper import Keeper
from koord.quota.overuse import Candidate, Overuse, victims
from koord.quota.views import PodBrief
from koord.quota.waiting import Amounts


class Revocation(msgspec.Struct, frozen=True):
    """Pods of one quota to evict, and why."""

    reason: str
    pods: list[Candidate]


class Revoker:
    """Asked now and then; a quota must be overused for ``delay_s`` without a break."""

    def __init__(self, keeper: Keeper, delay_s: float) -> None:
        self._keeper = keeper
        self._overuse = Overuse(delay_s)

    def due(self, pods: Mapping[str, PodBrief], now_s: float) -> list[Revocation]:
        """What is to be evicted now; ``pods`` by namespace and name."""
        found: list[Revocation] = []
        names: set[str] = set()
        for name, used, runtime in self._keeper.showing.overusable():
            names.add(name)
            if not self._overuse.due(name, used, runtime, now_s):
                continue
            mine = self._keeper.usage.revocable(name)
            ended = victims([candidate_of(pods[key], request) for key, request in mine if key in pods], used, runtime)
            if ended:
                found.append(Revocation(f"quota {name} uses more than its runtime {format_amounts(runtime)}", ended))
        self._overuse.keep(names)
        return found


def candidate_of(pod: PodBrief, request: Amounts) -> Candidate:
    """A running pod as :func:`~koord.quota.overuse.victims` sees it."""
    meta, began = pod.metadata, pod.status.start_time or pod.metadata.creation_timestamp or ""
    return Candidate(meta.namespace, meta.name, meta.uid, pod.spec.priority or 0, began, dict(request))
