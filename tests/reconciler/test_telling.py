"""Events on objects that are broken: bounded, and what does not fit is counted."""

from koord.bus.connection import Bus
from koord.ledger.model import Nameless, Short
from koord.reconciler import metrics
from koord.reconciler.sights import MetaSight, NodeSight
from koord.reconciler.telling import MOST, NAMELESS, OVERCOMMIT, UNCHARGED, take_notes
from koord.reconciler.world import World
from koord.telemetry.spans import Spans


def dropped(reason: str) -> float:
    return float(metrics.EVENTS_DROPPED.labels(reason)._value.get())


def problems(kind: str) -> float:
    return float(metrics.PROBLEMS.labels(kind)._value.get())


async def test_what_cannot_be_charged_is_told_in_two_rounds_and_the_rest_is_counted(
    nats_url: str, cluster: str
) -> None:
    async with await Bus.connect(nats_url, cluster, "test") as bus:
        world = World(bus, Spans())
        lost, seen = dropped(UNCHARGED), problems("Pod")
        world.folder.problems += [("Pod", MetaSight(f"p{i}", "ns", f"u{i}"), "spec: bad") for i in range(2 * MOST + 50)]
        first = take_notes(world)
        assert [note.target.name for note in first] == [f"p{i}" for i in range(MOST)]
        assert (first[0].reason, first[0].kind, first[0].note) == (UNCHARGED, "Pod", "spec: bad")
        assert dropped(UNCHARGED) - lost == 50
        second = take_notes(world)
        assert [note.target.name for note in second] == [f"p{i}" for i in range(MOST, 2 * MOST)]
        assert take_notes(world) == []
        assert dropped(UNCHARGED) - lost == 50
        assert problems("Pod") - seen == 2 * MOST + 50


async def test_nodes_below_zero_beyond_the_bound_are_counted(nats_url: str, cluster: str) -> None:
    async with await Bus.connect(nats_url, cluster, "test") as bus:
        world = World(bus, Spans())
        lost = dropped(OVERCOMMIT)
        for number in range(MOST + 7):
            name = f"n{number}"
            world.nodes.items[name] = NodeSight(MetaSight(name, "", name))
            world.overcommitted[f"node/{name}", "cpu"] = Short(f"node/{name}", "cpu", "amount", 2500, 2000)
        notes = take_notes(world)
        assert len(notes) == MOST
        assert notes[0].note == "node n0: cpu: 2500m taken of 2; nothing more is placed there"
        assert dropped(OVERCOMMIT) - lost == 7
        assert take_notes(world) == []


async def test_a_node_whose_names_are_too_many_is_told(nats_url: str, cluster: str) -> None:
    async with await Bus.connect(nats_url, cluster, "test") as bus:
        world = World(bus, Spans())
        world.nodes.items["n1"] = NodeSight(MetaSight("n1", "", "n1"))
        # A quota's are logged: whoever sets its limits tells of them.
        world.note_nameless([Nameless("node/n1", 3, "example.com/a"), Nameless("quota/q", 1, "example.com/b")])
        [note] = take_notes(world)
        assert (note.reason, note.target.name) == (NAMELESS, "n1")
        assert note.note == (
            "node/n1: 3 of its resource names are left out, the first is example.com/a: the ledger limits at most 999 "
            "names in all; a rebuild forgets those that are not used"
        )
        assert take_notes(world) == []
        world.overcommitted["node/n1", "*"] = Short("node/n1", "*", "amount", 2, 0)
        assert [note.note for note in take_notes(world)] == [
            "node n1: resources that nobody offers: 2 taken of 0; nothing more is placed there"
        ]
