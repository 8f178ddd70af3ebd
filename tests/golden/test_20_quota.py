"""Golden example G12 of spec 20 section 6: what a quota's limit refuses and what it lets pass."""

from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.placement import Placed
from tests.scheduler.clusters import Bed
from tests.scheduler.test_quota import bed as bed
from tests.scheduler.test_quota import place, plugin, quota


def test_g12_used_plus_request_within_the_limit(bed: Bed) -> None:
    plugin(bed).set_quota(quota("team", {"cpu": "10"}))
    assert isinstance(place(bed, "a", "8"), Placed)
    refused = place(bed, "b", "3")
    assert isinstance(refused, Diagnosis)
    assert refused.message == (
        "0/1 nodes are available: Insufficient quotas, quotaName: team, runtime: cpu:10, used: cpu:8, "
        "pod's request: cpu:3, exceedDimensions: [cpu]."
    )
    assert refused.plugins == {"ElasticQuota"}
    assert isinstance(place(bed, "c", "2"), Placed)


def test_g12_only_requested_keys_are_looked_at(bed: Bed) -> None:
    plugin(bed).set_quota(quota("team", {"cpu": "16", "nvidia.com/gpu": "4"}))
    assert isinstance(place(bed, "a", "12"), Placed)
    plugin(bed).set_quota(quota("team", {"cpu": "10", "nvidia.com/gpu": "4"}))
    assert isinstance(place(bed, "gpu", "", resources={"nvidia.com/gpu": "1"}), Placed)
    assert isinstance(place(bed, "cpu", "1"), Diagnosis)
