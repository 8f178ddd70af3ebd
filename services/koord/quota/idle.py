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
from collections.abc import Iterator

import numpy as np

from koord.quota.filling import Ints
from koord.quota.moving import settled
from koord.quota.room import Asked, Room
from koord.quota.runtime import NO_LIMIT, RuntimeTree
from koord.quota.standing import OrderOf, Refused, Standing
from koord.quota.waiting import Lines

HOLD_S = 30.0
"""How long the head of a line keeps room from those behind it."""
HELPED = 1000
"""Units that are looked at for idle room per pass."""


class _Blocked:
    """A quota whose line was not served within its share: who is left, and until which slot its head may hold room."""

    __slots__ = ("at", "blocks", "holds", "kinds", "slots", "until")

    def __init__(self, at: int, slots: Ints, kinds: Ints, until: int, *, blocks: bool) -> None:
        self.at, self.slots, self.kinds, self.until, self.blocks = at, slots, kinds, until, blocks
        self.holds = True


class IdleRoom:
    """Remembers who holds the line since when; ``due_s``: when a hold ends."""

    def __init__(self, hold_s: float = HOLD_S) -> None:
        self._hold_s = hold_s
        self._since: dict[str, float] = {}
        self._standing = Standing()
        self.due_s: float | None = None

    def reorder(self) -> None:
        """Some queue hands out its units in another way than before."""
        self._standing.reorder()

    def share(self, tree: RuntimeTree, below: Ints, lines: Lines, order_of: OrderOf, now_s: float) -> tuple[Ints, Ints]:
        """The runtimes of ``tree`` with idle room handed on, and how far units may be admitted to them.

        The latter is less where a quota keeps what it occupies beyond its share: as that comes free it is idle room
        again, and not for the same quota to take before the others are looked at. ``tree`` is left as it is. ``below``:
        what is occupied in and below every row. ``order_of`` tells how the units of a queue are handed out; that it
        answers otherwise than before must be told by :meth:`reorder`.
        """
        self.due_s = None
        runtime, occupied, standing = tree.runtimes, tree.occupied, self._standing
        if not tree.names:
            return runtime, runtime
        standing.refresh(tree, lines, order_of)
        least = tree.kept_at_home()
        satisfied = tree.satisfied()
        own = occupied + np.where(satisfied, tree.request_beyond(occupied), 0)
        free = np.where(tree.most == NO_LIMIT, NO_LIMIT, runtime - below)
        rows, promised, refused = standing.walk(~satisfied, free)
        own[:, rows] += promised.T
        helped = np.zeros(len(tree.names), np.bool_)
        if len(refused.rows):
            for at, asked in self._help(tree, Room(tree, own, least), refused, lines, now_s):
                for line, amount in asked:
                    own[line, at] += amount
                while at >= 0:
                    helped[at] = True
                    at = int(tree.parent[at])
        self._since = {key: since for key, since in self._since.items() if key in lines}
        _, wanted = tree.up(own, least)
        shares = settled(tree, np.minimum(wanted, tree.most))
        return shares, np.where(helped, shares, np.minimum(shares, runtime))

    # 2 and 3 ------------------------------------------------------------------------------------------------------

    def _help(
        self, tree: RuntimeTree, room: Room, refused: Refused, lines: Lines, now_s: float
    ) -> Iterator[tuple[int, Asked]]:
        """Hand idle room out; yields row and amounts by line of each unit that gets some."""
        standing = self._standing
        dominant = room.all_dominant()[refused.rows]
        turns, ranks = standing.turns(refused.rows), standing.rank[refused.rows]
        blocked = _Candidates(standing, room, refused)
        # Each that is taken from the heap is looked at: so many of the first are enough.
        order = np.lexsort((ranks, turns, dominant))
        order = order[blocked.some[order]][:HELPED]
        heap = list(
            zip(dominant[order].tolist(), turns[order].tolist(), ranks[order].tolist(), order.tolist(), strict=True)
        )
        left = HELPED
        while heap and left:
            _, turn, rank, i = heapq.heappop(heap)
            each = blocked.of(i)
            while len(each.slots) and left:
                left -= 1
                slot, kind = int(each.slots[0]), each.kinds[0]
                asked = standing.asked(slot)
                why = room.take(each.at, asked)
                if why is None:
                    each.slots, each.kinds = each.slots[1:], each.kinds[1:]
                    yield each.at, asked
                    heapq.heappush(heap, (room.dominant(each.at), turn, rank, i))
                    break
                if each.holds and why == "idle" and slot < each.until:
                    one = lines.of(tree.names[each.at])[standing.place(each.at, slot)]
                    self._hold(room, each.at, one.key, asked, now_s)
                each.holds = False
                others = each.kinds != kind if not each.blocks else slice(0)
                each.slots, each.kinds = each.slots[others], each.kinds[others]

    def _hold(self, room: Room, at: int, key: str, asked: Asked, now_s: float) -> None:
        until = self._since.setdefault(key, now_s) + self._hold_s
        if now_s < until and room.possible(at, asked):
            room.hold(at, asked)
            self.due_s = until if self.due_s is None else min(self.due_s, until)


class _Candidates:
    """Who was refused and may be helped: not those for whom their own quota's max has no room. ``some``: any in line i.

    Behind somebody that its own max keeps out nobody holds room, and in a line that blocks nobody is looked at.
    """

    def __init__(self, standing: Standing, room: Room, refused: Refused) -> None:
        counts = np.diff(refused.starts, append=len(refused.slots))
        of = np.repeat(np.arange(len(refused.rows)), counts)
        out = room.beyond_max(refused.rows[of], standing.amounts(refused.slots))
        never = int(refused.slots.max(initial=0)) + 1
        self._until = np.minimum.reduceat(np.where(out, refused.slots, never), refused.starts)
        self._slots, kept = refused.slots[~out], np.add.reduceat((~out).astype(np.int64), refused.starts)
        self._kinds = standing.kinds(self._slots)
        self._ends = np.cumsum(kept)
        self.some = kept > 0
        self._rows, self._blocks = refused.rows, standing.blocks(refused.rows)
        self._made: dict[int, _Blocked] = {}

    def of(self, i: int) -> _Blocked:
        """Line ``i`` as far as it was handed out."""
        made = self._made.get(i)
        if made is None:
            part = slice(int(self._ends[i - 1]) if i else 0, int(self._ends[i]))
            made = self._made[i] = _Blocked(
                int(self._rows[i]),
                self._slots[part],
                self._kinds[part],
                int(self._until[i]),
                blocks=bool(self._blocks[i]),
            )
        return made
