"""What the engine makes of advice: it takes rows away and adds to scores, and changes nothing else."""

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from koord.scheduler.engine.advice import ASKER, Advice
from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.placement import Outcome, Placed
from tests.scheduler.clusters import Bed

NODES = tuple(f"n{number}" for number in range(6))
HINT = "internal.scheduling.koordinator.sh/scheduling-hint"


def bed(cpus: Sequence[int]) -> Bed:
    made = Bed()
    for name, cpu in zip(NODES, cpus, strict=True):
        made.node(name, cpu=cpu)
    return made


def spec(cpu: int) -> Mapping[str, object]:
    return {"containers": [{"name": "c", "resources": {"requests": {"cpu": f"{cpu}m", "memory": "1Gi"}}}]}


def place(made: Bed, advice: Sequence[Advice | None], cpu: int) -> list[Outcome]:
    pods = [made.pod(f"p{number}", spec(cpu)) for number in range(len(advice))]
    made.engine.advice = {pod.uid: one for pod, one in zip(pods, advice, strict=True) if one is not None}
    outcomes: list[Outcome] = []
    while len(outcomes) < len(pods):
        made.engine.place(pods[len(outcomes) :], outcomes)
    return outcomes


_cpus = st.lists(st.integers(100, 4000), min_size=6, max_size=6)
_scores = st.integers(-(1 << 70), 1 << 70) | st.integers(-100, 100)


@given(_cpus, st.integers(50, 1500), st.lists(st.booleans(), min_size=1, max_size=12))
def test_advice_that_allows_everything_changes_nothing(cpus: list[int], cpu: int, asked: list[bool]) -> None:
    free = Advice(frozenset(NODES), dict.fromkeys(NODES, 0))
    plain = place(bed(cpus), [None] * len(asked), cpu)
    assert place(bed(cpus), [free if each else None for each in asked], cpu) == plain


@given(_cpus, st.integers(50, 1500), st.dictionaries(st.sampled_from(NODES), _scores), st.sets(st.sampled_from(NODES)))
def test_the_best_of_what_is_allowed_is_chosen(
    cpus: list[int], cpu: int, passed: dict[str, int], more: set[str]
) -> None:
    shown = frozenset(passed) | more
    refused = dict.fromkeys(shown - passed.keys(), ("no", True))
    made = bed(cpus)
    totals: dict[str, int] = {}
    for name in NODES:  # what each node scores by itself
        outcome = made.engine.place_one(made.pod("probe", spec(cpu)))
        if isinstance(outcome, Placed):
            made.engine.forget("uid-default-probe")
        lone = Advice(frozenset((name,)), {name: 0})
        [outcome] = place(made, [lone], cpu)
        if isinstance(outcome, Placed):
            totals[name] = outcome.score
            made.engine.forget("uid-default-p0")
    [found] = place(made, [Advice(shown, passed, refused)], cpu)
    allowed = {name: totals[name] + max(-(1 << 60), min(1 << 60, passed[name])) for name in totals if name in passed}
    if allowed:
        assert isinstance(found, Placed)
        assert allowed[found.node] == found.score == max(allowed.values())
        return
    assert isinstance(found, Diagnosis)
    assert found.again == bool(totals.keys() - shown)
    assert (ASKER in found.plugins) == bool(totals)
    short = len(NODES) - len(totals)
    said = {reason.reason: reason.nodes for reason in found.reasons}
    assert said.get("Insufficient cpu", 0) == short
    assert said.get("no", 0) == len(totals.keys() & shown)
    assert found.feasible == 0


def test_an_error_is_told_and_nothing_is_placed() -> None:
    made = bed([4000] * 6)
    [found] = place(made, [Advice(frozenset(), {}, error="extender http://x: away")], 100)
    assert isinstance(found, Diagnosis)
    assert (found.message, found.error, found.plugins) == ("extender http://x: away", True, frozenset((ASKER,)))
    assert made.engine.assumed_count == 0


def test_preferred_nodes_are_chosen_only_where_they_are_allowed() -> None:
    made = bed([4000] * 6)
    pod = made.pod("p", spec(100), annotations={HINT: '{"preferredNodeNames": ["n4", "n1"]}'})
    made.engine.advice = {pod.uid: Advice(frozenset(NODES), {"n1": 0, "n2": 100})}
    found = made.engine.place_one(pod)
    assert isinstance(found, Placed)
    assert found.node == "n1"
