"""Room that lies idle is handed on, so that jobs larger than their quota's share do not wait for ever.

Water filling shares by the unit of the resource, jobs come whole. Where several quotas ask for more than there is, each
may get a share that is smaller than the job at the head of its line: everybody waits and the room lies idle. So after
the filling a second pass looks for the part of each share that nobody who waits there could use *within* it, and hands
it on, one waiting unit at a time (docs/decisions/005-idle-shares.md):

1. Each line is walked in its order; who fits into what is left of the share gets it promised. Where a queue blocks
   behind its head, only those before the first that does not fit count.
2. Room is idle where a level's total exceeds what is occupied and promised below it. It goes, unit by unit, to the
   quota that has least per weight, among equals to the one that was served least recently. Whoever is helped stays
   within the max of every level and the total of the tree.
3. The first of a line that does not fit yet holds the line for a while: those behind get nothing that it needs.
4. What a quota occupies beyond its share stays with it as long as nobody else can use it.

Runtimes only move between siblings: their sum stays what the filling made it, or is filled up to the parent's. Where
all that ask are satisfied, or nobody who waits is too large, nothing changes. Pure; the time is passed in.
"""

import heapq
from collections.abc import Callable, Iterable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from koord.quota.filling import Ints
from koord.quota.runtime import LARGEST, NO_LIMIT, RuntimeTree
from koord.quota.waiting import Amounts, Lines, Waiting

HOLD_S = 30.0
"""How long the head of a line keeps room from those behind it."""
DEPTH = 500
"""Of a line of more, only so many from the head are looked at."""
HELPED = 1000
"""Units that are looked at for idle room per pass."""


class Order(msgspec.Struct, frozen=True):
    """How a queue hands out its units: ``blocks`` behind the first that does not fit; at most ``depth`` of them."""

    blocks: bool = False
    depth: int = DEPTH


class _Blocked(msgspec.Struct, order=False):
    """A quota whose line was not served within its share."""

    name: str
    at: int
    line: list[Waiting]
    order: Order
    turn: int
    next: int = 0
    holds: bool = True


class IdleRoom:
    """Remembers who holds the line since when; ``due_s``: when a hold ends."""

    def __init__(self, hold_s: float = HOLD_S) -> None:
        self._hold_s = hold_s
        self._since: dict[str, float] = {}
        self._lines_of: dict[Amounts, list[tuple[int, int]]] = {}
        self.due_s: float | None = None

    def share(
        self, tree: RuntimeTree, below: Ints, lines: Lines, order_of: Callable[[str, str], Order], now_s: float
    ) -> tuple[Ints, Ints]:
        """The runtimes of ``tree`` with idle room handed on, and how far units may be admitted to them.

        The latter is less where a quota keeps what it occupies beyond its share: as that comes free it is idle room
        again, and not for the same quota to take before the others are looked at. ``tree`` is left as it is. ``below``:
        what is occupied in and below every row. ``order_of`` tells, of (queue, quota), how its units are handed out.
        """
        self.due_s = None
        self._lines_of.clear()
        runtime, occupied = tree.runtimes, tree.occupied
        if not tree.names:
            return runtime, runtime
        least = tree.kept_at_home()
        satisfied = tree.satisfied()
        own = occupied + np.where(satisfied, tree.request_beyond(occupied), 0)
        blocked = self._promise(tree, lines, order_of, runtime - below, own, satisfied.tolist())
        plan = _Room(tree, own, least)
        helped = np.zeros(len(tree.names), np.bool_)
        for at, amounts in self._help(plan, blocked, now_s) if blocked else ():
            for line, amount in amounts:
                own[line, at] += amount
            while at >= 0:
                helped[at] = True
                at = int(tree.parent[at])
        self._since = {key: since for key, since in self._since.items() if key in lines}
        _, wanted = tree.up(own, least)
        shares = _settled(tree, np.minimum(wanted, tree.most))
        return shares, np.where(helped, shares, np.minimum(shares, runtime))

    # 1 ------------------------------------------------------------------------------------------------------------

    def _promise(
        self,
        tree: RuntimeTree,
        lines: Lines,
        order_of: Callable[[str, str], Order],
        free: Ints,
        own: Ints,
        satisfied: Sequence[bool],
    ) -> list[_Blocked]:
        """Promise what fits within the shares, in ``own``; the lines that were not served in full."""
        blocked: list[_Blocked] = []
        at_once = np.where(tree.most == NO_LIMIT, NO_LIMIT, free).T.tolist()  # lists: many small looks at each row
        promised: dict[int, list[int]] = {}
        for name in lines:
            at = tree.row.get(name)
            if at is None or satisfied[at]:
                continue
            line = lines.of(name)
            order = order_of(line[0].queue, name)
            left = at_once[at]
            given = [0] * len(left)
            rest: list[Waiting] = []
            refused: set[Amounts] = set()
            for one in line[: min(order.depth, DEPTH)]:
                if one.amounts not in refused:
                    asked = self._by_line(tree, one)
                    for i, amount in asked:
                        if left[i] < amount:
                            break
                    else:
                        for i, amount in asked:
                            left[i] -= amount
                            given[i] += amount
                        promised[at] = given
                        continue
                    refused.add(one.amounts)
                rest.append(one)
                if order.blocks:
                    break
            if rest:
                blocked.append(_Blocked(name, at, rest, order, lines.turn_of(name)))
        if promised:
            rows = list(promised)
            own[:, rows] += np.array([promised[at] for at in rows], np.int64).T
        return blocked

    def _by_line(self, tree: RuntimeTree, one: Waiting) -> list[tuple[int, int]]:
        """What it asks for, by line; a resource that no quota names is not limited anywhere."""
        found = self._lines_of.get(one.amounts)
        if found is None:
            found = [(tree.lines[key], min(amount, LARGEST)) for key, amount in one.amounts if key in tree.lines]
            self._lines_of[one.amounts] = found
        return found

    # 2 and 3 ------------------------------------------------------------------------------------------------------

    def _help(
        self, room: "_Room", blocked: Sequence[_Blocked], now_s: float
    ) -> Iterable[tuple[int, list[tuple[int, int]]]]:
        """Hand idle room out; yields row and amounts by line of each unit that gets some."""
        dominant = room.all_dominant().tolist()
        heap = [(dominant[each.at], each.turn, each.name, i) for i, each in enumerate(blocked)]
        heapq.heapify(heap)
        left = HELPED
        refused: list[set[Amounts]] = [set() for _ in blocked]
        while heap and left:
            i = heapq.heappop(heap)[-1]
            each = blocked[i]
            while each.next < len(each.line) and left:
                one = each.line[each.next]
                each.next += 1
                if one.amounts in refused[i]:
                    continue
                asked = self._by_line(room.tree, one)
                why = room.take(each.at, asked)
                left -= why != "max"
                if why is None:
                    yield each.at, asked
                    heapq.heappush(heap, (room.dominant(each.at), each.turn, each.name, i))
                    break
                refused[i].add(one.amounts)
                if each.holds and why == "idle":
                    self._hold(room, each, one, asked, now_s)
                each.holds = False
                if each.order.blocks:
                    break

    def _hold(self, room: "_Room", each: _Blocked, one: Waiting, asked: list[tuple[int, int]], now_s: float) -> None:
        until = self._since.setdefault(one.key, now_s) + self._hold_s
        if now_s < until and room.possible(each.at, asked):
            room.hold(each.at, asked)
            self.due_s = until if self.due_s is None else min(self.due_s, until)


class _Room:
    """What is occupied, promised and held at every level while idle room is handed out."""

    def __init__(self, tree: RuntimeTree, own: Ints, least: Ints) -> None:
        self.tree = tree
        self._least = least
        self._below, self._lifted = tree.up(own, least)
        groups = range(tree.totals.shape[1])
        tops = [tree.parent == -1 - t for t in groups]
        self._top = np.array([self._lifted[:, rows].sum(axis=1) for rows in tops]).T.reshape(tree.totals.shape)

    def all_dominant(self) -> NDArray[np.float64]:
        """:meth:`dominant` of every row."""
        weight = self.tree.weights
        parts = np.full(weight.shape, -1.0)
        np.divide(self._below, weight, out=parts, where=weight > 0)
        largest: NDArray[np.float64] = parts.max(axis=0, initial=-1.0)
        return np.where(largest < 0, np.inf, largest)

    def dominant(self, at: int) -> float:
        """The largest part that row ``at`` has of what it weighs; infinite without any weight."""
        parts = zip(self._below[:, at].tolist(), self.tree.weights[:, at].tolist(), strict=True)
        return max((have / weight for have, weight in parts if weight > 0), default=float("inf"))

    def take(self, at: int, asked: Sequence[tuple[int, int]]) -> str | None:
        """Take ``asked`` if it fits on every level; else ``max`` (its quota's own) or ``idle`` tells what it lacks."""
        why = self._fits(at, asked)
        if why is None:
            self.hold(at, asked)
        return why

    def hold(self, at: int, asked: Sequence[tuple[int, int]]) -> None:
        """Count ``asked`` at every level."""
        for line, amount in asked:
            row, more = at, amount
            while row >= 0 and more:
                self._below[line, row] += more
                lifted = max(int(self._below[line, row]), int(self._least[line, row]))
                more = lifted - int(self._lifted[line, row])
                self._lifted[line, row] = lifted
                row = int(self.tree.parent[row])
            if row < 0:
                self._top[line, -1 - row] += more

    def possible(self, at: int, asked: Sequence[tuple[int, int]]) -> bool:
        """Whether ``asked`` could ever fit: it is below the max of every level and the total."""
        for line, amount in asked:
            row = at
            while row >= 0:
                if amount > self.tree.most[line, row]:
                    return False
                row = int(self.tree.parent[row])
            if amount > self.tree.totals[line, -1 - row]:
                return False
        return True

    def _fits(self, at: int, asked: Sequence[tuple[int, int]]) -> str | None:
        tree = self.tree
        for line, amount in asked:
            row, more = at, amount
            while row >= 0 and more:
                below = int(self._below[line, row]) + more
                if below > tree.most[line, row]:
                    return "max" if row == at else "idle"
                if below <= tree.runtimes[line, row]:
                    break  # within the share of this level: those above stay as they are
                more = max(below, int(self._least[line, row])) - int(self._lifted[line, row])
                row = int(tree.parent[row])
            if row < 0 and self._top[line, -1 - row] + more > tree.totals[line, -1 - row]:
                return "idle"
        return None


# 4 and the moves themselves -----------------------------------------------------------------------------------------


def _settled(tree: RuntimeTree, wanted: Ints) -> Ints:
    """Runtimes such that every row has what is wanted below it, as far as there is idle room among its siblings."""
    if not (wanted > tree.runtimes).any():
        return tree.runtimes
    filled, wants = tree.runtimes.tolist(), wanted.tolist()
    runtime = tree.runtimes.tolist()
    totals = tree.totals.tolist()
    short = wanted > tree.runtimes
    for line, has in enumerate(runtime):
        if not short[line].any():
            continue
        missing = [0, *np.cumsum(short[line]).tolist()]  # how many rows before each are short
        for owner, first, last in tree.groups():
            total = has[owner] if owner >= 0 else totals[line][-1 - owner]
            lowered = owner >= 0 and total < filled[line][owner]
            if lowered or missing[last] > missing[first]:
                has[first:last] = _moved(has[first:last], wants[line][first:last], total, owner_lowered=lowered)
    return np.array(runtime, np.int64)


def _moved(has: Sequence[int], wants: Sequence[int], total: int, *, owner_lowered: bool) -> list[int]:
    """One resource of one group of siblings."""
    missing = [max(0, want - have) for have, want in zip(has, wants, strict=True)]
    slack = [max(0, have - want) for have, want in zip(has, wants, strict=True)]
    rest, idle = total - sum(has), sum(slack)
    give = min(sum(missing), max(0, rest + idle))
    take = give - rest if rest >= 0 or owner_lowered else give
    take = min(max(0, take), idle)
    return [
        have + more - less for have, more, less in zip(has, _parts(missing, give), _parts(slack, take), strict=True)
    ]


def _parts(of: Sequence[int], amount: int) -> list[int]:
    """``amount`` divided in proportion to ``of``, of which it is at most the sum; the odd units to the first."""
    whole = sum(of)
    if not whole or not amount:
        return [0] * len(of)
    parts = [each * amount // whole for each in of]
    odd = amount - sum(parts)
    for i, each in enumerate(of):
        if odd and parts[i] < each:
            parts[i] += 1
            odd -= 1
    return parts
