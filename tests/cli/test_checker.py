"""The demo's judge finds each thing that must never happen, and nothing where nothing happened."""

import json
from fractions import Fraction
from typing import Any

import pytest

from koord.cli.demo.checker import Checker, Violation, request_of
from koord.cli.demo.history import Change

QUOTAS = "elasticquotas.scheduling.sigs.k8s.io"
UNITS = "queueunits.scheduling.x-k8s.io"
PARENT = "quota.scheduling.koordinator.sh/parent"
GANG = "gang.scheduling.koordinator.sh"


class Story:
    """A made-up history, a second between two changes unless said."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.now = 0.0

    def add(self, resource: str, item: dict[str, Any], type_: str = "MODIFIED", after: float = 1.0) -> None:
        self.now += after
        self.changes.append(Change(len(self.changes), self.now, resource, type_, json.dumps(item).encode()))

    def node(self, name: str, cpu: str = "4", pods: str = "10") -> None:
        self.add("nodes", {"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu, "pods": pods}}})

    def pod(
        self, name: str, node: str = "", cpu: str = "1", phase: str = "", minimum: int = 0, type_: str = "MODIFIED"
    ) -> None:
        notes = {f"{GANG}/name": "g", f"{GANG}/min-available": str(minimum)} if minimum else {}
        self.add(
            "pods",
            {
                "metadata": {"uid": name, "namespace": "ns", "name": name, "annotations": notes},
                "spec": {"nodeName": node, "containers": [{"resources": {"requests": {"cpu": cpu}}}]},
                "status": {"phase": phase or "Pending"},
            },
            type_,
        )

    def quota(self, name: str, cpu: str, parent: str = "") -> None:
        meta = {"name": name, "namespace": "ns", "labels": {PARENT: parent}}
        self.add(QUOTAS, {"metadata": meta, "spec": {"max": {"cpu": cpu}}})

    def unit(self, name: str, quota: str, cpu: str, phase: str = "Dequeued", type_: str = "MODIFIED") -> None:
        admissions = [{"name": "main", "replicas": 1}] if phase in ("Dequeued", "Running") else []
        self.add(
            UNITS,
            {
                "metadata": {"uid": name, "namespace": "ns", "name": name},
                "spec": {"queue": quota, "resource": {"cpu": cpu}},
                "status": {"phase": phase, "admissions": admissions},
            },
            type_,
        )

    def violations(self) -> list[Violation]:
        return Checker().run(self.changes)


@pytest.fixture
def story() -> Story:
    return Story()


def test_a_clean_history(story: Story) -> None:
    """Room and quota are used up exactly, given back, and used again."""
    story.node("n", cpu="2")
    story.quota("top", "4")
    story.quota("leaf", "4", parent="top")
    for name in ("a", "b"):
        story.unit(name, "leaf", "2")
        story.pod(name)
        story.pod(name, "n", minimum=2)
    for name in ("a", "b"):
        story.pod(name, "n", phase="Succeeded")
        story.unit(name, "leaf", "2", phase="Succeed")
    story.unit("c", "leaf", "4000m")
    story.pod("c", "n", cpu="2")
    assert story.violations() == []


def test_a_quota_above_its_limit_at_an_admission(story: Story) -> None:
    story.quota("leaf", "3")
    story.unit("a", "leaf", "2")
    story.unit("a", "leaf", "2", phase="Running")
    story.unit("b", "leaf", "1500m")
    assert story.violations() == [Violation("quota above its limit", "quota leaf", "3.5 cpu of 3 after ns/b")]


def test_a_parent_above_its_limit(story: Story) -> None:
    story.quota("top", "3")
    for leaf in ("x", "y"):
        story.quota(leaf, "2", parent="top")
        story.unit(leaf, leaf, "2")
    assert [(found.rule, found.subject) for found in story.violations()] == [("quota above its limit", "quota top")]


@pytest.mark.parametrize("how", ["Succeed", "Failed", "Enqueued", "TimeoutBackoff", "DELETED"])
def test_what_is_over_or_fell_back_is_not_counted(story: Story, how: str) -> None:
    story.quota("leaf", "2")
    story.unit("a", "leaf", "2")
    if how == "DELETED":
        story.unit("a", "leaf", "2", type_=how)
    else:
        story.unit("a", "leaf", "2", phase=how)
    story.unit("b", "leaf", "2")
    assert story.violations() == []


def test_a_changed_parent_counts_what_was_admitted_before(story: Story) -> None:
    """What the quota's units hold is its new parent's from then on, and no more the old one's."""
    story.quota("old", "2")
    story.quota("new", "3")
    story.quota("leaf", "9", parent="old")
    story.unit("a", "leaf", "2")
    story.quota("leaf", "9", parent="new")
    story.unit("b", "leaf", "1")
    story.quota("other", "9", parent="old")
    story.unit("c", "other", "2")
    assert story.violations() == []
    story.unit("d", "leaf", "1")
    assert [found.detail for found in story.violations()] == ["4 cpu of 3 after ns/d"]


def test_change_by_change_it_keeps_only_what_lives(story: Story) -> None:
    """As a benchmark of hours uses it: a deleted pod is forgotten, its node's room is free again."""
    story.node("n", cpu="1")
    for name in ("a", "b", "c"):
        story.pod(name)
        story.pod(name, "n")
        story.pod(name, "n", phase="Succeeded")
        story.pod(name, "n", phase="Succeeded", type_="DELETED")
    story.pod("d", "n")
    checker = Checker()
    for change in story.changes:
        checker.see(change, json.loads(change.raw))
    assert checker.finish() == []
    assert checker.bound == 4
    assert list(checker._pods) == ["d"]


def test_a_lowered_limit_is_judged_only_at_the_next_admission(story: Story) -> None:
    story.quota("leaf", "4")
    story.unit("a", "leaf", "2")
    story.quota("leaf", "1")
    assert story.violations() == []
    story.unit("b", "leaf", "1")
    assert [found.detail for found in story.violations()] == ["3 cpu of 1 after ns/b"]


def test_a_node_without_room(story: Story) -> None:
    story.node("n", cpu="1500m")
    story.pod("a", "n")
    story.pod("b", "n")
    assert story.violations() == [Violation("node without room", "pod ns/b", "n has 1.5 cpu, 2 taken")]


def test_too_many_pods_and_a_node_that_is_not_there(story: Story) -> None:
    story.node("n", pods="1")
    story.pod("a", "n", cpu="0")
    story.pod("b", "n", cpu="0")
    story.pod("c", "nowhere", cpu="0")
    assert [found.detail for found in story.violations()] == [
        "n has 1 pods, 2 taken",
        "nowhere has 0 pods, 1 taken",
    ]


def test_a_pod_bound_twice(story: Story) -> None:
    for name in ("n", "m"):
        story.node(name)
    story.pod("a", "n")
    story.pod("a", "n", phase="Running")
    story.pod("a", "m")
    assert story.violations() == [Violation("bound twice", "pod ns/a", "first to n, then to m")]


@pytest.mark.parametrize(("late_s", "found"), [(9.0, 0), (11.0, 1)])
def test_a_gang_in_part_ten_seconds_after_its_first_bind(story: Story, late_s: float, found: int) -> None:
    story.node("n")
    story.pod("a", "n", minimum=2)
    story.now += late_s - 1
    story.pod("b", "n", minimum=2)
    story.now += 20
    story.pod("b", "n", minimum=2, phase="Running")
    assert len(story.violations()) == found


def test_a_gang_in_part_when_the_history_ends(story: Story) -> None:
    story.node("n")
    story.pod("a", "n", minimum=2)
    assert story.violations() == [Violation("gang in part", "gang ns/g", "1 of 2 bound after 10 s")]


def test_requests_are_read_on_its_own() -> None:
    """Containers summed, the largest init container, a limit where no request is, overhead, one pod."""
    spec = {
        "containers": [
            {"resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "4", "memory": "1Gi"}}},
            {"resources": {"requests": {"cpu": "1"}}},
        ],
        "initContainers": [{"resources": {"requests": {"cpu": "3"}}}],
        "overhead": {"cpu": "100m"},
    }
    assert request_of(spec) == {"cpu": Fraction(31, 10), "memory": 2**30, "pods": 1}
