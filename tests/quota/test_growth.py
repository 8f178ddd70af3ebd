"""Quotas, trees and whoever uses them are created and deleted for ever: nothing is kept of their names."""

import gc
from collections.abc import Iterator
from typing import Any

import msgspec

from koord.kube.quotas import ElasticQuota
from koord.quota.keeper import Keeper
from koord.quota.views import NodeBrief
from tests.quota.test_keeper import PREFIX, pod, quota


def texts(found: object, seen: set[int]) -> Iterator[str]:
    """Every text that can be reached from an object."""
    todo: list[Any] = [found]
    while todo:
        each = todo.pop()
        if id(each) in seen or isinstance(each, type):
            continue
        seen.add(id(each))
        if isinstance(each, str):
            yield each
        elif isinstance(each, msgspec.Struct):
            todo.extend(getattr(each, field) for field in each.__struct_fields__)
        elif isinstance(each, dict):
            todo.extend((*each.keys(), *each.values()))
        elif isinstance(each, list | set | frozenset | tuple) or type(each).__module__.startswith("koord."):
            todo.extend(gc.get_referents(each))


def of_tree(name: str, tree: str, parent: str = "") -> ElasticQuota:
    body = msgspec.to_builtins(quota(name, parent, max={"cpu": "4"}))
    body["metadata"].setdefault("labels", {})[PREFIX + "tree-id"] = tree
    return msgspec.convert(body, ElasticQuota)


def round_of(keeper: Keeper, n: int, *, leads: bool) -> None:
    top, leaf = of_tree(f"zz-top-{n}", f"zz-tree-{n}"), of_tree(f"zz-leaf-{n}", f"zz-tree-{n}", f"zz-top-{n}")
    orphan = quota(f"zz-orphan-{n}", f"zz-nowhere-{n}", max={"cpu": "1"})
    for each in (top, leaf, orphan):
        keeper.put_quota(each)
    for i in range(3):
        keeper.put_pod(f"ns/zz-pod-{n}-{i}", pod(f"zz-pod-{n}-{i}", f"zz-leaf-{n}", "3"))
        if leads:
            show(keeper)
        keeper.put_pod(f"ns/zz-pod-{n}-{i}", pod(f"zz-pod-{n}-{i}", f"zz-leaf-{n}", "3", node="n"))
    for i in range(3):
        keeper.drop_pod(f"ns/zz-pod-{n}-{i}")
    for each in (leaf, top, orphan):
        keeper.drop_quota(each)


def show(keeper: Keeper) -> None:
    keeper.fill(0.0)
    keeper.showing.compute()
    list(keeper.showing.runtimes())
    list(keeper.showing.patches())
    keeper.quotas.look()
    keeper.quotas.problems.clear()
    keeper.limits_dirty.clear()  # as the one who writes them does
    keeper.closed.clear()


def made() -> Keeper:
    keeper = Keeper()
    keeper.put_quota(quota("stays", max={"cpu": "4"}))
    keeper.put_node("n", msgspec.convert({"status": {"allocatable": {"cpu": "8"}}}, NodeBrief))
    return keeper


def test_a_leader_keeps_no_names_of_what_is_gone() -> None:
    keeper = made()
    for n in range(5):
        round_of(keeper, n, leads=True)
        show(keeper)
    keeper.put_quota(quota("last", max={"cpu": "4"}))
    show(keeper)
    found = {text for text in texts(keeper, set()) if "zz-" in text}
    assert not found
    assert "stays" in set(texts(keeper, set()))  # the search finds what is there


def test_a_standby_keeps_none_either_and_leads_with_the_whole_picture() -> None:
    keeper = made()
    for n in range(5):
        round_of(keeper, n, leads=False)
    keeper.rest()
    found = {text for text in texts(keeper, set()) if "zz-" in text}
    keeper.quotas.problems.clear()
    assert not found
    keeper.put_pod("ns/p", pod("p", "stays", "1", node="n"))
    keeper.rest()
    keeper.begin(0.0)
    keeper.showing.compute()
    assert keeper.limits_dirty == {"stays"}
    assert [one.metadata.name for one, _ in keeper.showing.patches()] == ["stays"]
    assert keeper.limits("stays")[0].limits == {"cpu": 1000}
