"""With ``disable_default_quota`` a pod has the quota that its label names or none, for sums, charges and checks."""

from typing import Any

import msgspec
import pytest

from koord.accounting.quotas import QuotaTree
from koord.kube.quotas import ElasticQuota as QuotaObject
from koord.ledger.model import LimitSet
from koord.quota.keeper import Keeper
from koord.quota.views import NodeBrief, UnitBrief
from koord.reconciler.folding import PATIENCE_S, Folder
from koord.reconciler.sights import PodSight, UnitSight
from koord.runtime.settings import CommonSettings
from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.plugins.elasticquota import ElasticQuota
from tests.quota.test_keeper import PREFIX, messages, pod
from tests.scheduler.clusters import Bed, requests

DEFAULT = "koordinator-default-quota"


def quota(name: str, cpu: str, **annotations: str) -> QuotaObject:
    meta = {"name": name, "namespace": "q", "uid": name, "annotations": annotations}
    return msgspec.convert({"metadata": meta, "spec": {"max": {"cpu": cpu}}}, QuotaObject)


QUOTAS = [quota(DEFAULT, "1"), quota("team", "3"), quota("bound", "1", **{PREFIX + "namespaces": '["ns","default"]'})]


def test_it_is_on_unless_it_is_set() -> None:
    assert not CommonSettings().disable_default_quota
    assert QuotaTree().default


@pytest.mark.parametrize(("default", "quota_of"), [(True, {"": "bound", "gone": DEFAULT}), (False, {})])
def test_sums_and_charges_agree(default: bool, quota_of: dict[str, str]) -> None:
    keeper, folder = Keeper(), Folder()
    keeper.tree.default = folder.tree.default = default
    for each in QUOTAS:
        keeper.put_quota(each)
        folder.quota(None, each, 0.0)
    for label in ("", "gone", "team"):
        keeper.put_pod(f"ns/p-{label}", pod(f"p-{label}", label, "1", node="n"))
        sight: dict[str, Any] = {
            "metadata": {"name": f"p-{label}", "namespace": "ns", "uid": label, "labels": {PREFIX + "name": label}},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
        }
        found: list[Any] = folder.pod(
            None, msgspec.json.decode(msgspec.json.encode(sight), type=PodSight), "1", 0.0
        ) or folder.late(PATIENCE_S)
        (seen,) = found
        charged = [take.item for take in seen.takes if take.item.startswith("quota/")]
        wanted = quota_of.get(label, "team" if label == "team" else "")
        assert charged == ([f"quota/{wanted}"] if wanted else [])
    keeper.fill(0.0)
    keeper.showing.compute()
    used = {state.name: state.used["cpu"] for state in messages(keeper)[0].quotas}
    assert used == {DEFAULT: 1000 if default else 0, "bound": 1000 if default else 0, "team": 1000}


@pytest.mark.parametrize("default", [True, False])
def test_what_a_job_asks_for_counts_where_it_is_admitted(default: bool) -> None:
    """Else its quota would have no runtime, and it would wait for ever. A job has its namespace's quota in any case."""
    keeper, folder = Keeper(), Folder()
    keeper.tree.default = folder.tree.default = default
    body: dict[str, Any] = {
        "metadata": {"name": "j", "namespace": "ns", "uid": "u"},
        "spec": {"resource": {"cpu": "1"}},
        "status": {"phase": "Enqueued"},
    }
    keeper.put_unit("ns/j", msgspec.convert(body, UnitBrief))
    for each in QUOTAS:  # they come later than the job
        keeper.put_quota(each)
        folder.quota(None, each, 0.0)
    keeper.put_node("n", msgspec.convert({"status": {"allocatable": {"cpu": "8"}}}, NodeBrief))
    keeper.fill(0.0)
    admitted = body | {"status": {"admissions": [{"name": "main"}]}}
    found: list[Any] = folder.unit(None, msgspec.convert(admitted, UnitSight), "1", 0.0)
    assert [take.item for seen in found for take in seen.takes] == ["admitted/bound"]
    assert keeper.limits("bound")[1] == LimitSet("admitted/bound", {"cpu": 1000})
    body["metadata"]["labels"] = {PREFIX + "name": "team"}
    keeper.put_unit("ns/j", msgspec.convert(body, UnitBrief))
    keeper.fill(1.0)
    assert [keeper.limits(name)[1].limits for name in ("bound", "team")] == [{"cpu": 0}, {"cpu": 1000}]


@pytest.mark.parametrize("default", [True, False])
def test_who_has_none_is_not_checked(default: bool) -> None:
    bed = Bed()
    bed.node("n", cpu=64_000)
    plugin = next(plugin for plugin in bed.profile.plugins if isinstance(plugin, ElasticQuota))
    plugin.tree.default = default
    for each in QUOTAS:
        plugin.set_quota(each)
    for label in ("", "gone", "team"):
        spec = requests("4", "", resources={})
        placed = bed.engine.place_one(bed.pod(f"p-{label}", spec, labels={PREFIX + "name": label} if label else {}))
        assert isinstance(placed, Diagnosis) is (default or label == "team"), label
    assert plugin.used("team") == {}


def test_a_pod_moves_to_the_quota_that_its_label_names_once_it_is_there() -> None:
    folder = Folder()
    folder.tree.default = False
    body: dict[str, Any] = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {PREFIX + "name": "late"}},
        "spec": {"nodeName": "n", "containers": []},
    }
    folder.pod(None, msgspec.json.decode(msgspec.json.encode(body), type=PodSight), "1", 0.0)
    (first,) = list[Any](folder.late(PATIENCE_S))
    assert [take.item for take in first.takes] == ["node/n"]
    folder.quota(None, quota("late", "1"), 2.0)
    (moved,) = list[Any](folder.strays())
    assert (moved.recharge, moved.takes[1].item) == (True, "quota/late")
