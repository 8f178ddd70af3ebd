"""Equal pods that are given things, in a run: what is refused or fails in its middle, quotas that judge each pod."""

from typing import ClassVar

import pytest

from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.placement import Outcome, Placed
from koord.scheduler.framework.contract import Allocation, PodRef, Terms
from koord.scheduler.plugins.elasticquota import ElasticQuota
from tests.scheduler.clusters import Bed, requests
from tests.scheduler.planted import Lockers, planted
from tests.scheduler.test_quota import PREFIX, quota


class Jammed(Lockers):
    """Raises for the pods of these uids."""

    name: ClassVar[str] = "Jammed"
    jammed: frozenset[str] = frozenset()

    def reserve(self, pod: PodRef, terms: Terms, row: int) -> Allocation | str:
        if pod.uid in self.jammed:
            raise RuntimeError("jammed")
        return super().reserve(pod, terms, row)


def beds(nodes: int) -> tuple[Bed, Bed]:
    made = Bed(extra=[*planted(), Jammed()]), Bed(extra=[*planted(), Jammed()])
    for bed in made:
        for number in range(nodes):
            bed.node(f"n{number}")
        next(plugin for plugin in bed.engine.plugins if isinstance(plugin, ElasticQuota)).set_quota(
            quota("team", {"cpu": "1"})
        )
    return made


def place_both(together: Bed, singly: Bed, first: int, many: int, use: str) -> list[Outcome]:
    """The outcomes of a run, which are those of the pods one by one."""
    labels, annotations = {PREFIX + "name": "team"}, {"use": use}
    outcomes: list[Outcome] = []
    names = [f"p{first + number}" for number in range(many)]
    pods = [together.pod(name, requests("100m"), labels=labels, annotations=annotations) for name in names]
    while len(outcomes) < many:
        together.engine.place(pods[len(outcomes) :], outcomes)
    one_by_one = [
        singly.engine.place_one(singly.pod(name, requests("100m"), labels=labels, annotations=annotations))
        for name in names
    ]
    assert outcomes == one_by_one
    return outcomes


def test_ports_of_the_node_are_given_in_a_run() -> None:
    together, singly = beds(5)
    spec = requests("100m")
    spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    for first in (0, 7):
        names = [f"p{first + number}" for number in range(7)]
        outcomes: list[Outcome] = []
        assert together.engine.place([together.pod(name, spec) for name in names], outcomes) == 7
        assert outcomes == [singly.engine.place_one(singly.pod(name, spec)) for name in names]
        placed = {outcome.node: outcome.slots for outcome in outcomes if isinstance(outcome, Placed)}
        assert len(placed) == 5 and all(placed[node] == (f"port/{node}/TCP/80",) for node in placed)
        for name in names:
            assert together.engine.forget(f"uid-default-{name}") == singly.engine.forget(f"uid-default-{name}")
    agree(together, singly)


def agree(together: Bed, singly: Bed) -> None:
    assert together.cluster.usage.tobytes() == singly.cluster.usage.tobytes()
    books = [
        next(plugin for plugin in bed.engine.plugins if isinstance(plugin, ElasticQuota)) for bed in (together, singly)
    ]
    assert books[0].used("team") == books[1].used("team")
    assert not together.engine.errors


@pytest.mark.parametrize("keys", [1, 2, 3])
def test_the_quota_of_pods_that_got_nothing_in_a_run_is_free_again(keys: int) -> None:
    """Three nodes have ``keys`` each, of which the filters know nothing; the quota has room for ten pods."""
    together, singly = beds(3)
    outcomes = place_both(together, singly, 0, 12, f"Lockers:{keys}")
    assert sum(isinstance(outcome, Placed) for outcome in outcomes) == 3 * keys
    assert all("no key" in outcome.message for outcome in outcomes if isinstance(outcome, Diagnosis))
    agree(together, singly)
    rest = place_both(together, singly, 12, 12, "")
    assert sum(isinstance(outcome, Placed) for outcome in rest) == 10 - 3 * keys
    agree(together, singly)


def test_the_quota_ends_a_run_of_pods_that_are_given_things() -> None:
    together, singly = beds(3)
    outcomes = place_both(together, singly, 0, 14, "Lockers:9")
    assert [isinstance(outcome, Placed) for outcome in outcomes] == [True] * 10 + [False] * 4
    assert isinstance(outcomes[-1], Diagnosis) and outcomes[-1].plugins == {"ElasticQuota"}
    agree(together, singly)


def test_a_plugin_that_raises_in_a_run_stops_its_pods_alone() -> None:
    together, singly = beds(3)
    for bed in (together, singly):
        jammed = next(plugin for plugin in bed.engine.plugins if isinstance(plugin, Jammed))
        jammed.jammed = frozenset(("uid-default-p3", "uid-default-p4", "uid-default-p8"))
    outcomes = place_both(together, singly, 0, 9, "Jammed:9 Lockers:9")
    failed = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, Diagnosis)]
    assert failed == [3, 4, 8]
    for number in failed:
        outcome = outcomes[number]
        assert isinstance(outcome, Diagnosis) and outcome.error
        assert outcome.message == 'running "Jammed" Reserve plugin: RuntimeError: jammed'
    agree(together, singly)
