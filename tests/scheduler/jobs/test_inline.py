"""Which units of the queue have a part in a plan, and what becomes of them."""

from typing import Any

from koord.scheduler.claiming import Planned
from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.placement import PodInfo
from koord.scheduler.framework.contract import JobPlan
from koord.scheduler.jobs.asking import Asked
from koord.scheduler.jobs.inline import InlineJobs
from koord.scheduler.queueing.queue import Unit
from tests.scheduler.jobs.planners import Jobs
from tests.scheduler.worldstory import Story, shown


class Jobbing:
    """Pods p0 to p3 of one job on two nodes of 4 cpus; p0 is what is tried."""

    def __init__(self) -> None:
        self.story = Story()
        for name in ("n0", "n1"):
            self.story.node(name, 4)
        self.views = {f"p{n}": shown(self.story, meta={"name": f"p{n}", "uid": f"u{n}"}) for n in range(4)}
        self.inline = InlineJobs(self.story.bed.engine, self.story.queue, self.story.world)
        [self.unit] = self.story.queue.pop(1, 0.0)
        assert self.unit.key == "u0"

    async def place(self, **nodes: str) -> Any:
        plan = JobPlan({name.replace("p", "u"): node for name, node in nodes.items()})
        trigger: PodInfo = self.story.world.pending["u0"]
        self.inline.begin()
        return await self.inline.place(self.unit, trigger, Asked(Jobs(), plan))

    def state(self, number: int) -> str:
        return self.story.queue.units[f"u{number}"].state


def keys(units: "tuple[Unit, ...] | list[Unit]") -> list[str]:
    return sorted(unit.key for unit in units)


async def test_those_who_are_placed_with_it_are_in_flight() -> None:
    jobs = Jobbing()
    made = await jobs.place(p0="n0", p1="n1", p2="n1")
    assert isinstance(made, Planned)
    assert (keys(made.units), made.job) == (["u0", "u1", "u2"], True)
    assert [jobs.state(number) for number in range(4)] == ["inflight", "inflight", "inflight", "active"]
    assert jobs.inline.seized == {"u1", "u2"}
    assert keys(jobs.story.queue.pop(10, 0.0)) == ["u3"], "nobody tries them besides"


async def test_who_went_has_no_part() -> None:
    jobs = Jobbing()
    jobs.story.world.apply_pod(jobs.views["p1"], None, 0.0)
    made = await jobs.place(p0="n0", p1="n1", p2="n1", p9="n0")
    assert isinstance(made, Planned)
    assert keys(made.units) == ["u0", "u2"]


async def test_if_it_fails_those_who_are_due_are_refused_with_it() -> None:
    jobs = Jobbing()
    queue = jobs.story.queue
    queue.seize(queue.units["u2"], 0.0)
    queue.reject(queue.units["u2"], ["NodeName"], 0.0, "before")
    units, failure = await jobs.place(p0="n0", p1="gone", p2="n1")
    assert isinstance(failure, Diagnosis)
    assert keys(units) == ["u0", "u1"], "who waits for an event waits on"
    assert [jobs.state(number) for number in range(4)] == ["inflight", "inflight", "unschedulable", "active"]
    assert not jobs.story.bed.engine.assumed_count


async def test_who_is_gated_or_to_be_asked_about_outside_holds_the_job_up() -> None:
    jobs = Jobbing()
    jobs.story.queue.gate(jobs.story.queue.units["u1"])
    _, failure = await jobs.place(p0="n0", p1="n1")
    assert failure.message == "batch schedule plan names pod d/p1, which is held back: it waits at its gates"
    jobs.inline.outside = lambda pod: pod.ref.name == "p2"
    _, failure = await jobs.place(p0="n0", p2="n1")
    assert failure.message == (
        "batch schedule plan names pod d/p2, which is held back: an extender has to be asked about it first"
    )


async def test_nothing_left_to_do() -> None:
    jobs = Jobbing()
    jobs.story.world.apply_pod(jobs.views["p0"], None, 0.0)
    asked = Asked(Jobs(), JobPlan({"u0": "n0"}))
    trigger = jobs.story.bed.pod("p0")
    assert await jobs.inline.place(jobs.unit, trigger, asked) is None
    assert "u0" not in jobs.story.queue.units
