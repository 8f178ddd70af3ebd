"""Taking back what is overused: which quotas use more than they may for too long, and which pods end (spec 20, 3.9).

Other than the original, all resources are looked at all the time: an overuse of something that the last pod does not
ask for is not forgotten.
"""

from collections.abc import Collection, Mapping, Sequence

import msgspec


class Candidate(msgspec.Struct, frozen=True):
    """A running pod that may be evicted. ``started`` is RFC 3339 text, which sorts as time does."""

    namespace: str
    name: str
    uid: str
    priority: int
    started: str
    request: Mapping[str, int]


def victims(pods: Sequence[Candidate], used: Mapping[str, int], runtime: Mapping[str, int]) -> list[Candidate]:
    """The pods to evict so that ``used`` is within ``runtime``, the least important first; all, if that is not enough.

    Less important is the lower priority, then the later start. Those that turn out not to be needed, because less
    important ones of other sizes went, are put back, the most important first.
    """
    left = dict(used)
    tried: list[Candidate] = []
    # Sorted twice, because text cannot be negated: equal ones keep the order of the first sort.
    by_start = sorted(pods, key=lambda pod: (pod.started, pod.uid), reverse=True)
    for pod in sorted(by_start, key=lambda pod: pod.priority):
        if within(left, runtime):
            break
        tried.append(pod)
        _add(left, pod.request, -1)
    if not within(left, runtime):
        return tried
    revoked: list[Candidate] = []
    for pod in reversed(tried):
        _add(left, pod.request, 1)
        if not within(left, runtime):
            _add(left, pod.request, -1)
            revoked.append(pod)
    return revoked[::-1]


def within(used: Mapping[str, int], runtime: Mapping[str, int]) -> bool:
    """Whether no resource of ``runtime`` is overused."""
    return all(used.get(name, 0) <= amount for name, amount in runtime.items())


class Overuse:
    """Since when each quota uses more than it may, without a break."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._since: dict[str, float] = {}

    def due(self, quota: str, used: Mapping[str, int], runtime: Mapping[str, int], now_s: float) -> bool:
        """Whether it is time to take something back; the clock then starts anew."""
        if within(used, runtime):
            self._since.pop(quota, None)
            return False
        since = self._since.setdefault(quota, now_s)
        if now_s - since <= self._delay_s:
            return False
        self._since[quota] = now_s
        return True

    def keep(self, quotas: Collection[str]) -> None:
        """Forget all other quotas."""
        for quota in self._since.keys() - set(quotas):
            del self._since[quota]


def _add(into: dict[str, int], amounts: Mapping[str, int], sign: int) -> None:
    for name, amount in amounts.items():
        into[name] = into.get(name, 0) + sign * amount
