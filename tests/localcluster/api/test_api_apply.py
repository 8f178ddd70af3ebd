"""Who owns what of an object: what is not tracked means the same as what is, and both outlive the server."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.localcluster.api.apply import ownership
from koord.localcluster.api.apply.applying import Apply, apply_patch
from koord.localcluster.api.apply.managers import APPLY, UPDATE, decode, encode
from koord.localcluster.api.apply.writers import Writer, Writers, packed, unpacked
from koord.localcluster.api.builtin import PODS
from koord.localcluster.api.cluster import Cluster
from koord.localcluster.api.inprocess import InProcessApi
from koord.localcluster.api.journal import Journal
from koord.localcluster.api.patches import merge_patch
from koord.localcluster.api.pods import bind
from koord.localcluster.api.records import Kind, Record, pack, unpack
from koord.localcluster.api.store import decode as decoded
from koord.localcluster.clusterapi import ApiError
from tests.localcluster.api.rig import pod

Object = dict[str, Any]

MAKER, OTHER, KUBELET = Writer("maker", "v1"), Writer("other", "v1"), Writer("kubelet", "v1")


def created(cluster: Cluster, **spec: Any) -> None:
    cluster.create(PODS, "default", pod("p", **spec), by=MAKER)


def patched(cluster: Cluster, patch: Object, by: Writer, subresource: str | None = None) -> None:
    cluster.patch(PODS, "default", "p", lambda obj: merge_patch(obj, patch), subresource=subresource, by=by)


def owners(cluster: Cluster) -> dict[tuple[str, str], Object]:
    """(manager, sub-resource) -> its fields, derived or tracked."""
    entry = cluster.find(PODS, "default", "p")
    managed = ownership.current(PODS, decoded(entry), entry.writers)
    return {(key.manager, key.subresource): owned.fields for key, owned in managed.items()}


def tracked(cluster: Cluster) -> bool:
    return b"managedFields" in cluster.find(PODS, "default", "p").raw


def test_a_pods_usual_life_is_not_tracked(plain: Cluster) -> None:
    created(plain)
    bind(plain, "default", "p", {"target": {"name": "n"}})
    patched(plain, {"status": {"phase": "Running", "podIP": "10.0.0.1"}}, KUBELET, "status")
    patched(plain, {"metadata": {"labels": {"a": "b"}}}, MAKER)
    assert not tracked(plain)
    entry = plain.find(PODS, "default", "p")
    assert entry.writers is not None
    assert (entry.writers.main, entry.writers.status) == ("maker", "kubelet")
    assert owners(plain)["kubelet", "status"] == {"f:status": {"f:phase": {}, "f:podIP": {}}}
    mine = owners(plain)["maker", ""]
    assert mine["f:metadata"] == {"f:labels": {".": {}, "f:a": {}}}
    # Binding, priority, tolerations and the account are the server's.
    assert set(mine["f:spec"]) == {
        "f:containers",
        "f:dnsPolicy",
        "f:enableServiceLinks",
        "f:restartPolicy",
        "f:schedulerName",
        "f:securityContext",
        "f:terminationGracePeriodSeconds",
    }


@pytest.mark.parametrize(
    ("patch", "by", "subresource"),
    [
        ({"metadata": {"labels": {"a": "b"}}}, OTHER, None),
        ({"status": {"message": "m"}}, OTHER, "status"),
        ({"metadata": {"labels": {"a": "b"}}, "status": {"message": "m"}}, KUBELET, "status"),
    ],
)
def test_the_second_writer_makes_it_tracked(plain: Cluster, patch: Object, by: Writer, subresource: str) -> None:
    created(plain)
    patched(plain, {"status": {"phase": "Running"}}, KUBELET, "status")
    before = owners(plain)
    patched(plain, patch, by, subresource)
    assert tracked(plain)
    after = owners(plain)
    assert after["maker", ""] == before["maker", ""]
    assert set(after) == {*before, (by.manager, subresource or "")}


def test_a_write_that_changes_nothing_is_nobodys(plain: Cluster) -> None:
    created(plain)
    before = plain.find(PODS, "default", "p")
    patched(plain, {"metadata": {"labels": None}}, OTHER)
    assert plain.find(PODS, "default", "p") is before


def test_the_servers_own_writes_belong_to_nobody(plain: Cluster) -> None:
    created(plain)
    plain.patch(PODS, "default", "p", lambda obj: merge_patch(obj, {"metadata": {"labels": {"a": "b"}}}))
    entry = plain.find(PODS, "default", "p")
    assert entry.writers is not None
    assert entry.writers.main == "maker"


labels = st.dictionaries(st.sampled_from("abc"), st.sampled_from("12"), max_size=3)


@given(st.lists(labels, min_size=1, max_size=5))
def test_untracked_and_tracked_say_the_same(steps: list[dict[str, str]]) -> None:
    """The sets that are derived from one writer's object are those that following every write gives."""
    clusters = Cluster(first_version=1), Cluster(first_version=1)
    for cluster in clusters:
        created(cluster)
    # The second one is tracked from here on: somebody else owned a field for a moment.
    patched(clusters[1], {"metadata": {"annotations": {"n": "1"}}}, OTHER)
    patched(clusters[1], {"metadata": {"annotations": None}}, OTHER)
    assert tracked(clusters[1])
    for wanted in steps:
        for cluster in clusters:

            def relabel(obj: Object, wanted: dict[str, str] = wanted) -> Object:
                metadata = {**obj["metadata"], "labels": wanted}
                return {**obj, "metadata": metadata}

            cluster.patch(PODS, "default", "p", relabel, by=MAKER)
    assert not tracked(clusters[0])
    assert owners(clusters[0]) == owners(clusters[1])


def asked(manager: str, *, force: bool = False, resource: Any = PODS, name: str = "p") -> Any:
    def make(cluster: Cluster, config: Object) -> Object:
        served = cluster.resource(resource if isinstance(resource, str) else resource.key)
        route = cluster.registry.routes[served.group, served.version, served.plural]
        apply = Apply(route, "default", name, "", manager, force)
        raw, _ = apply_patch(cluster, apply, config, dry_run=False)
        obj: Object = json.loads(raw)
        return obj

    return make


def config_map(**data: str) -> Object:
    config: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    return {**config, "data": data} if data else config


data = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("12"), max_size=4)


@given(st.lists(st.tuples(st.sampled_from(["one", "two"]), data), min_size=1, max_size=8))
def test_applies_against_a_plain_model(steps: list[tuple[str, dict[str, str]]]) -> None:
    """With force every key is its last appliers', and goes when the last of them leaves it out."""
    cluster = Cluster(first_version=1)
    values: dict[str, str] = {}
    owned: dict[str, set[str]] = {"one": set(), "two": set()}
    for manager, given_ in steps:
        obj = asked(manager, force=True, resource="configmaps", name="c")(cluster, config_map(**given_))
        other = "two" if manager == "one" else "one"
        for key in owned[manager] - given_.keys() - owned[other]:
            del values[key]
        for key, value in given_.items():
            if values.get(key, value) != value:
                owned[other].discard(key)
            values[key] = value
        owned[manager] = set(given_)
        assert obj.get("data", {}) == values
        found = {
            entry["manager"]: {key[2:] for key in entry["fieldsV1"].get("f:data", {})}
            for entry in obj["metadata"].get("managedFields", [])
        }
        assert {name: keys for name, keys in found.items() if keys} == {
            name: keys for name, keys in owned.items() if keys
        }
        again = asked(manager, resource="configmaps", name="c")(cluster, config_map(**given_))
        assert again == obj


def test_apply_on_a_pod_that_is_not_tracked(plain: Cluster) -> None:
    created(plain)
    config = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    containers = [{"name": "main", "image": "other"}]
    with pytest.raises(ApiError) as refused:
        asked("m")(plain, {**config, "spec": {"containers": containers}})
    assert refused.value.code == 409
    assert 'conflict with "maker" using v1: .spec.containers[name="main"].image' in refused.value.message
    assert not tracked(plain)
    asked("m")(plain, {**config, "metadata": {"name": "p", "labels": {"a": "b"}}})
    assert owners(plain)["m", ""] == {"f:metadata": {"f:labels": {"f:a": {}}}}
    assert "f:containers" in owners(plain)["maker", ""]["f:spec"]


async def test_writes_in_process_have_a_manager(plain: Cluster) -> None:
    api = InProcessApi(plain, "controllers")
    await api.create("pods", "default", pod("p"))
    await api.patch("pods", "default", "p", {"status": {"phase": "Running"}}, subresource="status")
    assert set(owners(plain)) == {("controllers", ""), ("controllers", "status")}


# --- the write-ahead file


def opened(folder: Path) -> Cluster:
    return Cluster(journal=Journal(folder))


def test_ownership_outlives_the_server(tmp_path: Path) -> None:
    first = opened(tmp_path)
    created(first)
    patched(first, {"status": {"phase": "Running"}}, KUBELET, "status")
    asked("m", resource="configmaps", name="c")(first, config_map(a="1"))
    before = owners(first), first.find(PODS, "default", "p")
    second = opened(tmp_path)
    entry = second.find(PODS, "default", "p")
    assert (owners(second), entry.writers) == (before[0], before[1].writers)
    with pytest.raises(ApiError, match=r'conflict with "m": \.data\.a'):
        asked("n", resource="configmaps", name="c")(second, config_map(a="2"))


def test_records_of_older_servers_have_no_writers() -> None:
    old = pack(Kind.PUT, 7, "pods", "ns", "p", b'{"a":1}')
    assert unpack(old, 0)[0] == Record(Kind.PUT, 7, "pods", "ns", "p", b'{"a":1}')
    writers = Writers("maker", "v1", "", "kubelet", "v1", "2026-01-01T00:00:00Z")
    new = pack(Kind.PUT, 7, "pods", "ns", "p", b'{"a":1}', packed(writers))
    record = unpack(new, 0)[0]
    assert (record.raw, unpacked(record.writers)) == (b'{"a":1}', writers)
    assert unpacked(b"") is None


# --- entries


def test_entries_read_back() -> None:
    entries = [
        {
            "manager": "a",
            "operation": APPLY,
            "apiVersion": "v1",
            "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:x": {}}},
        },
        {
            "manager": "b",
            "operation": UPDATE,
            "apiVersion": "v1",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:status": {}},
            "subresource": "status",
        },
    ]
    assert encode(decode(entries)) == entries


def test_the_same_manager_applies_once_in_all_versions() -> None:
    entry = {"manager": "a", "operation": APPLY, "fieldsType": "FieldsV1", "fieldsV1": {}}
    assert len(decode([{**entry, "apiVersion": "v1"}, {**entry, "apiVersion": "v2"}])) == 1
    entry["operation"] = UPDATE
    assert len(decode([{**entry, "apiVersion": "v1"}, {**entry, "apiVersion": "v2"}])) == 2
