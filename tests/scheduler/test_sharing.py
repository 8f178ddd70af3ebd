"""Replicas share the units: each has exactly one owner, evenly, and only a lost replica's units move."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from koord.kube.pods import PodSpec
from koord.scheduler.queueing.queue import SchedulingQueue, Unit
from koord.scheduler.sharing import Share, shared_by

MEMBERS = st.sets(st.text("abc-0123456789", min_size=1, max_size=30), min_size=1, max_size=5)


def shares(members: set[str]) -> dict[str, Share]:
    made = {member: Share(member) for member in members}
    for share in made.values():
        share.set_members(members)
    return made


def owners(made: dict[str, Share], key: str) -> list[str]:
    return [member for member, share in made.items() if share.mine(key)]


@given(MEMBERS, st.lists(st.text(max_size=40), max_size=30))
def test_each_key_has_one_owner_and_keeps_it_while_that_lives(members: set[str], keys: list[str]) -> None:
    before = shares(members)
    for key in keys:
        (owner,) = owners(before, key)
        for gone in members - {owner}:
            assert owners(shares(members - {gone}), key) == [owner]


def test_the_shares_are_even() -> None:
    members = {f"scheduler-host-{pid}-{pid * 77:06x}" for pid in range(100, 103)}
    made = shares(members)
    counts = dict.fromkeys(members, 0)
    for number in range(9000):
        (owner,) = owners(made, f"6f9619ff-8b86-d011-b42d-{number:012x}")
        counts[owner] += 1
    assert all(2700 < count < 3300 for count in counts.values()), counts


def test_one_alone_has_all() -> None:
    share = Share("a")
    assert share.mine("x") and share.replicas == 1
    share.set_members(["a"])
    assert share.mine("x") and share.replicas == 1


def test_pods_that_look_at_others_are_shared_by_namespace() -> None:
    term: dict[str, object] = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]}
    spread = {"maxSkew": 1, "topologyKey": "zone"}
    together: list[dict[str, object]] = [
        {"affinity": {"podAffinity": required}},
        {"affinity": {"podAntiAffinity": required}},
        {"topologySpreadConstraints": [spread | {"whenUnsatisfiable": "DoNotSchedule"}]},
    ]
    apart: list[dict[str, object]] = [
        {},
        {"affinity": {"podAffinity": preferred, "nodeAffinity": {}}},
        {"topologySpreadConstraints": [spread | {"whenUnsatisfiable": "ScheduleAnyway"}]},
    ]
    for spec in together:
        typed = msgspec.convert(spec, PodSpec)
        assert shared_by("a", "ns", typed) == shared_by("b", "ns", typed) != shared_by("b", "other", typed)
    for spec in apart:
        assert shared_by("a", "ns", msgspec.convert(spec, PodSpec)) == "a"
    far: list[dict[str, object]] = [term | {"namespaceSelector": {}}, term | {"namespaces": ["x"]}]
    keys = {
        shared_by("a", namespace, msgspec.convert({"affinity": {"podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [one]}}}, PodSpec))
        for namespace in ("x", "y")
        for one in far
    }  # fmt: skip
    assert len(keys) == 1
    wants = msgspec.convert({"containers": [{"ports": [{"hostPort": 443}, {"hostPort": 80}]}]}, PodSpec)
    assert shared_by("a", "ns", wants) == shared_by("b", "other", wants) != "a"


class Bed:
    def __init__(self) -> None:
        self.queue = SchedulingQueue(lambda plugin: frozenset())
        self.mine = {"a", "b"}
        self.queue.mine = lambda unit: unit.key in self.mine

    def add(self, key: str) -> Unit:
        unit = self.queue.unit(key, "", 0.0)
        self.queue.activate(unit, 0.0)
        return unit

    def popped(self, now: float = 0.0) -> set[str]:
        return {unit.key for unit in self.queue.pop(100, now)}


def test_what_is_anothers_waits_elsewhere_and_comes_when_it_is_ours() -> None:
    bed = Bed()
    for key in "abc":
        bed.add(key)
    assert bed.popped() == {"a", "b"}
    assert bed.queue.counts["elsewhere"] == 1
    bed.mine = {"c"}
    assert bed.queue.reassign() == 1
    assert bed.popped() == {"c"}
    assert bed.queue.counts["elsewhere"] == 0, "a and b are in flight and are finished here"


def test_what_comes_back_from_a_plan_goes_to_its_owner() -> None:
    bed = Bed()
    retried, failed, rejected = (bed.add(key) for key in "abd")
    bed.mine = set("abd")
    bed.queue.reassign()
    assert bed.popped() == set("abd")
    bed.mine = set()
    bed.queue.retry(retried, 1.0)
    bed.queue.fail(failed, 1.0, "no")
    bed.queue.reject(rejected, ["NodeResourcesFit"], 1.0)
    assert {unit.state for unit in (retried, failed, rejected)} == {"elsewhere"}
    assert bed.popped(1000.0) == set()
    bed.mine = set("abd")
    assert bed.queue.reassign() == 3
    assert bed.popped(1000.0) == set("abd")


def test_what_waits_here_leaves_with_its_share() -> None:
    bed = Bed()
    bed.mine = set("abd")
    parked, backing = bed.add("a"), bed.add("b")
    assert bed.popped() == {"a", "b"}
    active = bed.add("d")
    bed.queue.reject(parked, ["NodeResourcesFit"], 0.0)
    bed.queue.fail(backing, 0.0, "no")
    bed.mine = set()
    bed.queue.reassign()
    assert {unit.state for unit in (parked, backing, active)} == {"elsewhere"}
    assert bed.popped(1000.0) == set()
    assert sum(bed.queue.counts.values()) == 3
    for key in "abd":
        bed.queue.remove(key)
    assert not any(bed.queue.counts.values())


def test_pods_with_claims_on_devices_are_one_replicas() -> None:
    wants = msgspec.convert({"resourceClaims": [{"name": "x", "resourceClaimName": "c"}]}, PodSpec)
    assert shared_by("a", "ns", wants) == shared_by("b", "other", wants) != "a"
