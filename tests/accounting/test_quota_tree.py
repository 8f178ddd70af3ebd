"""The tree of quotas under any order of changes."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.accounting.quotas import QuotaTree, QuotaTreeError
from koord.kube.meta import ObjectMeta
from koord.kube.protocol import quota as keys
from koord.kube.quantity import QuantityError
from koord.kube.quotas import ElasticQuota, ElasticQuotaSpec

ROOT = "koordinator-root-quota"


def quota(
    name: str,
    parent: str = "",
    namespace: str = "ns",
    created: str = "2026-03-02T09:00:00Z",
    namespaces: str = "",
    limit: dict[str, str | int | float] | None = None,
) -> ElasticQuota:
    labels = {keys.PARENT: parent} if parent else {}
    return ElasticQuota(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            uid=f"{namespace}-{name}",
            labels=labels,
            annotations={keys.NAMESPACES: namespaces} if namespaces else {},
            creation_timestamp=created,
        ),
        spec=ElasticQuotaSpec(min={"cpu": "1"}, max=limit or {"cpu": "4"}),
    )


def tree_of(*quotas: ElasticQuota) -> QuotaTree:
    tree = QuotaTree()
    for item in quotas:
        tree.set(item)
    return tree


def test_min_above_max_is_refused_and_the_last_good_version_stays() -> None:
    tree = tree_of(quota("team"))
    with pytest.raises(QuantityError, match="resourceKey cpu of quota team min 1 > max 500m"):
        tree.set(quota("team", limit={"cpu": "500m"}))
    assert tree.limits("team") == {"cpu": 4000}


def test_chain_and_limits() -> None:
    tree = tree_of(quota("leaf", "team"), quota("team", "org"), quota("org", ROOT), quota("alone"))
    assert tree.chain("leaf") == ("leaf", "team", "org")
    assert tree.chain("alone") == ("alone",)
    assert tree.chain(ROOT) == ()
    assert tree.limits("leaf") == {"cpu": 4000}
    assert tree.minimum("leaf") == {"cpu": 1000}
    assert tree.children("team") == ["leaf"]
    assert tree.children(ROOT) == ["alone", "org"]
    assert "leaf" in tree
    assert len(tree) == 4
    assert sorted(tree) == ["alone", "leaf", "org", "team"]
    with pytest.raises(KeyError):
        tree.limits("gone")


def test_a_changed_parent_moves_the_whole_subtree() -> None:
    tree = tree_of(quota("leaf", "team"), quota("team", "org"), quota("org"), quota("other"))
    assert tree.chain("leaf") == ("leaf", "team", "org")
    assert tree.set(quota("team", "other"))
    assert tree.chain("leaf") == ("leaf", "team", "other")
    assert not tree.set(quota("team", "other")), "nothing new"


def test_a_missing_ancestor_is_an_error_until_it_appears() -> None:
    tree = tree_of(quota("leaf", "team"))
    with pytest.raises(QuotaTreeError) as caught:
        tree.chain("leaf", "ns/u")
    assert str(caught.value) == "CheckUsage found quota not exist, item:ns/u, quotaName:team, visited quota: leaf,team"
    assert (caught.value.reason, caught.value.quota) == ("missing", "team")
    tree.set(quota("team"))
    assert tree.chain("leaf") == ("leaf", "team")
    assert tree.remove("team")
    with pytest.raises(QuotaTreeError):
        tree.chain("leaf")
    assert not tree.remove("team")


def test_a_cycle_does_not_touch_other_quotas() -> None:
    tree = tree_of(quota("a", "b"), quota("b", "a"), quota("self", "self"), quota("fine"))
    for name, visited in (("a", "a,b"), ("b", "b,a"), ("self", "self")):
        with pytest.raises(QuotaTreeError) as caught:
            tree.chain(name)
        assert caught.value.reason == "cycle"
        assert str(caught.value).endswith(f"visited quota: {visited}")
    assert tree.chain("fine") == ("fine",)


def test_of_two_quotas_with_one_name_the_oldest_is_in_force() -> None:
    old = quota("q", namespace="b", created="2026-01-01T00:00:00Z", limit={"cpu": "1"})
    new = quota("q", namespace="a", created="2026-02-01T00:00:00Z", limit={"cpu": "2"})
    for first, second in ((old, new), (new, old)):
        tree = tree_of(first, second)
        assert tree.limits("q") == {"cpu": 1000}
        assert [(winner.key, loser.key) for winner, loser in tree.duplicates()] == [("b/q", "a/q")]
    assert tree.remove("q", "b")
    assert tree.limits("q") == {"cpu": 2000}
    assert tree.duplicates() == []
    assert tree.remove("q")
    assert "q" not in tree


def test_a_bad_quota_is_named_and_the_last_good_one_stays() -> None:
    tree = tree_of(quota("q", limit={"cpu": "4"}))
    with pytest.raises(QuantityError) as caught:
        tree.set(quota("q", limit={"cpu": "four"}))
    assert str(caught.value).startswith('ElasticQuota ns/q: spec.max[cpu]: quantity "four"')
    with pytest.raises(keys.AnnotationError):
        tree.set(quota("q", namespaces="not json"))
    assert tree.limits("q") == {"cpu": 4000}


def test_quota_of_a_pod() -> None:
    tree = tree_of(
        quota("team"),
        quota("own", namespace="own"),
        quota("elsewhere", namespace="x"),
        quota("bound", namespaces='["data","own"]'),
        quota("bound-later", namespaces='["data"]', created="2026-04-01T00:00:00Z"),
    )
    assert tree.quota_of_pod({keys.NAME: "team"}, "own") == "team"
    assert tree.quota_of_pod({keys.LEGACY_NAME: "team"}, "own") == "team"
    assert tree.quota_of_pod({keys.NAME: "gone"}, "own") == "koordinator-default-quota"
    assert tree.quota_of_pod({}, "own") == "own", "a quota named like the namespace comes before one bound to it"
    assert tree.quota_of_pod({}, "elsewhere") == "koordinator-default-quota", "that one is in another namespace"
    assert tree.quota_of_pod({}, "data") == "bound", "of two bound to a namespace the oldest"
    assert tree.quota_of_pod({}, "none") == "koordinator-default-quota"
    assert tree.quota_of_unit({keys.NAME: "gone"}, "own") == "gone", "an unknown name is the unit's error"
    assert tree.quota_of_unit({}, "data") == "bound"
    tree.remove("bound")
    assert tree.quota_of_pod({}, "data") == "bound-later"


QUOTA_NAMES = ["a", "b", "c", "d"]
changes = st.lists(
    st.tuples(
        st.sampled_from(QUOTA_NAMES), st.sampled_from([*QUOTA_NAMES, ""]), st.sampled_from(["x", "y"]), st.booleans()
    ),
    max_size=25,
)


@given(changes)
def test_any_order_of_changes_ends_in_the_same_tree(history: list[tuple[str, str, str, bool]]) -> None:
    tree = QuotaTree()
    present: dict[tuple[str, str], ElasticQuota] = {}
    for name, parent, namespace, removed in history:
        if removed:
            tree.remove(name, namespace)
            present.pop((name, namespace), None)
        else:
            item = quota(name, parent, namespace, created=f"2026-0{1 + (namespace == 'x')}-01T00:00:00Z")
            tree.set(item)
            present[name, namespace] = item
        for known in QUOTA_NAMES:  # fills the cache of chains that later changes must undo
            try:
                tree.chain(known)
            except QuotaTreeError:
                continue
    fresh = tree_of(*present.values())
    assert sorted(tree) == sorted(fresh) == sorted({name for name, _ in present})
    for name in QUOTA_NAMES:
        assert tree.get(name) == fresh.get(name)
        assert tree.children(name) == fresh.children(name)
        try:
            expected: tuple[str, ...] | str = fresh.chain(name)
        except QuotaTreeError as error:
            expected = str(error)
        try:
            found: tuple[str, ...] | str = tree.chain(name)
        except QuotaTreeError as error:
            found = str(error)
        assert found == expected
        if isinstance(found, tuple):
            assert found[0] == name
            assert len(set(found)) == len(found)


def test_what_is_shown_on_a_quota_is_no_edit_of_it() -> None:
    tree = tree_of(quota("team"))
    body = msgspec.to_builtins(quota("team"))
    body["metadata"]["annotations"] = dict.fromkeys(keys.WRITTEN, '{"cpu":"1"}')
    body["status"] = {"used": {"cpu": "1"}}
    assert not tree.set(msgspec.convert(body, ElasticQuota))
    body["metadata"]["annotations"][keys.SHARED_WEIGHT] = '{"cpu":"1"}'
    assert tree.set(msgspec.convert(body, ElasticQuota))
