"""The order of spec 10 section 3.12 "take", step by step with lists and sorts, to hold the masks to."""

from collections.abc import Iterable, Sequence

from koord.kube.protocol.cputopology import CPU

Core = tuple[int, int]


class Slow:
    def __init__(
        self,
        cpus: Sequence[CPU],
        free: Iterable[int],
        need: int,
        exclusive: str,
        core_marks: set[Core],
        node_marks: set[int],
        most: bool,
    ) -> None:
        self.all = {cpu.id: cpu for cpu in cpus}
        self.free = set(free)
        self.need = need
        self.exclusive = exclusive
        self.core_marks = set(core_marks)
        self.node_marks = set(node_marks)
        self.sign = 1 if most else -1
        self.result: set[int] = set()
        self.per_core = len(self.all) // len({self.core(c) for c in self.all})
        self.per_node = len(self.all) // len({cpu.node for cpu in cpus})
        self.per_socket = len(self.all) // len({cpu.socket for cpu in cpus})

    def core(self, cpu: int) -> Core:
        return self.all[cpu].socket, self.all[cpu].core

    def give(self, cpus: Iterable[int]) -> None:
        for cpu in cpus:
            self.result.add(cpu)
            self.free.discard(cpu)
            self.need -= 1
            if self.exclusive == "PCPULevel":
                self.core_marks.add(self.core(cpu))
            if self.exclusive == "NUMANodeLevel":
                self.node_marks.add(self.all[cpu].node)

    def marked(self, cpu: int, *, core: bool = True, node: bool = True) -> bool:
        if core and self.exclusive == "PCPULevel":
            return self.core(cpu) in self.core_marks
        return node and self.exclusive == "NUMANodeLevel" and self.all[cpu].node in self.node_marks

    def run(self, *, full: bool) -> set[int] | None:
        if self.need <= 0:
            return set()
        if self.need > len(self.free):
            return None
        if (full or self.per_core == 1) and self.whole():
            return self.result
        if not full and self.spread_in_one():
            return self.result
        for filtered in (True, False):
            for cpu in self.spread(self.anywhere(filtered)):
                if self.need:
                    self.give([cpu])
            if not self.need:
                return self.result
        return None

    def by(self, free: set[int], kind: str) -> dict[int, int]:
        counts: dict[int, int] = {}
        for cpu in free:
            of = getattr(self.all[cpu], kind)
            counts[of] = counts.get(of, 0) + 1
        return counts

    def whole_lists(self, free: set[int], kind: str) -> list[tuple[int, int, list[int]]]:
        """(id, socket, CPUs core by core) of groups that have free whole cores."""
        cores: dict[Core, list[int]] = {}
        for cpu in sorted(free):
            cores.setdefault(self.core(cpu), []).append(cpu)
        groups: dict[int, list[int]] = {}
        for core in sorted(cores):
            if len(cores[core]) == self.per_core:
                groups.setdefault(getattr(self.all[cores[core][0]], kind), []).extend(cores[core])
        return [(id_, self.all[listed[0]].socket, listed) for id_, listed in groups.items()]

    def whole(self) -> bool:
        if self.need <= self.per_node:
            for filtered in (True, False):
                free = {cpu for cpu in self.free if not (filtered and self.marked(cpu, core=False))}
                sockets = self.by(free, "socket")
                groups = self.whole_lists(free, "node")
                groups.sort(key=lambda g: (self.sign * len(g[2]), self.sign * sockets[g[1]], g[0]))
                for _, _, listed in groups:
                    if len(listed) >= self.need:
                        self.give(listed[: self.need])
                        return True
        groups = self.whole_lists(self.free, "socket")
        groups.sort(key=lambda g: (self.sign * len(g[2]), g[0]))
        if self.need <= self.per_socket:
            for _, _, listed in groups:
                if len(listed) >= self.need:
                    self.give(listed[: self.need])
                    return True
        aside = []
        for _, _, listed in sorted(groups, key=lambda g: -len(g[2])):
            if self.need >= len(listed):
                self.give(listed)
            else:
                aside.append(listed)
        for listed in sorted(aside, key=len):
            while listed and self.need >= self.per_core:
                self.give(listed[: self.per_core])
                listed = listed[self.per_core :]
        return not self.need

    def firsts(self, cpus: Sequence[int]) -> list[int]:
        seen: set[Core] = set()
        kept = []
        for cpu in cpus:
            if self.core(cpu) not in seen:
                seen.add(self.core(cpu))
                kept.append(cpu)
        return kept

    def spread(self, cpus: list[int]) -> list[int]:
        if len(cpus) <= self.per_core:
            return cpus
        out: list[int] = []
        while cpus:
            turn = self.firsts(cpus)
            out += turn
            cpus = [cpu for cpu in cpus if cpu not in turn]
        return out

    def spread_in_one(self) -> bool:
        for kind, limit in (("node", self.per_node), ("socket", self.per_socket)):
            if self.need > limit:
                continue
            for filtered in (True, False):
                free = {cpu for cpu in self.free if not (filtered and self.marked(cpu, node=kind == "node"))}
                sockets, sizes = self.by(free, "socket"), self.by(free, kind)
                groups = []
                for id_ in sizes:
                    listed = [cpu for cpu in sorted(free) if getattr(self.all[cpu], kind) == id_]
                    size, socket = len(listed), self.all[listed[0]].socket
                    if filtered:
                        listed = self.firsts(listed)
                    if kind == "socket":
                        size, key = len(listed), (0, id_)
                    else:
                        key = (self.sign * sockets[socket], id_)
                    groups.append(((self.sign * size, *key), listed))
                for _, listed in sorted(groups):
                    if len(listed) >= self.need:
                        self.give(self.spread(listed)[: self.need])
                        return True
        return False

    def anywhere(self, filtered: bool) -> list[int]:
        free = {cpu for cpu in self.free if not (filtered and self.marked(cpu))}
        sockets, nodes = self.by(free, "socket"), self.by(free, "node")
        near = self.by(self.result, "socket")
        cores: dict[Core, list[int]] = {}
        for cpu in sorted(free):
            cores.setdefault(self.core(cpu), []).append(cpu)

        def rank(core: Core) -> tuple[object, ...]:
            one = self.all[cores[core][0]]
            return (
                -near.get(one.socket, 0),
                self.sign * sockets[one.socket],
                self.sign * nodes[one.node],
                len(cores[core]),
                one.socket,
                core,
            )

        return [cpu for core in sorted(cores, key=rank) for cpu in cores[core]]
