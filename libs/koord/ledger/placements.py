"""What other schedulers placed and the API may not show yet, as a client learns it with the answers to its claims.

Rules between pods (anti-affinity, spread, volumes of a node, zones of a NUMA node) are no sums that the ledger could
check. It keeps the order instead: with the answer to a claim comes what others claimed before it and the client has not
been told. A client that judges its placement anew then, and takes back what broke a rule, never has a placement against
a rule: of two claims the later one always knows the earlier.

A claim of pods without such rules is told of those that keep others off alone (``ClaimRequest.repels``), one under such
a rule of everything (``sees``). Where no other scheduler claims, nothing is told.
"""

from typing import Any

import msgspec

_SKIPPED = -2


class Placement(msgspec.Struct, frozen=True, gc=False):
    """A pod that ``owner``'s claim put on ``node``; ``given``: the annotations it got there, as JSON or empty.
    ``repels``: it may keep off pods that have no rule themselves."""

    owner: str
    uid: str
    node: str
    namespace: str
    name: str
    given: str = ""
    repels: bool = True


class Placements:
    """What was told and not taken yet, in the order of the claims."""

    def __init__(self) -> None:
        self._all = -1
        self._repelling = -1
        self._news: dict[str, Placement] = {}
        self.lost = False
        """More was placed than the ledger keeps: who must know all of it reads the records, then clears this."""

    def asked(self, sees: bool) -> tuple[int, int] | None:
        """As :meth:`since`; None while nobody follows."""
        return self.since(sees) if self._repelling >= 0 else None

    def since(self, sees: bool) -> tuple[int, int]:
        """Up to where everything and what keeps others off is known; the former is not asked for unless ``sees``."""
        return (self._all if sees else _SKIPPED), self._repelling

    def learn(self, since: tuple[int, int], row: list[Any]) -> None:
        """``row`` is what the ledger answered to ``since``. Answers may come in any order; some lines twice."""
        count, lines, repelled, repelling = row
        if since[0] != _SKIPPED:
            self._all = self._add(lines, self._all, int(count), repels=False)
        self._repelling = self._add(repelling, self._repelling, int(repelled), repels=True)

    def take(self) -> list[Placement]:
        """What was told since the last time, once per pod, as placed last."""
        if not self._news:
            return []
        news, self._news = list(self._news.values()), {}
        return news

    def _add(self, lines: list[str] | bool | dict[str, str], known: int, count: int, *, repels: bool) -> int:
        """What is known now."""
        if lines is False:
            self.lost = True
            return count
        # Lua does not tell an empty list from an empty map.
        for line in lines if isinstance(lines, list) else ():
            owner, uid, node, key, given = line.split("\n", 4)
            namespace, _, name = key.partition("/")
            before = self._news.get(uid)
            keeps_off = repels or (before is not None and before.repels)
            self._news[uid] = Placement(owner, uid, node, namespace, name, given, keeps_off)
        return max(known, count)
