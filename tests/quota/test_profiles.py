"""Profiles that name the same quota: one has it, the others wait for it and say so."""

from koord.kube.meta import ObjectMeta
from koord.kube.quotas import ElasticQuota, ElasticQuotaProfile, ElasticQuotaProfileSpec
from koord.quota.profiles import Profiles


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
