"""Taking pods away frees what they used: exclusive claims, disks, room for volumes (spec 10 section 3.15)."""

from typing import Any

import pytest

from koord.scheduler.engine.placement import PodInfo
from koord.scheduler.preemption.budgets import Budgets
from koord.scheduler.preemption.candidates import Candidate
from koord.scheduler.preemption.search import Search
from tests.scheduler.clusters import pod_view
from tests.scheduler.volumes.objects import Object, VolumeBed, claim, csi_node, storage_class, using, volume

DRIVER = "x.io"
NOTHING_HELPS = "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."


class Crowded(VolumeBed):
    def __init__(self) -> None:
        super().__init__()
        self.nodes("a", "b")
        self.search = Search(self.engine, Budgets())

    def bound(self, name: str, **more: Any) -> None:
        data = claim(name, volume=f"pv-{name}", bound=True, **more)
        self.tell("claim", data)
        self.tell("volume", volume(f"pv-{name}", given=data, csi=(DRIVER, f"h-{name}"), **more))

    def runs(self, name: str, spec: Object, *, priority: int = 0) -> str:
        """Placed, and seen bound."""
        view = pod_view(name, {**spec, "priority": priority})
        node = self.place(self.catalogue.pod(view))
        self.engine.count(self.catalogue.assigned(view, node))
        assert self.engine.confirm(view.uid)
        return node

    def wants(self, name: str, spec: Object, *, priority: int = 100) -> PodInfo:
        pod = self.pod(name, {**spec, "priority": priority})
        assert not self.refusal(pod).feasible
        return pod

    def victims(self, pod: PodInfo) -> tuple[str, list[str]]:
        found = self.search.find(pod)
        assert isinstance(found, Candidate), found
        return found.node, [victim.ref.name for victim in found.victims]


def test_the_user_of_an_exclusive_claim_makes_way() -> None:
    world = Crowded()
    world.bound("data", modes=("ReadWriteOncePod",))
    node = world.runs("low", using("data"))
    world.runs("bystander", using())
    assert world.victims(world.wants("high", using("data"))) == (node, ["low"])
    # Nothing changed by looking.
    assert world.place(world.pod("other", using("data"))).count("ReadWriteOncePod") == 1
    assert isinstance(world.search.find(world.wants("equal", using("data"), priority=0)), str)


@pytest.mark.parametrize("count", (1, 2))
def test_volumes_make_room_for_others(count: int) -> None:
    world = Crowded()
    for name in ("a", "b"):
        world.tell("csi_node", csi_node(name, {DRIVER: count}))
    for number in range(2 * count + 1):
        world.bound(f"c{number}")
    nodes = [world.runs(f"p{number}", using(f"c{number}"), priority=number) for number in range(2 * count)]
    node, victims = world.victims(world.wants("high", using(f"c{2 * count}")))
    assert (node, victims) == (nodes[0], ["p0"])


def test_a_disk_is_given_up() -> None:
    world = Crowded()
    disk = {"gcePersistentDisk": {"pdName": "d"}}
    nodes = {world.runs(f"p{number}", using(disks=[disk]), priority=number): f"p{number}" for number in range(2)}
    assert len(nodes) == 2
    node, victims = world.victims(world.wants("high", using(disks=[disk])))
    assert (nodes[node], victims) == ("p0", ["p0"])


def test_no_pod_is_taken_away_for_a_volume_that_is_not_there() -> None:
    world = Crowded()
    world.tell("class", storage_class())
    world.tell("claim", claim("data"))
    world.runs("low", using())
    for spec in (using("data"), using("missing")):
        assert world.search.find(world.wants("high", spec)) == NOTHING_HELPS
