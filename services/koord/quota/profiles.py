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


def _seniority(entry: tuple[ElasticQuotaProfile, Selector]) -> tuple[str, str]:
    profile = entry[0]
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
        self._profiles: dict[str, tuple[ElasticQuotaProfile, Selector]] = {}
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
        self._profiles[key] = profile, selector
        self.dirty = True

    def drop(self, key: str) -> None:
        """A profile is gone; its quota stays, for the next profile that names it if there is one."""
        self.dirty = self._profiles.pop(key, None) is not None or self.dirty

    def put_node(self, name: str, node: NodeBrief) -> None:
        """A node was added or changed; one whose room does not parse counts as it was."""
        try:
            room = amounts(node.status.allocatable)
        except QuantityError:
            return
        new = _Node(node.metadata.labels, room, node.usable)
        if self._nodes.get(name) != new:
            self._nodes[name] = new
            self.dirty = True

    def drop_node(self, name: str) -> None:
        """A node is gone."""
        self.dirty = self._nodes.pop(name, None) is not None or self.dirty

    def rivals(self) -> dict[str, str]:
        """Profiles that name another's quota, each with the one that has it: the oldest, then the first by name."""
        owners: dict[tuple[str, str], ElasticQuotaProfile] = {}
        for profile, _ in sorted(self._profiles.values(), key=_seniority):
            owners.setdefault((profile.metadata.namespace, profile.spec.quota_name), profile)
        found = {}
        for profile, _ in self._profiles.values():
            owner = owners[profile.metadata.namespace, profile.spec.quota_name]
            if owner is not profile:
                found[profile.key] = owner.key
        return found

    def steps(self, quotas: Mapping[str, ElasticQuota]) -> Iterable[Step]:
        """What is to be done so that ``quotas`` (by namespace and name) are as the profiles say."""
        rivals = self.rivals()
        for profile, selector in self._profiles.values():
            if profile.key in rivals:
                continue
            if keys.tree_id(profile.metadata.labels) != tree_id_of(profile):
                yield Step("label", profile, {"metadata": {"labels": {keys.TREE_ID: tree_id_of(profile)}}})
            wanted = self._wanted(profile, selector)
            present = quotas.get(f"{profile.metadata.namespace}/{profile.spec.quota_name}")
            if present is None:
                kind = {"apiVersion": ELASTIC_QUOTAS.api_version, "kind": ELASTIC_QUOTAS.kind}
                where = {"namespace": profile.metadata.namespace, "name": profile.spec.quota_name}
                yield Step("create", profile, {**kind, **wanted, "metadata": {**where, **wanted["metadata"]}})
            elif patch := _difference(present, wanted):
                yield Step("patch", profile, patch)

    def _wanted(self, profile: ElasticQuotaProfile, selector: Selector) -> dict[str, Any]:
        total: dict[str, int] = {}
        closed: dict[str, int] = {}
        for node in self._nodes.values():
            if selector.matches(node.labels):
                add(total, node.room)
                if not node.usable:
                    add(closed, node.room)
        ratio = ratio_of(profile.spec.resource_ratio)
        total, closed = _scaled(total, ratio), _scaled(closed, ratio)
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
