"""The ElasticQuota plugin (spec 20 section 3.9); golden G12 is in ``tests/golden``."""

from typing import Any

import msgspec
import pytest

from koord.contracts.codec import decode, encode
from koord.contracts.quota import QuotaRuntime, QuotaState
from koord.kube.meta import ObjectMeta
from koord.kube.quotas import ElasticQuota as QuotaObject
from koord.kube.quotas import ElasticQuotaSpec
from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.placement import Placed
from koord.scheduler.plugins.elasticquota import ElasticQuota
from tests.scheduler.clusters import Bed, requests

PREFIX = "quota.scheduling.koordinator.sh/"


def quota(name: str, limits: dict[str, str | int | float], parent: str = "") -> QuotaObject:
    labels = {PREFIX + "parent": parent} if parent else {}
    meta = ObjectMeta(name=name, namespace="quotas", uid=name, labels=labels)
    return QuotaObject(metadata=meta, spec=ElasticQuotaSpec(max=limits))


@pytest.fixture
def bed() -> Bed:
    bed = Bed()
    bed.node("n", cpu=64_000, more={"nvidia.com/gpu": 8})
    return bed


def plugin(bed: Bed) -> ElasticQuota:
    return next(p for p in bed.profile.plugins if isinstance(p, ElasticQuota))


def place(bed: Bed, name: str, cpu: str, team: str = "team", **resources: Any) -> Placed | Diagnosis:
    spec = requests(cpu, "", resources=resources.get("resources", {}))
    labels = {PREFIX + "name": team, PREFIX + "preemptible": resources.get("preemptible", "true")}
    return bed.engine.place_one(bed.pod(name, spec, labels=labels))


def test_parents_are_checked(bed: Bed) -> None:
    plugin(bed).set_quota(quota("org", {"cpu": "3"}))
    plugin(bed).set_quota(quota("team", {"cpu": "10"}, "org"))
    assert isinstance(place(bed, "a", "2"), Placed)
    refused = place(bed, "b", "2")
    assert isinstance(refused, Diagnosis)
    assert "quotaNameTopo: [org team], runtime: cpu:3, used: cpu:2" in refused.message


def test_books_follow_the_tree(bed: Bed) -> None:
    books = plugin(bed)
    books.set_quota(quota("org", {"cpu": "100"}))
    books.set_quota(quota("koordinator-default-quota", {"cpu": "100"}))
    place(bed, "a", "2")
    assert books.used("koordinator-default-quota") == {"cpu": 2000}
    books.set_quota(quota("team", {"cpu": "10"}, "org"))
    assert books.used("team") == books.used("org") == {"cpu": 2000}
    assert books.used("koordinator-default-quota") == {}
    books.remove_quota("team", "quotas")
    assert books.used("koordinator-default-quota") == {"cpu": 2000}
    bed.engine.forget("uid-default-a")
    assert books.used("koordinator-default-quota") == {"cpu": 0}


def test_a_run_stops_at_the_limit_like_one_at_a_time(bed: Bed) -> None:
    plugin(bed).set_quota(quota("team", {"cpu": "5"}))
    pods = [bed.pod(f"p{n}", requests("1", ""), labels={PREFIX + "name": "team"}) for n in range(9)]
    outcomes: list[Placed | Diagnosis] = []
    assert bed.engine.place(pods, outcomes) == 9
    assert [isinstance(outcome, Placed) for outcome in outcomes] == [True] * 5 + [False] * 4


def test_the_ledgers_word_counts_until_taken_back(bed: Bed) -> None:
    books = plugin(bed)
    books.set_quota(quota("team", {"cpu": "10"}))
    assert books.correct("team", "cpu", 1000)
    assert isinstance(place(bed, "a", "2"), Diagnosis)
    assert isinstance(place(bed, "b", "1"), Placed)
    assert books.uncorrect("team")
    assert isinstance(place(bed, "c", "2"), Placed)
    assert not books.correct("team", "cpu", 100_000)
    assert not books.correct("unknown", "cpu", 0)


def test_a_bad_quota_changes_nothing(bed: Bed) -> None:
    books = plugin(bed)
    books.set_quota(quota("team", {"cpu": "1"}))
    with pytest.raises(ValueError, match="cpu"):
        books.set_quota(quota("team", {"cpu": "lots"}))
    assert isinstance(place(bed, "a", "2"), Diagnosis)


def test_broken_trees_are_named(bed: Bed) -> None:
    books = plugin(bed)
    books.set_quota(quota("team", {"cpu": "1"}, "nowhere"))
    refused = place(bed, "a", "1")
    assert isinstance(refused, Diagnosis)
    assert "Could not find the elasticQuota nowhere, quotaNameTopo: [team]" in refused.message


def test_explanations_travel_even_with_limits_beyond_any_amount(bed: Bed) -> None:
    """The default quota's max is (2^63 - 1) / 5 cores: no whole number of milli-cores that a message could carry."""
    books = plugin(bed)
    books.set_quota(quota("koordinator-default-quota", {"cpu": str((2**63 - 1) // 5), "memory": "1Gi"}))
    place(bed, "a", "2")
    [level] = books.levels({}, "default", {"cpu": 1000, "memory": 2 << 30})
    assert (level.limit, level.used, level.short) == ({"memory": 1 << 30}, {"cpu": 2000}, {"memory": 1 << 30})
    assert encode(level)


def published(*states: QuotaState, tree: str = "_") -> QuotaRuntime:
    return QuotaRuntime(tree, 1, list(states))


def test_a_runtime_lowers_the_limit_and_never_lifts_it_above_max(bed: Bed) -> None:
    books = plugin(bed)
    books.set_quota(quota("team", {"cpu": "10", "memory": "1Gi"}))
    assert books.limit_of("team") == {"cpu": 10_000, "memory": 1 << 30}
    assert books.set_runtime(published(QuotaState("team", "quotas", runtime={"cpu": 4_000})))
    assert not books.set_runtime(published(QuotaState("team", "quotas", runtime={"cpu": 4_000}, used={"cpu": 1})))
    assert books.limit_of("team") == {"cpu": 4_000, "memory": 1 << 30}
    books.set_runtime(published(QuotaState("team", "quotas", runtime={"cpu": 4_000}, limit={"cpu": 90_000})))
    assert books.limit_of("team") == {"cpu": 10_000, "memory": 1 << 30}
    books.set_quota(quota("team", {"cpu": "3"}))
    assert books.limit_of("team") == {"cpu": 3_000}
    assert books.set_runtime(published(tree="other")) is False
    assert books.set_runtime(published())
    assert books.limit_of("team") == {"cpu": 3_000}


def test_a_quota_that_moves_to_another_tree_keeps_its_runtime_whichever_tree_is_told_first(bed: Bed) -> None:
    books = plugin(bed)
    books.set_quota(quota("team", {"cpu": "10"}))
    books.set_runtime(published(QuotaState("team", "quotas", runtime={"cpu": 4_000}), tree="a"))
    books.set_runtime(published(QuotaState("team", "quotas", runtime={"cpu": 3_000}), tree="b"))
    books.set_runtime(published(tree="a"))
    assert books.limit_of("team") == {"cpu": 3_000}
    books.set_runtime(published(tree="b"))
    assert books.limit_of("team") == {"cpu": 10_000}


def test_a_quota_that_guarantees_nothing_takes_no_pod_that_must_stay(bed: Bed) -> None:
    books = plugin(bed)
    books.set_quota(quota("team", {"cpu": "10"}))
    assert isinstance(place(bed, "a", "1", preemptible="false"), Diagnosis)
    books.set_quota(quota("koordinator-default-quota", {"cpu": "10"}))
    assert isinstance(place(bed, "b", "1", team="unknown", preemptible="false"), Placed)


def test_what_an_older_quota_service_published_is_understood(bed: Bed) -> None:
    state = {"name": "team", "namespace": "quotas", "runtime": {"cpu": 4_000}}
    old = decode(QuotaRuntime, msgspec.msgpack.encode({"tree": "_", "version": 1, "quotas": [state], "v": 1}))
    assert old.ceiling == "1"
    plugin(bed).set_quota(quota("team", {"cpu": "10"}))
    plugin(bed).set_runtime(old)
    assert plugin(bed).limit_of("team") == {"cpu": 4_000}
