"""Pods that have a node, counted per row by who they are: the books of plugins that look at other pods.

Pods with equal namespace, labels and terms are one *kind*. A *group* is the pods that some selectors match; it counts
its pods per row from the moment somebody asks for it until nobody holds it any more. Which groups a kind belongs to is
found once per pair, through the one label that a selector asks for by value, so a pod that comes or goes costs a few
additions however many selectors are in use.
"""

from collections.abc import Iterable, Iterator, Mapping
from weakref import WeakSet, WeakValueDictionary, finalize

from koord.kube.pods import Affinity
from koord.scheduler.engine.cluster import Cluster
from koord.scheduler.engine.podselectors import Labels, PodSelector, selects_pods
from koord.scheduler.engine.podterms import CarriedTerm, CarriedTerms
from koord.scheduler.engine.tally import Tally

GroupKey = tuple[tuple[PodSelector, ...], bool]


class Group:
    """Pods that match all of some selectors; hold it as long as its ``tally`` is needed."""

    __slots__ = ("__weakref__", "key", "tally")

    def __init__(self, key: GroupKey, tally: Tally) -> None:
        self.key = key
        self.tally = tally


class _Kind:
    """Equal pods: how many there are on which node, and whose books they are in."""

    __slots__ = ("carried", "groups", "key", "labels", "namespace", "nodes", "terminating")

    def __init__(
        self,
        key: object,
        namespace: str,
        labels: Labels,
        terminating: bool,
        carried: tuple[CarriedTerm, ...],
    ) -> None:
        self.key = key
        self.namespace = namespace
        self.labels = labels
        self.terminating = terminating
        self.carried = carried
        self.groups: dict[GroupKey, Tally] = {}
        self.nodes: dict[str, int] = {}

    def tallies(self) -> Iterator[Tally]:
        yield from self.groups.values()
        yield from self.carried


class PodIndex:
    """The books of one cluster; ``of`` gives the one that all plugins share."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.node_epoch = 0
        """Moves when rows got or lost their node: tallies changed without a word in their logs."""
        self.namespaces: dict[str, Labels] = {}
        self.terms = CarriedTerms(self.namespaces)
        self._kinds: dict[object, _Kind] = {}
        self._on: dict[str, dict[_Kind, None]] = {}
        self._rows: dict[str, int] = {}
        self._capacity = len(cluster.alive)
        self._groups: WeakValueDictionary[GroupKey, Group] = WeakValueDictionary()
        self._tallies: WeakSet[Tally] = WeakSet()
        self._gone: list[GroupKey] = []
        self._posted: dict[tuple[str, str], dict[GroupKey, Tally]] = {}
        self._loose: dict[GroupKey, Tally] = {}
        self._by_key: dict[str, dict[str, dict[_Kind, None]]] = {}
        self._expected: dict[str, tuple[CarriedTerm, ...]] = {}

    @staticmethod
    def of(cluster: Cluster) -> "tuple[PodIndex, bool]":
        """The index of a cluster, and whether it was made now: who made it tells it of pods, nodes and namespaces."""
        found = cluster.shared.get(PodIndex)
        if found is None:
            found = cluster.shared[PodIndex] = PodIndex(cluster)
            return found, True
        assert isinstance(found, PodIndex)
        return found, False

    # Pods -----------------------------------------------------------------------------------------------------------

    def came(
        self, namespace: str, labels: Labels, node: str, affinity: Affinity | None = None, terminating: bool = False
    ) -> None:
        """A pod counts on ``node`` from now on."""
        kind = self._kind(namespace, labels, affinity, terminating)
        before = kind.nodes.get(node, 0)
        kind.nodes[node] = before + 1
        if not before:
            self._on.setdefault(node, {})[kind] = None
        row = self._rows.get(node)
        if row is not None:
            for tally in kind.groups.values():
                tally.came(row)
            for tally in kind.carried:
                tally.came(row)

    def came_run(self, namespace: str, affinity: Affinity | None, pods: Iterable[tuple[Labels, str]]) -> None:
        """Labels and node of pods equal otherwise: as :meth:`came` of each. Most have equal labels, too."""
        on, rows = self._on, self._rows
        kind: _Kind | None = None
        for labels, node in pods:
            if kind is None or kind.labels != labels:
                kind = self._kind(namespace, labels, affinity, terminating=False)
                nodes = kind.nodes
                tallies = tuple(kind.tallies())
            before = nodes.get(node)
            if before is None:
                nodes[node] = 1
                kinds = on.get(node)
                if kinds is None:
                    on[node] = {kind: None}
                else:
                    kinds[kind] = None
            else:
                nodes[node] = before + 1
            if tallies and (row := rows.get(node)) is not None:
                for tally in tallies:
                    tally.came(row)

    def _kind(self, namespace: str, labels: Labels, affinity: Affinity | None, terminating: bool) -> _Kind:
        key = _kind_key(namespace, labels, affinity, terminating)
        found = self._kinds.get(key)
        return self._learn(key, namespace, labels, affinity, terminating) if found is None else found

    def went(
        self, namespace: str, labels: Labels, node: str, affinity: Affinity | None = None, terminating: bool = False
    ) -> None:
        """It no longer does; all as it was told to :meth:`came`."""
        kind = self._kinds.get(_kind_key(namespace, labels, affinity, terminating))
        before = 0 if kind is None else kind.nodes.get(node, 0)
        if kind is None or not before:
            return
        row = self._rows.get(node)
        if row is not None:
            for tally in kind.groups.values():
                tally.went(row)
            for tally in kind.carried:
                tally.went(row)
        if before > 1:
            kind.nodes[node] = before - 1
            return
        del kind.nodes[node]
        kinds = self._on[node]
        del kinds[kind]
        if not kinds:
            del self._on[node]
        if not kind.nodes:
            self._forget(kind)

    def expect(self, uid: str, namespace: str, labels: Labels, affinity: Affinity | None) -> None:
        """A pod may be told to :meth:`came`, and to go again, for a moment at any time, until :meth:`unexpect`: that
        changes counts then, but not which terms concern whom."""
        self.unexpect(uid)
        carried = self.terms.expect(affinity, namespace, labels)
        if carried:
            self._expected[uid] = carried
            for term in carried:
                self._follow(term)
            self.cluster.pod_labels.add(self.terms.keys)

    def unexpect(self, uid: str) -> None:
        """The pod will not come in that way."""
        self.terms.release(self._expected.pop(uid, ()))

    def tallies_of(self, namespace: str, labels: Labels, affinity: Affinity | None, terminating: bool) -> list[Tally]:
        """Where a pod counts that was told to :meth:`came` so; nowhere if none was."""
        kind = self._kinds.get(_kind_key(namespace, labels, affinity, terminating))
        return [] if kind is None else list(kind.tallies())

    def _learn(
        self, key: object, namespace: str, labels: Labels, affinity: Affinity | None, terminating: bool
    ) -> _Kind:
        carried = self.terms.carry(affinity, namespace, labels)
        for term in carried:
            self._follow(term)
        if carried:
            self.cluster.pod_labels.add(self.terms.keys)
        kind = self._kinds[key] = _Kind(key, namespace, labels, terminating, carried)
        for posted in self._by_key:
            value = labels.get(posted)
            if value is not None:
                self._by_key[posted].setdefault(value, {})[kind] = None
        if self._gone:
            self._clean()
        for item in labels.items():
            self._enter(kind, self._posted.get(item, _NONE))
        self._enter(kind, self._loose)
        return kind

    def _enter(self, kind: _Kind, groups: Mapping[GroupKey, Tally]) -> None:
        for key, tally in groups.items():
            if self._belongs(kind, key):
                kind.groups[key] = tally

    def _forget(self, kind: _Kind) -> None:
        del self._kinds[kind.key]
        for posted, by_value in self._by_key.items():
            value = kind.labels.get(posted)
            if value is not None:
                kinds = by_value[value]
                del kinds[kind]
                if not kinds:
                    del by_value[value]
        self.terms.release(kind.carried)

    # Groups ---------------------------------------------------------------------------------------------------------

    def group(self, selectors: Iterable[PodSelector], *, terminating: bool = True) -> Group:
        """The pods that match all of ``selectors``; those that are being deleted among them if ``terminating``."""
        key = (tuple(selectors), terminating)
        found = self._groups.get(key)
        if found is not None:
            return found
        if self._gone:
            self._clean()
        group = self._groups[key] = Group(key, Tally(self._capacity))
        finalize(group, self._gone.append, key).atexit = False
        self._follow(group.tally)
        narrowest = _narrowest(key)
        if narrowest is None:
            self._loose[key] = group.tally
        else:
            for value in narrowest[1]:
                self._posted.setdefault((narrowest[0], value), {})[key] = group.tally
        self._fill(group)
        return group

    def _follow(self, tally: Tally) -> None:
        """Keep the length of a tally up with the cluster."""
        tally.widen(self._capacity)
        self._tallies.add(tally)

    def _fill(self, group: Group) -> None:
        """Count the pods of the group that are there already."""
        tally, rows = group.tally, self._rows
        for kind in self._candidates(group.key):
            if not self._belongs(kind, group.key):
                continue
            kind.groups[group.key] = tally
            for node, count in kind.nodes.items():
                row = rows.get(node)
                if row is not None:
                    tally.add(row, count)
        tally.recounted()

    def _belongs(self, kind: _Kind, key: GroupKey) -> bool:
        selectors, terminating = key
        if kind.terminating and not terminating:
            return False
        of_namespace = self.namespaces.get(kind.namespace, _NO_LABELS)
        return all(selector.matches(kind.namespace, kind.labels, of_namespace) for selector in selectors)

    def _candidates(self, key: GroupKey) -> list[_Kind]:
        """Kinds that have the label by which the group is found; all if there is none."""
        narrowest = _narrowest(key)
        if narrowest is None:
            return list(self._kinds.values())
        label, values = narrowest
        by_value = self._by_key.get(label)
        if by_value is None:
            by_value = self._by_key[label] = {}
            for kind in self._kinds.values():
                value = kind.labels.get(label)
                if value is not None:
                    by_value.setdefault(value, {})[kind] = None
        return [kind for value in values for kind in by_value.get(value, _NOBODY)]

    def _clean(self) -> None:
        """Groups that nobody holds any more are counted no longer."""
        while self._gone:
            key = self._gone.pop()
            if key in self._groups:
                continue
            narrowest = _narrowest(key)
            if narrowest is None:
                self._loose.pop(key, None)
            else:
                for value in narrowest[1]:
                    posted = self._posted.get((narrowest[0], value))
                    if posted is not None and posted.pop(key, None) is not None and not posted:
                        del self._posted[(narrowest[0], value)]
            for kind in self._candidates(key):
                kind.groups.pop(key, None)

    # Nodes and namespaces -------------------------------------------------------------------------------------------

    def node_set(self, row: int, name: str) -> None:
        """A node is on ``row``; its pods that are known already are counted."""
        if self._rows.get(name) == row:
            return
        if len(self.cluster.alive) > self._capacity:
            self._capacity = len(self.cluster.alive)
            for tally in self._tallies:
                tally.widen(self._capacity)
        self._rows[name] = row
        self.node_epoch += 1
        for kind in self._on.get(name, _NOBODY):
            for tally in kind.tallies():
                tally.add(row, kind.nodes[name])

    def node_removed(self, row: int, name: str) -> None:
        """The row is free; the node's pods wait in case it comes back."""
        if self._rows.pop(name, None) is None:
            return
        self.node_epoch += 1
        for kind in self._on.get(name, _NOBODY):
            for tally in kind.tallies():
                tally.clear_row(row)

    def namespace_set(self, name: str, labels: Labels | None) -> bool:
        """The labels of a namespace, None: it is gone. True if somebody's selector of namespaces is concerned."""
        before, after = self.namespaces.get(name, _NO_LABELS), labels or _NO_LABELS
        if labels is None:
            self.namespaces.pop(name, None)
        else:
            self.namespaces[name] = labels
        if before == after:
            return False
        # Terms may mean others now, or their own pods: classes look anew at what concerns them.
        self.terms.epoch += 1
        changed = self.terms.concern(name, before, after)
        for group in list(self._groups.values()):
            if any(
                which.matches_namespace(name, before) != which.matches_namespace(name, after) for which in group.key[0]
            ):
                self._recount(group)
                changed = True
        return changed

    def _recount(self, group: Group) -> None:
        for kind in self._candidates(group.key):
            kind.groups.pop(group.key, None)
        group.tally.clear()
        self._fill(group)


_NO_LABELS: Labels = {}
_NONE: Mapping[GroupKey, Tally] = {}
_NOBODY: dict[_Kind, None] = {}


def _narrowest(key: GroupKey) -> tuple[str, frozenset[str]] | None:
    found = [narrowest for which in key[0] if (narrowest := which.narrowest()) is not None]
    return min(found, key=lambda each: len(each[1])) if found else None


def _kind_key(namespace: str, labels: Labels, affinity: Affinity | None, terminating: bool) -> object:
    """Affinity is compared by identity: equal pods share it, and it decides which terms a pod carries."""
    same = _Same(affinity) if affinity is not None and selects_pods(affinity) else None
    return namespace, frozenset(labels.items()), terminating, same


class _Same:
    """Compares by identity and keeps what it compares, so that no other object gets its place in memory."""

    __slots__ = ("of",)

    def __init__(self, of: object) -> None:
        self.of = of

    def __hash__(self) -> int:
        return id(self.of)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.of is self.of
