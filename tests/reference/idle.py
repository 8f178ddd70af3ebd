"""Idle shares handed on, the plain way (docs/decisions/005): one line, one quota and one resource after the other."""

from collections.abc import Callable, Mapping, Sequence

from koord.quota.filling import Ints
from koord.quota.runtime import LARGEST, NO_LIMIT, RuntimeTree
from koord.quota.standing import DEPTH, Order
from koord.quota.waiting import Lines, Waiting

HELPED = 1000
Amounts = dict[str, int]
OrderOf = Callable[[str, str], Order]


class PlainIdle:
    """Remembers who holds the line since when."""

    def __init__(self, hold_s: float) -> None:
        self._hold_s = hold_s
        self._since: dict[str, float] = {}
        self.due_s: float | None = None

    def share(
        self, tree: RuntimeTree, lines: Lines, order_of: OrderOf, now_s: float
    ) -> tuple[dict[str, Amounts], dict[str, Amounts]]:
        """Runtime and admission of every quota, by resource."""
        self.due_s = None
        forest = Forest(tree)
        rest: dict[str, list[Waiting]] = {}
        for name in forest.names:
            if lines.of(name) and not forest.satisfied(name):
                left = forest.promise(name, lines.of(name), order_of(lines.of(name)[0].queue, name))
                if left:
                    rest[name] = left
        helped = self._help(forest, rest, lines, order_of, now_s)
        self._since = {key: since for key, since in self._since.items() if key in lines}
        shares = forest.settled()
        admission = {
            name: shares[name]
            if name in helped
            else {key: min(amount, forest.runtime[name][key]) for key, amount in shares[name].items()}
            for name in forest.names
        }
        return shares, admission

    def _help(
        self, forest: "Forest", rest: dict[str, list[Waiting]], lines: Lines, order_of: OrderOf, now_s: float
    ) -> set[str]:
        helped: set[str] = set()
        room = Taken(forest)
        refused: dict[str, set[tuple[tuple[str, int], ...]]] = {name: set() for name in rest}
        holds = dict.fromkeys(rest, True)
        looks = HELPED
        while rest and looks:
            name = min(rest, key=lambda name: (room.dominant(name), lines.turn_of(name), name))
            given = False
            while rest[name] and looks:
                one = rest[name].pop(0)
                if one.amounts in refused[name]:
                    continue
                asked = forest.asked(one)
                why = room.take(name, asked)
                looks -= why != "max"
                if why is None:
                    for key, amount in asked.items():
                        forest.own[name][key] += amount
                    helped.update(forest.chain(name))
                    given = True
                    break
                refused[name].add(one.amounts)
                if why == "idle" and holds[name]:
                    until = self._since.setdefault(one.key, now_s) + self._hold_s
                    if now_s < until and forest.possible(name, asked):
                        room.count(name, asked)
                        self.due_s = until if self.due_s is None else min(self.due_s, until)
                holds[name] = False
                if order_of(one.queue, name).blocks:
                    break
            if not given:
                del rest[name]
        return helped


class Forest:
    """What a :class:`RuntimeTree` says, by name and resource."""

    def __init__(self, tree: RuntimeTree) -> None:
        self.names = list(tree.names)
        self.keys = list(tree.resources)
        self.parent = {
            n: tree.names[p] if p >= 0 else "" for n, p in zip(tree.names, tree.parent.tolist(), strict=True)
        }
        self.tree_of = {n: -1 - p for n, p in zip(tree.names, tree.parent.tolist(), strict=True) if p < 0}
        self.runtime, self.most = self._by_name(tree.runtimes), self._by_name(tree.most)
        self.weight, self.least = self._by_name(tree.weights), self._by_name(tree.kept_at_home())
        self.own = self._by_name(tree.occupied)
        self._satisfied = dict(zip(tree.names, tree.satisfied().tolist(), strict=True))
        self.totals: list[Amounts] = [dict(zip(self.keys, column, strict=True)) for column in tree.totals.T.tolist()]
        self.children: dict[str, list[str]] = {}
        for name in sorted(self.names):
            self.children.setdefault(self.parent[name], []).append(name)
        below = self.occupied()
        self.free = {
            n: {k: NO_LIMIT if self.most[n][k] == NO_LIMIT else self.runtime[n][k] - below[n][k] for k in self.keys}
            for n in self.names
        }
        beyond = self._by_name(tree.request_beyond(tree.occupied))
        for name in self.names:
            if self._satisfied[name]:
                self.own[name] = {key: self.own[name][key] + beyond[name][key] for key in self.keys}

    def _by_name(self, matrix: Ints) -> dict[str, Amounts]:
        columns: list[list[int]] = matrix.T.tolist()
        return {
            name: dict(zip(self.keys, column, strict=True)) for name, column in zip(self.names, columns, strict=True)
        }

    def satisfied(self, name: str) -> bool:
        return bool(self._satisfied[name])

    def asked(self, one: Waiting) -> Amounts:
        return {key: min(amount, LARGEST) for key, amount in sorted(one.amounts) if key in self.keys and amount}

    def chain(self, name: str) -> list[str]:
        return [name, *self.chain(self.parent[name])] if name else []

    def total_of(self, name: str) -> Amounts:
        total: Amounts = self.totals[self.tree_of[self.chain(name)[-1]]]
        return total

    def occupied(self) -> dict[str, Amounts]:
        """What is occupied in and below each."""
        below = {name: dict.fromkeys(self.keys, 0) for name in self.names}
        for name in self.names:
            for level in self.chain(name):
                for key in self.keys:
                    below[level][key] = min(LARGEST, below[level][key] + self.own[name][key])
        return below

    def up(self) -> tuple[dict[str, Amounts], dict[str, Amounts]]:
        """What is occupied and promised in and below each; the same, lifted to what it does not lend."""
        below = {name: dict(amounts) for name, amounts in self.own.items()}
        lifted: dict[str, Amounts] = {}

        def visit(name: str) -> None:
            for child in self.children.get(name, ()):
                visit(child)
                for key in self.keys:
                    below[name][key] = min(LARGEST, below[name][key] + lifted[child][key])
            lifted[name] = {key: max(below[name][key], self.least[name][key]) for key in self.keys}

        for top in self.children.get("", ()):
            visit(top)
        return below, lifted

    def promise(self, name: str, line: Sequence[Waiting], order: Order) -> list[Waiting]:
        """Promise what fits into what is left of the share; who is left."""
        left, rest = self.free[name], []
        for one in line[: min(order.depth, DEPTH)]:
            asked = self.asked(one)
            if all(amount <= left[key] for key, amount in asked.items()):
                for key, amount in asked.items():
                    left[key] -= amount
                    self.own[name][key] += amount
                continue
            rest.append(one)
            if order.blocks:
                break
        return rest

    def possible(self, name: str, asked: Amounts) -> bool:
        total = self.total_of(name)
        return all(
            amount <= total[key] and all(amount <= self.most[level][key] for level in self.chain(name))
            for key, amount in asked.items()
        )

    def settled(self) -> dict[str, Amounts]:
        """The runtimes with what is wanted moved to those who were promised it."""
        _, lifted = self.up()
        result = {name: dict(amounts) for name, amounts in self.runtime.items()}
        for key in self.keys:
            wants = {name: min(lifted[name][key], self.most[name][key]) for name in self.names}
            self._settle("", key, wants, result)
        return result

    def _settle(self, parent: str, key: str, wants: Mapping[str, int], result: dict[str, Amounts]) -> None:
        siblings = self.children.get(parent, [])
        trees = {self.tree_of[name] for name in siblings} if not parent else {-1}
        for tree in trees:
            group = [name for name in siblings if parent or self.tree_of[name] == tree]
            total = result[parent][key] if parent else self.totals[tree][key]
            lowered = bool(parent) and total < self.runtime[parent][key]
            has = {name: self.runtime[name][key] for name in group}
            if group and (lowered or any(wants[name] > has[name] for name in group)):
                for name, amount in moved(has, wants, total, lowered=lowered).items():
                    result[name][key] = amount
            for name in group:
                self._settle(name, key, wants, result)


class Taken:
    """What is taken while idle room is handed out."""

    def __init__(self, forest: Forest) -> None:
        self._forest = forest
        self._below, self._lifted = forest.up()
        self._top = [dict.fromkeys(forest.keys, 0) for _ in forest.totals]
        for name, tree in forest.tree_of.items():
            for key in forest.keys:
                self._top[tree][key] += self._lifted[name][key]

    def dominant(self, name: str) -> float:
        weight = self._forest.weight[name]
        return max((self._below[name][k] / weight[k] for k in weight if weight[k] > 0), default=float("inf"))

    def take(self, name: str, asked: Amounts) -> str | None:
        most = self._forest.most[name]
        if any(self._below[name][key] + amount > most[key] for key, amount in asked.items()):
            return "max"
        if not all(self._fits(name, key, amount) for key, amount in asked.items()):
            return "idle"
        self.count(name, asked)
        return None

    def count(self, name: str, asked: Amounts) -> None:
        for key, amount in asked.items():
            more = amount
            for level in self._forest.chain(name):
                if not more:
                    break
                self._below[level][key] += more
                lifted = max(self._below[level][key], self._forest.least[level][key])
                more, self._lifted[level][key] = lifted - self._lifted[level][key], lifted
            else:
                self._top[self._forest.tree_of[self._forest.chain(name)[-1]]][key] += more

    def _fits(self, name: str, key: str, amount: int) -> bool:
        forest, more = self._forest, amount
        for level in forest.chain(name):
            if not more:
                return True
            below = self._below[level][key] + more
            if below > forest.most[level][key]:
                return False
            if below <= forest.runtime[level][key]:
                return True
            more = max(below, forest.least[level][key]) - self._lifted[level][key]
        top = forest.chain(name)[-1]
        fits: bool = self._top[forest.tree_of[top]][key] + more <= forest.total_of(name)[key]
        return fits


def moved(has: Amounts, wants: Mapping[str, int], total: int, *, lowered: bool) -> Amounts:
    """One resource of one group of siblings."""
    missing = {name: max(0, wants[name] - amount) for name, amount in has.items()}
    slack = {name: max(0, amount - wants[name]) for name, amount in has.items()}
    rest, idle = total - sum(has.values()), sum(slack.values())
    give = min(sum(missing.values()), max(0, rest + idle))
    take = give - rest if rest >= 0 or lowered else give
    more, less = parts(missing, give), parts(slack, min(max(0, take), idle))
    return {name: amount + more[name] - less[name] for name, amount in has.items()}


def parts(of: Amounts, amount: int) -> Amounts:
    """In proportion, the odd units to the first that may have more."""
    whole = sum(of.values())
    if not whole or not amount:
        return dict.fromkeys(of, 0)
    found = {name: each * amount // whole for name, each in of.items()}
    odd = amount - sum(found.values())
    for name, each in of.items():
        if odd and found[name] < each:
            found[name] += 1
            odd -= 1
    return found
