"""Random plans: a batch places exactly what pods that name their nodes would find one by one, or nothing at all."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from koord.scheduler.engine.placement import Placed
from koord.scheduler.framework.contract import JobPlan
from koord.scheduler.jobs.asking import Asked, Undesignated
from koord.scheduler.jobs.batch import InlineBatch
from tests.scheduler.clusters import Bed, requests
from tests.scheduler.jobs.planners import JOB, Jobs

NODES = ("n0", "n1", "n2", "gone")
PODS = st.lists(st.tuples(st.integers(1, 3), st.sampled_from(NODES), st.booleans()), min_size=1, max_size=8)


@settings(max_examples=150, deadline=None)
@given(PODS, st.lists(st.sampled_from(NODES[:3]), max_size=4), st.booleans())
def test_all_or_nothing_and_nothing_but_what_one_by_one_would_do(
    pods: list[tuple[int, str, bool]], there: list[str], slices: bool
) -> None:
    plugin = Jobs()
    bed = Bed(extra=(plugin,))
    for name in NODES[:3]:
        bed.node(name, cpu=5000)
    for number, name in enumerate(there):
        bed.engine.assume(bed.pod(f"there{number}", requests("1")), name)
    tolerant: dict[str, Any] = {"tolerations": [{"operator": "Exists"}]}
    made = [
        bed.pod(f"p{number}", requests(str(cpu), **(tolerant if odd else {})), labels={JOB: "a"})
        for number, (cpu, _, odd) in enumerate(pods)
    ]
    plan = JobPlan({pod.uid: node for pod, (_, node, _) in zip(made, pods, strict=True)})
    before = bed.cluster.usage.copy()
    waiting = {pod.uid: pod for pod in made}
    book = bed.coscheduling.book
    batch = InlineBatch(bed.engine, book, Asked(plugin, plan), made[0], waiting, lambda pod: None, Undesignated())
    while not batch.step(0.0 if slices else float("inf")):
        slices = False

    room = {name: 5 - there.count(name) for name in NODES[:3]}
    fits = all(
        sum(cpu for cpu, at, _ in pods if at == node) <= room.get(node, 0) for node in {node for _, node, _ in pods}
    )
    assert (batch.failure is None) == fits
    if fits:
        assert {pod.uid: placed.node for pod, placed in batch.placed} == dict(plan.nodes)
        for pod, _ in batch.placed:
            assert bed.engine.forget(pod.uid)
    assert (bed.cluster.usage == before).all()
    assert isinstance(bed.engine.place_one(bed.pod("after", requests("1"))), Placed) == any(room.values())
