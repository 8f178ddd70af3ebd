"""Profiles that name the same quota: one has it, the others wait for it and say so."""

import json

import msgspec

from koord.kube.meta import ObjectMeta
from koord.kube.protocol.quota import TOTAL_RESOURCE, UNSCHEDULABLE_RESOURCE
from koord.kube.quotas import ElasticQuota, ElasticQuotaProfile, ElasticQuotaProfileSpec
from koord.kube.selectors import LabelSelector
from koord.quota.profiles import Profiles
from koord.quota.views import NodeBrief


def profile(name: str, born: str, quota: str = "root") -> ElasticQuotaProfile:
    meta = ObjectMeta(name=name, namespace="ns", uid=name, creation_timestamp=born)
    return ElasticQuotaProfile(metadata=meta, spec=ElasticQuotaProfileSpec(quota_name=quota))


def names(profiles: Profiles) -> set[str]:
    quotas: dict[str, ElasticQuota] = {}
    return {step.profile.metadata.name for step in profiles.steps(quotas)}


def test_the_oldest_has_the_quota() -> None:
    profiles = Profiles()
    profiles.put("ns/b", profile("b", "2026-01-02T00:00:00Z"))
    profiles.put("ns/a", profile("a", "2026-01-03T00:00:00Z"))
    profiles.put("ns/c", profile("c", "2026-01-03T00:00:00Z", quota="other"))
    assert profiles.rivals() == {"ns/a": "ns/b"}
    assert names(profiles) == {"b", "c"}
    profiles.dirty = False
    profiles.drop("ns/b")
    assert profiles.dirty
    assert profiles.rivals() == {}
    assert names(profiles) == {"a", "c"}


def node(cpu: str, pool: str = "a", *, open_: bool = True, gpu: str = "") -> NodeBrief:
    allocatable = {"cpu": cpu} | ({"nvidia.com/gpu": gpu} if gpu else {})
    body = {
        "metadata": {"labels": {"pool": pool}},
        "spec": {"unschedulable": not open_},
        "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]},
    }
    return msgspec.convert(body, NodeBrief)


def totals(profiles: Profiles) -> tuple[dict[str, str], dict[str, str]]:
    (step,) = [step for step in profiles.steps({}) if step.kind == "create"]
    found = step.body["metadata"]["annotations"]
    return json.loads(found[TOTAL_RESOURCE]), json.loads(found[UNSCHEDULABLE_RESOURCE])


def test_totals_follow_their_nodes_and_only_theirs() -> None:
    profiles = Profiles()
    selector = LabelSelector(match_labels={"pool": "a"})
    spec = ElasticQuotaProfileSpec(quota_name="root", node_selector=selector)
    made = ElasticQuotaProfile(metadata=ObjectMeta(name="p", namespace="ns", uid="p"), spec=spec)
    profiles.put_node("n0", node("4"))
    profiles.put("ns/p", made)
    assert totals(profiles) == ({"cpu": "4"}, {})
    changes: list[tuple[str, NodeBrief | None, bool, tuple[dict[str, str], dict[str, str]]]] = [
        ("n1", node("8", gpu="0"), True, ({"cpu": "12", "nvidia.com/gpu": "0"}, {})),
        ("n2", node("16", "b"), False, ({"cpu": "12", "nvidia.com/gpu": "0"}, {})),
        ("n0", node("4", open_=False), True, ({"cpu": "12", "nvidia.com/gpu": "0"}, {"cpu": "4"})),
        ("n1", node("8", "b"), True, ({"cpu": "4"}, {"cpu": "4"})),
        ("n2", node("16"), True, ({"cpu": "20"}, {"cpu": "4"})),
        ("n2", node("16"), False, ({"cpu": "20"}, {"cpu": "4"})),
        ("n0", None, True, ({"cpu": "16"}, {})),
        ("n2", None, True, ({}, {})),
        ("n2", None, False, ({}, {})),
    ]
    for name, new, moves, wanted in changes:
        profiles.dirty = False
        if new is None:
            profiles.drop_node(name)
        else:
            profiles.put_node(name, new)
        assert (profiles.dirty, totals(profiles)) == (moves, wanted), (name, new)
