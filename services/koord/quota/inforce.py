"""Which version of which quota is in force, and what is wrong with the others (docs/quota.md, "Which version ...")."""

from collections.abc import Mapping

import msgspec

from koord.accounting.quotas import QuotaNode, QuotaTree, QuotaTreeError
from koord.kube.meta import ObjectMeta
from koord.kube.protocol.quota import PARENT, ROOT_QUOTA, TREE_ID, WRITTEN
from koord.kube.quotas import ElasticQuota
from koord.quota.rules import QuotaError, enforce

_MOST_BROKEN = 1000
"""Of objects that never decoded so many are remembered, to say of a parent that it is there but not in force."""


class Problem(msgspec.Struct, frozen=True):
    """Something wrong with a quota, to be told as an event on it."""

    quota: ElasticQuota
    reason: str
    text: str


class InForce:
    """The objects by namespace and name, the tree of those in force, and ``problems`` nobody was told of yet."""

    def __init__(self) -> None:
        self.tree = QuotaTree()
        self.objects: dict[str, ElasticQuota] = {}
        self.problems: list[Problem] = []
        self._good: dict[str, ElasticQuota] = {}
        self._broken: dict[str, str] = {}
        self._cyclic: dict[str, ElasticQuota] = {}
        """Refused for the sake of the others: right as soon as one of those goes elsewhere."""
        self._told: dict[tuple[str, str], str] = {}
        self._looked = False

    def put(self, quota: ElasticQuota) -> bool:
        """A quota was added or edited (or only its status, by ourselves); True if that changed the tree."""
        old = self.objects.get(quota.key)
        self.objects[quota.key] = quota
        if old is not None and _same_rules(old, quota):
            return False
        self._looked = False
        self._broken.pop(quota.key, None)
        self._cyclic.pop(quota.key, None)
        try:
            changed = enforce(self.tree, quota, self._good.get(quota.key))
        except QuotaError as error:
            self._refuse(quota, error)
            return False
        self._good[quota.key] = quota
        name = quota.metadata.name
        in_force = self.tree.get(name)
        if in_force is not None and in_force.key != quota.key:
            text = (
                f"ElasticQuota {quota.key}: metadata.name: quota {name} of namespace {in_force.namespace} is older and "
                "in force; this one is not"
            )
            self.problems.append(Problem(quota, "DuplicateQuotaName", text))
        return changed

    def undecodable(self, namespace: str, name: str, why: str) -> None:
        """A quota's object broke its schema: its last good version stays in force."""
        quota = ElasticQuota(metadata=ObjectMeta(namespace=namespace, name=name))
        self.problems.append(Problem(self.objects.get(quota.key, quota), "InvalidQuota", why))
        if len(self._broken) < _MOST_BROKEN:
            self._broken[quota.key] = name
            self._looked = False

    def drop(self, quota: ElasticQuota) -> bool:
        """A quota was deleted; an equally named younger one takes its place. True if that changed the tree."""
        self.objects.pop(quota.key, None)
        self._good.pop(quota.key, None)
        self._broken.pop(quota.key, None)
        self._cyclic.pop(quota.key, None)
        self._looked = False
        changed = self.tree.remove(quota.metadata.name, quota.metadata.namespace)
        self._try_heirs(quota.metadata.name)
        return changed

    def again(self) -> list[str]:
        """The tree changed: the quotas that were refused because of a cycle and now come into force, by name."""
        found: list[str] = []
        tried = -1
        while tried != len(found):  # one that comes into force may make way for another
            tried = len(found)
            for key, quota in list(self._cyclic.items()):
                try:
                    changed = enforce(self.tree, quota, self._good.get(key))
                except QuotaError:
                    continue
                del self._cyclic[key]
                self._good[key] = quota
                self._looked = False
                if changed:
                    found.append(quota.metadata.name)
        return found

    def _try_heirs(self, name: str) -> None:
        """What has the name now was judged by the place of the one before: it may close a cycle."""
        while (heir := self.tree.get(name)) is not None and heir.key in self._good:
            quota = self._good[heir.key]
            try:
                enforce(self.tree, quota, None)
                return
            except QuotaError as error:
                del self._good[heir.key]
                self._refuse(quota, error)

    def _refuse(self, quota: ElasticQuota, error: QuotaError) -> None:
        self.problems.append(Problem(quota, "InvalidQuota", str(error)))
        if isinstance(error.__cause__, QuotaTreeError):
            self._cyclic[quota.key] = quota

    def get(self, name: str) -> tuple[QuotaNode, ElasticQuota] | None:
        """The quota in force under that name, and its object."""
        node = self.tree.get(name)
        quota = self.objects.get(node.key) if node is not None else None
        return (node, quota) if node is not None and quota is not None else None

    def tell(self, name: str, reason: str, text: str) -> None:
        """Something about the quota in force under that name."""
        found = self.get(name)
        if found is not None:
            self.problems.append(Problem(found[1], reason, text))

    def look(self) -> None:
        """Tell of places in the tree that are not as they should be, once each; nothing if nothing changed."""
        if self._looked:
            return
        self._looked = True
        found: dict[tuple[str, str], str] = {}
        names: dict[str, str] | None = None
        for name in self.tree:
            node = self.tree.get(name)
            assert node is not None  # names come from iterating the tree
            if node.parent in ("", ROOT_QUOTA):
                continue
            parent = self.tree.get(node.parent)
            if parent is None:
                if names is None:
                    names = {quota.metadata.name: key for key, quota in self.objects.items()}
                    names.update((broken, key) for key, broken in self._broken.items())
                reason, text = _without_parent(node, names.get(node.parent, ""))
                found[name, reason] = text
            elif node.tree and node.tree != (own := self.tree_of(node.parent)):
                found[name, "TreeIdDiffers"] = (
                    f"ElasticQuota {node.key}: metadata.labels[{TREE_ID}]: {name} tree id is different from parent "
                    f"{node.parent}, [{node.tree}] vs [{own}]: it has its share in the tree of its parent"
                )
        for (name, reason), text in found.items():
            if self._told.get((name, reason)) != text:
                self.tell(name, reason, text)
        self._told = found

    def tree_of(self, name: str) -> str:
        """The tree that a quota has its share in: that of the top above it, whatever its own label says."""
        top = self.tree.get(name)
        steps = 0
        while top is not None and (above := self.tree.get(top.parent)) is not None and above.name != ROOT_QUOTA:
            top = above
            steps += 1
            if steps > len(self.tree):
                return ""  # never in force: a cycle is refused
        return top.tree if top is not None else ""

    def passed_over(self, before: Mapping[str, str], found: Mapping[str, str]) -> None:
        """Annotations that do not parse and count as absent, by quota: those that were not so ``before`` are told."""
        for name in found.keys() - before.keys():
            self.tell(name, "InvalidAnnotation", found[name])


def _without_parent(node: QuotaNode, there: str) -> tuple[str, str]:
    """Reason and words for a quota whose parent is not in force; ``there``: the key of its object, if it has one."""
    field = f"ElasticQuota {node.key}: metadata.labels[{PARENT}]"
    then = "nothing is admitted or placed under this quota until"
    if there:
        text = f"{field}: quota {node.parent!r} ({there}) is not in force, see its events: {then} it is"
        return "ParentNotInForce", text
    return "ParentNotFound", f"{field}: there is no quota {node.parent!r}: {then} there is"


def _same_rules(old: ElasticQuota, new: ElasticQuota) -> bool:
    """Did nothing change that the tree reads? Our own writes of status and sums come back as changes, too."""
    if old.spec != new.spec or old.metadata.labels != new.metadata.labels or old.metadata.uid != new.metadata.uid:
        return False
    return _rules(old.metadata.annotations) == _rules(new.metadata.annotations)


def _rules(annotations: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in annotations.items() if key not in WRITTEN}
