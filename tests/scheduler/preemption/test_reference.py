"""The search against a plain one, node by node and pod by pod, on random clusters."""

from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from koord.scheduler.engine.placement import Outcome, Placed
from koord.scheduler.preemption.candidates import Candidate, cost
from tests.scheduler.preemption.beds import Crowd


class Running(NamedTuple):
    """A pod on a node."""

    name: str
    priority: int
    cpu: int
    port: int
    started: int
    app: str


class Scene(NamedTuple):
    """A cluster (cpu and pods by node), what is left of each app's budget, and the preemptor."""

    nodes: list[tuple[int, list[Running]]]
    budgets: dict[str, int]
    priority: int
    cpu: int
    port: int
    waiting: list[tuple[int, int, int]]


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    nodes = []
    for node in range(draw(st.integers(1, 5))):
        pods = [
            Running(
                f"r{node}-{index}",
                draw(st.integers(-1, 4)),
                draw(st.integers(0, 3)),
                draw(st.sampled_from([0, 0, 80, 81])),
                draw(st.integers(0, 3)) * 100,
                draw(st.sampled_from(["", "x", "y"])),
            )
            for index in range(draw(st.integers(0, 5)))
        ]
        nodes.append((draw(st.integers(1, 8)), pods))
    return Scene(
        nodes,
        {app: draw(st.integers(0, 2)) for app in draw(st.sets(st.sampled_from(["x", "y"])))},
        draw(st.integers(0, 5)),
        draw(st.integers(1, 6)),
        draw(st.sampled_from([0, 0, 80])),
        draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6), st.integers(1, 3)), max_size=2)),
    )


def fits(scene: Scene, node: int, pods: Sequence[Running]) -> bool:
    """Whether the preemptor has room beside ``pods`` and those who wait for the node, or who do not bother it."""
    capacity, _ = scene.nodes[node]
    waiting = sum(cpu for at, priority, cpu in scene.waiting if at == node and priority >= scene.priority)
    taken = sum(pod.cpu for pod in pods) + waiting
    free_port = not scene.port or all(pod.port != scene.port for pod in pods)
    return taken + scene.cpu <= capacity and free_port


def plain(scene: Scene, node: int) -> tuple[list[str], int] | None:
    """Victims on one node and how many of them break a budget; None: it is no candidate."""
    _, pods = scene.nodes[node]
    stay = [pod for pod in pods if pod.priority >= scene.priority]
    lower = sorted(
        (pod for pod in pods if pod.priority < scene.priority),
        key=lambda pod: (-pod.priority, pod.started or 1_000_000, pod.name),
    )
    if not lower or not fits(scene, node, stay):
        return None
    left = dict(scene.budgets)
    breaking: list[Running] = []
    for pod in lower:
        if pod.app in left:
            left[pod.app] -= 1
            if left[pod.app] < 0:
                breaking.append(pod)
    victims: list[Running] = []
    for pod in [*breaking, *(pod for pod in lower if pod not in breaking)]:
        if fits(scene, node, [*stay, pod]):
            stay.append(pod)
        else:
            victims.append(pod)
    if not victims:
        return None
    names = [pod.name for pod in lower if pod in victims]
    return names, sum(pod in breaking for pod in victims)


def plain_cost(scene: Scene, node: int, names: list[str], breaking: int) -> tuple[int, int, int, int, float]:
    pods = [pod for pod in scene.nodes[node][1] if pod.name in names]
    top = max(pod.priority for pod in pods)
    starts = [float(pod.started or "inf") for pod in pods if pod.priority == top]
    return breaking, top, sum(pod.priority + 2**31 for pod in pods), len(pods), -min(starts)


@settings(max_examples=250, deadline=None)
@given(scenes())
def test_the_search_is_the_plain_one(scene: Scene) -> None:
    crowd = Crowd()
    for node, (cpu, pods) in enumerate(scene.nodes):
        crowd.node(f"n{node}", cpu=cpu * 1000)
        for pod in pods:
            crowd.running(
                pod.name,
                f"n{node}",
                pod.priority,
                cpu=str(pod.cpu),
                ports=[pod.port] if pod.port else (),
                started=pod.started,
                labels={"app": pod.app} if pod.app else None,
            )
    for app, allowed in scene.budgets.items():
        crowd.budget(app, allowed, {"app": app})
    for index, (node, priority, cpu) in enumerate(scene.waiting):
        crowd.nominate(crowd.wanting(f"w{index}", priority, cpu=str(cpu)), f"n{node}")
    preemptor = crowd.wanting("p", scene.priority, cpu=str(scene.cpu), ports=[scene.port] if scene.port else ())
    expected = {
        f"n{node}": one
        for node, (cpu, _) in enumerate(scene.nodes)
        if cpu >= scene.cpu and not fits(scene, node, scene.nodes[node][1])
        if (one := plain(scene, node)) is not None
    }
    before = crowd.cluster.usage.copy()
    found = crowd.search.find(preemptor)
    assert (crowd.cluster.usage == before).all()
    if not expected:
        assert isinstance(found, str)
        return
    assert isinstance(found, Candidate), found
    names, breaking = expected[found.node]
    assert ([pod.ref.name for pod in found.victims], len(found.violating)) == (names, breaking)
    best = min(plain_cost(scene, int(node[1:]), *each) for node, each in expected.items())
    assert cost(found) == best


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(1, 4)), max_size=4),
    st.integers(0, 3),
    st.integers(4, 12),
)
def test_a_run_beside_those_who_wait_is_as_one_by_one(
    nodes: list[int], waiting: list[tuple[int, int, int]], priority: int, count: int
) -> None:
    answers = []
    for together in (True, False):
        crowd = Crowd()
        for node, cpu in enumerate(nodes):
            crowd.node(f"n{node}", cpu=cpu * 1000)
        for index, (node, wanted, cpu) in enumerate(waiting):
            crowd.nominate(crowd.wanting(f"w{index}", wanted, cpu=str(cpu)), f"n{node}")
        pods = [crowd.wanting(f"p{number}", priority) for number in range(count)]
        outcomes: list[Outcome] = []
        if together:
            crowd.engine.place(pods, outcomes)
        else:
            outcomes = [crowd.engine.place_one(pod) for pod in pods]
        answers.append([each.node if isinstance(each, Placed) else each.message for each in outcomes])
    assert answers[0] == answers[1]
