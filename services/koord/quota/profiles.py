"""ElasticQuotaProfiles: the root quota of a tree of its own, whose total is the room of the nodes that are selected.

Spec 20 sections 2.10 and 3.10. Pure: profiles, nodes and quotas in; patches and quotas to create out. The quota lives
in the profile's namespace and stays when the profile is deleted.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

import msgspec

from koord.accounting.requests import add, amounts, resource_list
from koord.kube.protocol import quota as keys
from koord.kube.quantity import QuantityError
from koord.kube.quotas import ElasticQuota, ElasticQuotaProfile
from koord.kube.resources import ELASTIC_QUOTAS
from koord.kube.selectors import Selector, SelectorError, compile_label_selector
from koord.quota.views import NodeBrief

RESOURCE_KEYS = ("cpu", "memory")
MAX = str((2**63 - 1) // 2000)
"""The original's max of such a root, per resource: in effect no limit."""


class Step(msgspec.Struct, frozen=True):
    """What is to be done for a profile: ``create`` or ``patch`` its quota, or patch the profile itself (``label``)."""

    kind: str
    profile: ElasticQuotaProfile
    body: dict[str, Any]


class _Node(msgspec.Struct, frozen=True):
    labels: dict[str, str]
    room: dict[str, int]
    usable: bool


class _Tree:
    """A profile in force, and the sums over the nodes that it selects: of all, and of those that are not usable."""

    def __init__(self, profile: ElasticQuotaProfile, selector: Selector) -> None:
        self.profile, self._selector = profile, selector
        self.total: dict[str, int] = {}
        self.closed: dict[str, int] = {}
        self._naming: dict[tuple[bool, str], int] = {}
        """How many nodes name a resource, in each sum: one that no node names is in none."""

    def count(self, node: _Node, sign: int) -> bool:
        """A node came (1) or went (-1); True if it is one of them."""
        if not self._selector.matches(node.labels):
            return False
        for sums, usable in ((self.total, True), *(() if node.usable else ((self.closed, False),))):
            add(sums, node.room, sign)
            for name in node.room:
                nodes = self._naming[usable, name] = self._naming.get((usable, name), 0) + sign
                if not nodes:
                    del sums[name], self._naming[usable, name]
        return True


def _seniority(tree: _Tree) -> tuple[str, str]:
    profile = tree.profile
    return profile.metadata.creation_timestamp or "", profile.key


def tree_id_of(profile: ElasticQuotaProfile) -> str:
    """The profile's label, else FNV-1a (64 bits) of ``namespace/name`` in decimal."""
    given = keys.tree_id(profile.metadata.labels)
    if given:
        return given
    value = 0xCBF29CE484222325
    for byte in profile.key.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return str(value)


def ratio_of(text: str | None) -> Fraction:
    """A resourceRatio above 0 and up to 1; anything else counts as 1."""
    try:
        ratio = float(text or "1")
    except ValueError:
        return Fraction(1)
    # By way of the shortest text of the double, so that 0.8 is four fifths and an absurd exponent costs nothing.
    return Fraction(repr(ratio)) if 0 < ratio <= 1 else Fraction(1)


class Profiles:
    """All profiles and nodes; ``steps`` compares what should be with the quotas that are."""

    def __init__(self) -> None:
        self._trees: dict[str, _Tree] = {}
        self._nodes: dict[str, _Node] = {}
        self.dirty = False

    def put(self, key: str, profile: ElasticQuotaProfile) -> None:
        """A profile was added or changed. SelectorError names what is wrong; the last good version stays in force."""
        try:
            selector = compile_label_selector(profile.spec.node_selector)
        except SelectorError as error:
            raise SelectorError(f"ElasticQuotaProfile {profile.key}: spec.nodeSelector: {error}") from error
        if not profile.spec.quota_name:
            raise SelectorError(f"ElasticQuotaProfile {profile.key}: spec.quotaName: must be the name of a quota")
        tree = self._trees[key] = _Tree(profile, selector)
        for node in self._nodes.values():
            tree.count(node, 1)
        self.dirty = True

    def drop(self, key: str) -> None:
        """A profile is gone; its quota stays, for the next profile that names it if there is one."""
        self.dirty = self._trees.pop(key, None) is not None or self.dirty

    def put_node(self, name: str, node: NodeBrief) -> None:
        """A node was added or changed; one whose room does not parse counts as it was."""
        try:
            room = amounts(node.status.allocatable)
        except QuantityError:
            return
        new = _Node(node.metadata.labels, room, node.usable)
        old = self._nodes.get(name)
        if old != new:
            self._nodes[name] = new
            self._count(old, new)

    def drop_node(self, name: str) -> None:
        """A node is gone."""
        self._count(self._nodes.pop(name, None), None)

    def _count(self, old: _Node | None, new: _Node | None) -> None:
        """Every tree's sums follow one node; ``dirty`` only if it is, or was, one of some tree's."""
        for tree in self._trees.values():
            left = old is not None and tree.count(old, -1)
            came = new is not None and tree.count(new, 1)
            self.dirty = self.dirty or left or came

    def rivals(self) -> dict[str, str]:
        """Profiles that name another's quota, each with the one that has it: the oldest, then the first by name."""
        owners: dict[tuple[str, str], ElasticQuotaProfile] = {}
        for profile in (tree.profile for tree in sorted(self._trees.values(), key=_seniority)):
            owners.setdefault((profile.metadata.namespace, profile.spec.quota_name), profile)
        found = {}
        for profile in (tree.profile for tree in self._trees.values()):
            owner = owners[profile.metadata.namespace, profile.spec.quota_name]
            if owner is not profile:
                found[profile.key] = owner.key
        return found

    def steps(self, quotas: Mapping[str, ElasticQuota]) -> Iterable[Step]:
        """What is to be done so that ``quotas`` (by namespace and name) are as the profiles say."""
        rivals = self.rivals()
        for tree in self._trees.values():
            profile = tree.profile
            if profile.key in rivals:
                continue
            if keys.tree_id(profile.metadata.labels) != tree_id_of(profile):
                yield Step("label", profile, {"metadata": {"labels": {keys.TREE_ID: tree_id_of(profile)}}})
            wanted = _wanted(tree)
            present = quotas.get(f"{profile.metadata.namespace}/{profile.spec.quota_name}")
            if present is None:
                kind = {"apiVersion": ELASTIC_QUOTAS.api_version, "kind": ELASTIC_QUOTAS.kind}
                where = {"namespace": profile.metadata.namespace, "name": profile.spec.quota_name}
                yield Step("create", profile, {**kind, **wanted, "metadata": {**where, **wanted["metadata"]}})
            elif patch := _difference(present, wanted):
                yield Step("patch", profile, patch)


def _wanted(tree: _Tree) -> dict[str, Any]:
    profile = tree.profile
    ratio = ratio_of(profile.spec.resource_ratio)
    total, closed = _scaled(tree.total, ratio), _scaled(tree.closed, ratio)
    names = _resource_keys(profile)
    labels = {
        **profile.spec.quota_labels,
        keys.PROFILE: profile.metadata.name,
        keys.TREE_ID: tree_id_of(profile),
        keys.IS_ROOT: "true",
    }
    annotations = {
        keys.TOTAL_RESOURCE: keys.write_resource_list(resource_list(total)),
        keys.UNSCHEDULABLE_RESOURCE: keys.write_resource_list(resource_list(closed)),
    }
    spec = {"min": resource_list({name: total.get(name, 0) for name in names}), "max": dict.fromkeys(names, MAX)}
    return {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec}


def _resource_keys(profile: ElasticQuotaProfile) -> tuple[str, ...]:
    try:
        return keys.resource_keys(profile.metadata.annotations) or RESOURCE_KEYS
    except keys.AnnotationError:
        return RESOURCE_KEYS


def _scaled(values: Mapping[str, int], ratio: Fraction) -> dict[str, int]:
    return {name: amount * ratio.numerator // ratio.denominator for name, amount in values.items()}


def _difference(quota: ElasticQuota, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch from ``quota`` to ``wanted``; other labels and annotations stay."""
    patch: dict[str, Any] = {}
    meta = wanted["metadata"]
    for field, present in (("labels", quota.metadata.labels), ("annotations", quota.metadata.annotations)):
        changed = {key: value for key, value in meta[field].items() if present.get(key) != value}
        if changed:
            patch.setdefault("metadata", {})[field] = changed
    for field, given in (("min", quota.spec.min), ("max", quota.spec.max)):
        if not _equal(given, wanted["spec"][field]):
            gone = dict.fromkeys(key for key in given if key not in wanted["spec"][field])
            patch.setdefault("spec", {})[field] = {**gone, **wanted["spec"][field]}
    return patch


def _equal(given: Mapping[str, Any], wanted: Mapping[str, str]) -> bool:
    try:
        return amounts(given) == amounts(wanted)
    except QuantityError:
        return False
