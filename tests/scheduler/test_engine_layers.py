"""Whatever an answer depends on: kept rankings and runs place like one at a time with everything computed anew."""

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.placement import Outcome, Placed
from koord.scheduler.framework.contract import PluginError
from tests.scheduler.clusters import Bed, requests
from tests.scheduler.planted import Flaky, Keys, Moody, Skew, Slots, planted

USES = (
    *("Skew:0", "Skew:2", "Crowd", "Empty", "Share", "Slots", "Slots:3", "Level", "Level:1", "Flaky"),
    *("Keys:2", "Lockers:2", "Lots", "Lots:9", "Favourite:2", "Moody"),
)
kinds = st.lists(
    st.tuples(
        st.lists(st.sampled_from(USES), max_size=3, unique_by=lambda use: use.partition(":")[0]),
        st.sampled_from(("100m", "300m", "1")),
        st.sampled_from((None, None, None, "n1", "n2")),
    ),
    min_size=1,
    max_size=4,
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("place"), st.integers(0, 3), st.sampled_from((1, 2, 5, 9))),
        st.tuples(st.just("look"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("forget"), st.integers(0, 40), st.just(0)),
        st.tuples(st.just("node"), st.sampled_from((0, 1, 2, 4, 31, 33)), st.integers(1, 4)),
        st.tuples(st.just("gone"), st.integers(0, 7), st.just(0)),
        st.tuples(st.just("correct"), st.integers(0, 7), st.integers(0, 1)),
        st.tuples(st.just("mood"), st.integers(0, 2), st.just(0)),
        st.tuples(st.sampled_from(("nothing", "broken")), st.just(0), st.just(0)),
    ),
    min_size=5,
    max_size=20,
)


def spec_of(cpu: str, only: str | None) -> dict[str, Any]:
    if only is None:
        return requests(cpu)
    fields = [{"key": "metadata.name", "operator": "In", "values": [only]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": fields}]}}
    return requests(cpu, affinity={"nodeAffinity": required})


def _keys(bed: Bed, uses: list[str], spec: dict[str, Any]) -> list[Any] | None:
    try:
        _, keys = bed.engine.ranked(bed.pod("look", spec, annotations={"use": " ".join(uses)}).class_)
    except PluginError:
        return None
    return list(keys)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from((1, 2, 5, 12, 30, 30)), kinds, steps)
@example(30, [(["Level:1"], "100m", None)], [("place", 0, 2), ("look", 0, 0), ("node", 31, 4), ("look", 0, 0)])
def test_kept_layers_place_like_full_passes(
    size: int, pods: list[tuple[list[str], str, str | None]], story: list[tuple[str, int, int]]
) -> None:
    kept, anew = Bed(seed="s", extra=planted()), Bed(seed="s", extra=planted())
    for bed in (kept, anew):
        for number in range(size):
            bed.node(f"n{number}", cpu=700 + 500 * (number % 3))
    serial = 0
    placed: list[str] = []
    for what, which, amount in story:
        if what == "place":
            uses, cpu, only = pods[which % len(pods)]
            spec, names = spec_of(cpu, only), [f"p{serial + number}" for number in range(amount)]
            serial += amount
            annotations = {"use": " ".join(uses)}
            infos = [kept.pod(name, spec, annotations=annotations) for name in names]
            outcomes: list[Outcome] = []
            done = 0
            while done < amount:
                done += kept.engine.place(infos[done:], outcomes)
            for name, info, outcome in zip(names, infos, outcomes, strict=True):
                anew.engine.forget_evaluations()
                assert outcome == anew.engine.place_one(anew.pod(name, spec, annotations=annotations))
                if isinstance(outcome, Placed):
                    placed.append(info.uid)
        elif what == "look":
            uses, cpu, only = pods[which % len(pods)]
            anew.engine.forget_evaluations()
            assert _keys(kept, uses, spec_of(cpu, only)) == _keys(anew, uses, spec_of(cpu, only))
        for bed in (kept, anew):
            if what == "forget" and placed:
                bed.engine.forget(placed[which % len(placed)])
            elif what == "node":
                bed.node(f"n{which}", cpu=1000 * amount)
            elif what == "gone":
                bed.engine.remove_node(f"n{which}")
            elif what == "correct":
                bed.cluster.correct(f"n{which}", "cpu", 0) if amount else bed.cluster.uncorrect(f"n{which}")
            elif what == "mood":
                moody = next(p for p in bed.engine.plugins if isinstance(p, Moody))
                moody.parity = (None, 0, 1)[which]
                moody.epoch += 1
            elif what == "broken":
                flaky = next(p for p in bed.engine.plugins if isinstance(p, Flaky))
                flaky.broken = not flaky.broken
                flaky.version += 1
            elif what == "nothing":
                next(p for p in bed.engine.plugins if isinstance(p, Skew)).version += 1
        if what == "forget" and placed:
            placed.pop(which % len(placed))
    assert kept.cluster.usage.tobytes() == anew.cluster.usage.tobytes()
    assert not kept.engine.errors


def place(bed: Bed, name: str, use: str, cpu: str = "100m") -> Outcome:
    return bed.engine.place_one(bed.pod(name, requests(cpu), annotations={"use": use}))


def bed_of(size: int) -> Bed:
    bed = Bed(extra=planted())
    for number in range(size):
        bed.node(f"n{number}")
    return bed


def test_a_refused_reserve_tries_the_next_row_and_is_explained() -> None:
    bed = bed_of(2)
    keys = next(plugin for plugin in bed.engine.plugins if isinstance(plugin, Keys))
    outcomes = [place(bed, f"p{number}", "Keys:2") for number in range(4)]
    assert sorted((o.node, o.annotations["key"]) for o in outcomes if isinstance(o, Placed)) == [
        ("n0", "0"),
        ("n0", "1"),
        ("n1", "0"),
        ("n1", "1"),
    ]
    refused = place(bed, "q", "Keys:2")
    assert isinstance(refused, Diagnosis)
    assert refused.message == "0/2 nodes are available: 2 node(s) had no key."
    assert refused.plugins == {"Keys"} and refused.feasible == 0
    # A planned pod gives its key back, one that was seen bound does not.
    assert bed.engine.forget("uid-default-p0") and keys.taken_back == 1
    assert isinstance(place(bed, "r", "Keys:2"), Placed)
    assert bed.engine.confirm("uid-default-p1") and not bed.engine.forget("uid-default-p1")
    assert keys.taken_back == 1


@pytest.mark.parametrize(("use", "more"), [("Lots", 1), ("Lockers:3", 0), ("Lots Lockers:3", 1), ("Lots Slots", 1)])
def test_equal_pods_that_are_given_things_are_placed_together(use: str, more: int) -> None:
    together, singly = bed_of(3), bed_of(3)
    pods = [together.pod(f"p{number}", requests("100m"), annotations={"use": use}) for number in range(14)]
    outcomes: list[Outcome] = []
    assert together.engine.place(pods, outcomes) == 14
    assert outcomes == [place(singly, f"p{number}", use) for number in range(14)]
    given_ = [outcome for outcome in outcomes if isinstance(outcome, Placed)]
    assert len(given_) == 9
    assert all(len(outcome.annotations) and len(outcome.slots) == more for outcome in given_)
    for bed in (together, singly):
        assert all(bed.engine.forget(pod.uid) for pod in pods[::2] if bed.engine.assumed(pod.uid))
    again = [together.pod(f"q{number}", requests("100m"), annotations={"use": use}) for number in range(14)]
    outcomes = []
    assert together.engine.place(again, outcomes) == 14
    assert outcomes == [place(singly, f"q{number}", use) for number in range(14)]
    assert together.cluster.usage.tobytes() == singly.cluster.usage.tobytes()
    assert not together.engine.errors


def test_preferred_nodes_come_first_whatever_the_scores() -> None:
    bed = bed_of(4)
    nodes = [o.node for n in range(10) if isinstance(o := place(bed, f"p{n}", "Favourite:3", "500m"), Placed)]
    assert nodes[:8] == ["n3"] * 8 and nodes[8:] == ["n1"] * 2


def test_equal_pods_with_a_column_are_looked_ahead() -> None:
    bed = bed_of(3)
    infos = [bed.pod(f"p{number}", requests("100m"), annotations={"use": "Slots"}) for number in range(30)]
    outcomes: list[Outcome] = []
    assert bed.engine.place(infos, outcomes) == 30
    slots = next(plugin for plugin in bed.engine.plugins if type(plugin) is Slots)
    assert sum(isinstance(outcome, Placed) for outcome in outcomes) == 21
    assert slots.used.data[:3].tolist() == [7.0, 7.0, 7.0]
    assert bed.engine.evaluation(infos[0].class_).full_passes == 1
