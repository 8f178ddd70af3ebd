"""The tree of quotas: chains from leaf to top, limits, and which quota a pod or a job belongs to.

Quotas are known by their bare name cluster-wide. Of two with one name in different namespaces the older is in force
(spec 70 section 3.7); the other waits and takes over when the first goes. A quota that does not make sense is refused
by ``set`` with an error, and what was in force before stays.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from koord.accounting.requests import amounts
from koord.kube.protocol import quota as keys
from koord.kube.quantity import QuantityError
from koord.kube.quotas import ElasticQuota

MOST_RESOURCES: Final = 100
"""A quota may name so many resources: each is a line in the columns of a whole tree, whoever else names it or not."""


class QuotaTreeError(ValueError):
    """A chain that cannot be followed. ``reason`` is ``missing`` or ``cycle``; the message is koord-queue's."""

    def __init__(self, message: str, reason: str, quota: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.quota = quota


class QuotaNode(msgspec.Struct, frozen=True):
    """One quota in force. ``min`` and ``max`` are integers; a resource missing in ``max`` is not limited.

    ``annotations`` are without those that only show how the quota stands: their change is no edit of it.
    """

    name: str
    namespace: str
    uid: str
    created: str
    parent: str
    is_parent: bool
    tree: str
    min: dict[str, int]
    max: dict[str, int]
    namespaces: tuple[str, ...]
    labels: dict[str, str]
    annotations: dict[str, str]

    @property
    def key(self) -> str:
        """``ns/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def age(self) -> tuple[str, str, str]:
        """Sorts the oldest first; equal times by namespace, then uid."""
        return (self.created, self.namespace, self.uid)


class QuotaTree:
    """Every quota of the cluster, fed one object at a time.

    ``default`` False (the original's gate DisableDefaultQuota): a pod has the quota that its label names, or none. All
    services must agree on that (common setting ``disable_default_quota``).
    """

    def __init__(self) -> None:
        self.default = True
        self._by_name: dict[str, dict[str, QuotaNode]] = {}
        self._current: dict[str, QuotaNode] = {}
        self._chains: dict[str, tuple[str, ...]] = {}
        self._children: dict[str, set[str]] = {}
        self._bound: dict[str, str] | None = None

    def set(self, quota: ElasticQuota) -> bool:
        """Add or replace a quota; True when what is in force changed.

        QuantityError (also for a min above max) or AnnotationError names the field and the rule, and leaves everything
        as it was.
        """
        node = _node(quota)
        self._by_name.setdefault(node.name, {})[node.namespace] = node
        return self._elect(node.name)

    def remove(self, name: str, namespace: str = "") -> bool:
        """Forget a quota (without ``namespace``: all of that name); True when what is in force changed."""
        versions = self._by_name.get(name)
        if versions is None:
            return False
        if namespace:
            versions.pop(namespace, None)
        else:
            versions.clear()
        if not versions:
            del self._by_name[name]
        return self._elect(name)

    def __contains__(self, name: str) -> bool:
        return name in self._current

    def __iter__(self) -> Iterator[str]:
        return iter(self._current)

    def __len__(self) -> int:
        return len(self._current)

    def get(self, name: str) -> QuotaNode | None:
        """The quota in force under that name."""
        return self._current.get(name)

    def children(self, name: str) -> list[str]:
        """The quotas whose parent is ``name``, sorted."""
        return sorted(self._children.get(name, ()))

    def limits(self, name: str) -> dict[str, int]:
        """The ``max`` of a quota; a resource that is not in it is not limited. KeyError when there is no such quota."""
        return self._current[name].max

    def minimum(self, name: str) -> dict[str, int]:
        """The ``min`` of a quota. KeyError when there is no such quota."""
        return self._current[name].min

    def duplicates(self) -> list[tuple[QuotaNode, QuotaNode]]:
        """Quotas out of force because an older one has their name: (in force, out of force)."""
        return [
            (winner, node)
            for name, winner in sorted(self._current.items())
            for node in sorted(self._by_name[name].values(), key=lambda node: node.age)
            if node is not winner
        ]

    def chain(self, name: str, item: str = "") -> tuple[str, ...]:
        """The quotas from ``name`` up to the top, without the root quota.

        QuotaTreeError in koord-queue's words when a quota is missing or the parents form a cycle; ``item`` is who asks.
        """
        chain = self._chains.get(name)
        if chain is None:
            chain = self._chains[name] = self._walk(name, item)
        return chain

    def quota_of_pod(self, labels: Mapping[str, str], namespace: str) -> str:
        """The quota a pod uses (spec 20 section 3.7); an unknown name falls back to the default quota.

        Without ``default`` it is empty where the label names no quota in force.
        """
        name = keys.quota_label(labels)
        if not self.default:
            return name if name in self._current else ""
        if name:
            return name if name in self._current else keys.DEFAULT_QUOTA
        return self.quota_of_namespace(namespace)

    def quota_of_unit(self, labels: Mapping[str, str], namespace: str) -> str:
        """The quota a job names, known or not (an unknown one is an error of its chain), else its namespace's."""
        return keys.quota_label(labels) or self.quota_of_namespace(namespace)

    def quota_of_namespace(self, namespace: str) -> str:
        """The quota named like the namespace and in it, else the one bound to it, else the default quota."""
        own = self._current.get(namespace)
        if own is not None and own.namespace == namespace:
            return namespace
        if self._bound is None:
            self._bound = {}
            for node in sorted(self._current.values(), key=lambda node: node.age):
                for bound in node.namespaces:
                    self._bound.setdefault(bound, node.name)
        return self._bound.get(namespace, keys.DEFAULT_QUOTA)

    def _elect(self, name: str) -> bool:
        versions = self._by_name.get(name)
        old = self._current.get(name)
        new = min(versions.values(), key=lambda node: node.age) if versions else None
        if new == old:
            return False
        if old is not None:
            del self._current[name]
            siblings = self._children[old.parent]
            siblings.discard(name)
            if not siblings:
                del self._children[old.parent]
        if new is not None:
            self._current[name] = new
            self._children.setdefault(new.parent, set()).add(name)
        if old is None or new is None or old.parent != new.parent:
            self._chains.clear()
        self._bound = None
        return True

    def _walk(self, name: str, item: str) -> tuple[str, ...]:
        visited: list[str] = []
        seen: set[str] = set()
        current = name
        while current != keys.ROOT_QUOTA:
            if current in seen:
                raise QuotaTreeError(
                    f"CheckUsage found cycle reference, item:{item}, quotaName:{current}, "
                    f"visited quota: {','.join(visited)}",
                    "cycle",
                    current,
                )
            seen.add(current)
            visited.append(current)
            node = self._current.get(current)
            if node is None:
                raise QuotaTreeError(
                    f"CheckUsage found quota not exist, item:{item}, quotaName:{current}, "
                    f"visited quota: {','.join(visited)}",
                    "missing",
                    current,
                )
            current = node.parent
        return tuple(visited)


def _node(quota: ElasticQuota) -> QuotaNode:
    meta = quota.metadata
    field = f"ElasticQuota {meta.key}: spec"
    for name, given in (("min", quota.spec.min), ("max", quota.spec.max)):
        if len(given) > MOST_RESOURCES:
            raise QuantityError(f"{field}.{name}: names {len(given)} resources, at most {MOST_RESOURCES} can be")
    least, most = amounts(quota.spec.min, f"{field}.min"), amounts(quota.spec.max, f"{field}.max")
    for key, amount in sorted(least.items()):
        if key in most and amount > most[key]:
            # Here and not with one reader, so that all services agree on what is in force (spec 20 section 3.10).
            low, high = quota.spec.min[key], quota.spec.max[key]
            raise QuantityError(
                f"{field}.min[{key}]: resourceKey {key} of quota {meta.name} min {low} > max {high}: "
                "spec.min must not be above spec.max"
            )
    return QuotaNode(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        created=meta.creation_timestamp or "",
        parent=keys.parent_of(meta.labels) if meta.name != keys.ROOT_QUOTA else "",
        is_parent=keys.is_parent(meta.labels),
        tree=keys.tree_id(meta.labels),
        min=least,
        max=most,
        namespaces=keys.bound_namespaces(meta.annotations),
        labels=meta.labels,
        annotations={key: text for key, text in meta.annotations.items() if key not in keys.WRITTEN},
    )
