"""Golden examples of spec 70, section 6, on chains of quotas (G19), in koord-queue's own words."""

import pytest

from koord.accounting.quotas import QuotaTree, QuotaTreeError
from koord.kube.meta import ObjectMeta
from koord.kube.protocol.quota import PARENT
from koord.kube.quotas import ElasticQuota


def test_g19_a_cycle_of_parents_and_an_unknown_quota() -> None:
    tree = QuotaTree()
    for name, parent in (("t1", "t2"), ("t2", "t3"), ("t3", "t1")):
        tree.set(ElasticQuota(metadata=ObjectMeta(name=name, namespace="ns", labels={PARENT: parent})))
    with pytest.raises(QuotaTreeError) as cycle:
        tree.chain("t1", "ns/unit")
    assert str(cycle.value) == ("CheckUsage found cycle reference, item:ns/unit, quotaName:t1, visited quota: t1,t2,t3")
    with pytest.raises(QuotaTreeError) as missing:
        tree.chain("t", "ns/unit")
    assert str(missing.value) == "CheckUsage found quota not exist, item:ns/unit, quotaName:t, visited quota: t"
