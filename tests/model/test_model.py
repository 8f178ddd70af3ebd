"""The state machine: what it may do to the actors and to their world. What must hold is in ``judging`` and ``checks``.

``KOORD_MODEL_EXAMPLES=n`` makes n runs that are new each time, ``KOORD_MODEL_SHRINK=1`` makes a failing one small.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from koord.kube.resources import JOBS, NODES, PODS, QUEUE_UNITS
from koord.localcluster.servers import RedisServer
from tests.model.objects import GANG_MINIMUM, GANG_MODE, GANG_NAME, NAMESPACE, PRIORITY, QUOTA, QUOTA_NAME, live
from tests.model.play import ROLES, STILL_ROUNDS, Play
from tests.model.seams import stepped
from tests.model.stepping import SteppedLoop, owned

QUOTA_CPU = 9
PODS_AT_ONCE = 11
UNITS_AT_ONCE = 3
JOBS_AT_ONCE = 2
NODES_AT_ONCE = 3

MUST_HAPPEN = (
    "claim ok", "claim conflict", "claim busy", "offered", "Binding done", "eviction done",
    "copy handed out", "a Job is let go", "a unit is admitted", "the ledger is opened again",
)  # fmt: skip
"""Else the runs would show nothing of it."""
RUNS = os.environ.get("KOORD_MODEL_EXAMPLES", "")

picks = st.integers(0, 1_000_000)
ways = st.lists(picks, max_size=10)
"""What happens before something is done to the run, so that it is done while everybody is at something."""
scenes = st.lists(st.sampled_from(["pods", "gang", "job", "unit"]), min_size=1, max_size=3)
rooms = st.sampled_from(["free", "full", "held"])
MATTERS = ("/binding", "held up: ", "held up: ", "slow: ", "late: ", "copy", "claim_v1", "_v1 is ans")
roles = st.sampled_from(ROLES)


class Machine(RuleBasedStateMachine):
    """Each rule leaves everybody standing still."""

    server: RedisServer
    happened: ClassVar[Counter[str]] = Counter()
    """What there was of each kind, in all runs."""
    failures: ClassVar[list[int]] = []
    """The numbers of the runs that failed."""
    tell: Callable[[str], None] = staticmethod(note)

    def __init__(self) -> None:
        super().__init__()
        self.loop = SteppedLoop()
        self.loop.set_task_factory(owned)
        self._seams = ExitStack()
        self.wrong: list[str] = []
        self._seams.enter_context(stepped(self.loop, self.wrong.append))
        self.play = Play(self.loop, self.server, QUOTA_CPU, self.tell, self.wrong)
        self.play.raw.flushall()
        self.api = self.play.api
        self.cluster = self.play.cluster
        self.happened["run"] += 1
        self.started = self.failed = self.saved = False

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            return self.loop.run_until_complete(work)
        except BaseException:
            self.failed = True
            raise

    @initialize(scene=scenes, room=rooms, rivals=st.booleans(), rounds=st.integers(0, 8))
    def begin(self, scene: list[str], room: str, rivals: bool, rounds: int) -> None:
        """A run begins with some work, with room or without, with one scheduler or two that share nothing."""
        self.start()
        if room != "free":
            self.pods_come(2, 6 if room == "full" else 5, 0, quota=False)
            self.do(self._all_go_on(6, 0))
        if room == "held":
            self.a_gang_comes(3, "NonStrict", 0, 0)
            self.do(self._all_go_on(3, 0))
        if rivals:
            self.do(self.play.start_anew("scheduler", 0))
        for what in scene:
            if what == "pods":
                self.pods_come(1, 2, PRIORITY, quota=True)
            elif what == "gang":
                self.a_gang_comes(2, "Strict", 0, PRIORITY)
            elif what == "unit":
                self.do(self.cluster.unit(3))
            else:
                self.do(self.cluster.job(3, suspended=True))
        self.do(self._all_go_on(rounds, 0))

    def start(self) -> None:
        """Nothing to do, and everybody is there."""
        self.do(self._start())
        self.started = True

    async def _start(self) -> None:
        for _ in range(NODES_AT_ONCE):
            await self.cluster.node()
        await self.cluster.priority_class()
        await self.cluster.budget()
        await self.cluster.quota(QUOTA_CPU)
        await self.play.start()
        await self.play.calm(self.play.closed)

    def teardown(self) -> None:
        try:
            if self.started and not self.failed:
                self.do(self._end())
        finally:
            if self.failed:
                self.failures.append(self.happened["run"])
            self.happened.update(self.play.happened)
            self.do(self.play.close())
            self.loop.close()
            self._seams.close()

    async def _end(self) -> None:
        """Everything is delivered and everybody runs: nothing is stuck, and a rebuild changes nothing."""
        play = self.play
        self.tell("--- nothing goes wrong any more")
        await self.cluster.loose_gangs_end()
        for role in ("scheduler", "gateway", "queue", "quota", "preemptor"):
            if not play.lives(role)[-1].actor.alive:
                await play.start_anew(role, 0)
        for actor in [one.actor for role in ("reconciler", "queue", "quota") for one in play.lives(role)[:-1]]:
            if actor.alive:
                await actor.die()
        for keeper in (play.queues[-1], play.quotas[-1]):
            keeper.loses_its_lease()  # an older life may have led after it
        if play.reconcilers[-1].actor.alive:
            await play.reconcilers[-1].actor.die()
        await play.start_anew("reconciler", 0, strict_audit=True)
        await play.calm(play.restless, rounds=STILL_ROUNDS)
        before = await play.amounts()
        self.tell("--- a rebuild at rest")
        play.raw.flushall()
        await play.calm(play.restless, rounds=STILL_ROUNDS)
        after = await play.amounts()
        pairs = {name: (before.get(name), after.get(name)) for name in before.keys() | after.keys()}
        changed = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
        assert not changed, f"a rebuild at rest changed items: {changed}"

    # What users and the cluster do ----------------------------------------------------------------------------------

    def _pods(self, *, bound: bool | None = None) -> list[dict[str, Any]]:
        return [
            pod
            for pod in self.api.objects(PODS).values()
            if live(pod) and bound in (None, bool(pod["spec"].get("nodeName")))
        ]

    @rule(way=ways, data=st.data(), what=st.sampled_from(["pods", "pods", "gang", "unit", "job"]))
    def something_comes(self, way: list[int], data: st.DataObject, what: str) -> None:
        self.do(self._go_on(way))
        if what == "pods":
            priority = data.draw(st.sampled_from([0, 0, 10]))
            cpu, quota, count = data.draw(st.integers(1, 2)), data.draw(st.booleans()), data.draw(st.integers(1, 3))
            self.pods_come(cpu, count, priority, quota=quota)
        elif what == "gang":
            mode = data.draw(st.sampled_from(["Strict", "Strict", "NonStrict"]))
            priority = data.draw(st.sampled_from([0, 0, 10]))
            self.a_gang_comes(data.draw(st.integers(2, 3)), mode, data.draw(st.integers(-1, 1)), priority)
        elif what == "unit":
            if len(self.api.objects(QUEUE_UNITS)) < UNITS_AT_ONCE:
                self.do(self.cluster.unit(data.draw(st.integers(1, 5))))
        elif len(self.api.objects(JOBS)) < JOBS_AT_ONCE:
            suspended = data.draw(st.sampled_from([True, True, True, False]))
            self.do(self.cluster.job(data.draw(st.integers(1, 4)), suspended=suspended))

    def pods_come(self, cpu: int, count: int, priority: int, *, quota: bool) -> None:
        for _ in range(min(count, PODS_AT_ONCE - len(self._pods()))):
            self.do(self.cluster.pod(cpu, {QUOTA_NAME: QUOTA} if quota else {}, {}, priority=priority))

    def a_gang_comes(self, size: int, mode: str, more: int, priority: int) -> None:
        name = f"g{next(self.cluster.names)}"
        annotations = {GANG_NAME: name, GANG_MINIMUM: str(size), GANG_MODE: mode}
        if len(self._pods()) + size + more <= PODS_AT_ONCE:
            for _ in range(size + more):
                self.do(self.cluster.pod(1, {}, annotations, priority=priority))

    @rule(
        way=ways,
        pick=picks,
        how=st.sampled_from(
            [
                "pod goes", "pod ends", "pod ends", "bound by others", "unit goes", "unit is switched",
                "job goes", "job is switched",
                "node goes", "node shrinks", "node comes", "quota",
            ]
        ),
    )  # fmt: skip
    def something_changes(self, way: list[int], pick: int, how: str) -> None:
        self.do(self._go_on(way))
        if how in ("pod goes", "pod ends", "bound by others"):
            self.a_pod_changes(pick, how)
        elif how.startswith(("unit", "job")):
            self.work_changes(pick, how)
        else:
            self.the_room_changes(pick, how)

    def a_pod_changes(self, pick: int, how: str) -> None:
        found = self._pods(bound={"pod goes": None, "pod ends": True, "bound by others": False}[how])
        if not found:
            return
        pod = found[pick % len(found)]
        name = pod["metadata"]["name"]
        if how == "pod goes":
            self.do(self.cluster.deleted(pod, PODS.path(NAMESPACE, name)))
        elif how == "pod ends":
            self.do(self.cluster.ended(name))
        elif nodes := sorted(self.api.objects(NODES)):
            self.do(self.cluster.bound_by_others(name, nodes[pick // 7 % len(nodes)]))

    def work_changes(self, pick: int, how: str) -> None:
        resource = QUEUE_UNITS if how.startswith("unit") else JOBS
        found = list(self.api.objects(resource).values())
        if not found:
            return
        one = found[pick % len(found)]
        name = one["metadata"]["name"]
        if how == "job is switched":
            self.do(self.cluster.switched(name, suspended=not one["spec"].get("suspend")))
        elif how == "unit is switched":
            self.do(self.cluster.unit_switched(name, active=one["spec"].get("active") is False))
        else:
            self.do(self.cluster.deleted(one, resource.path(NAMESPACE, name)))

    def the_room_changes(self, pick: int, how: str) -> None:
        nodes = sorted(self.api.objects(NODES))
        if how == "quota":
            self.do(self.cluster.quota_changes(2 + pick % QUOTA_CPU))
        elif how == "node comes":
            if len(nodes) < NODES_AT_ONCE:
                self.do(self.cluster.node())
        elif nodes:
            node = nodes[pick % len(nodes)]
            if how == "node goes":
                self.do(self.cluster.deleted({}, NODES.path("", node)))
            else:
                self.play.judge.shrunk.add(node)
                self.do(self.cluster.node_shrinks(node))

    # Going on, and going wrong --------------------------------------------------------------------------------------

    @rule(rounds=st.integers(1, 3), turned=picks)
    def all_go_on(self, rounds: int, turned: int) -> None:
        """Everything that may happen does, each once: else most runs would end before anything was bound."""
        self.do(self._all_go_on(rounds, turned))

    async def _all_go_on(self, rounds: int, turned: int) -> None:
        for _ in range(rounds):
            moves = self.play.moves.all()
            first = turned % max(1, len(moves))
            for move in (*moves[first:], *moves[:first]):
                await self.play.make(move)

    @rule(order=st.lists(picks, min_size=1, max_size=14))
    def go_on(self, order: list[int]) -> None:
        self.do(self._go_on(order))

    async def _go_on(self, order: list[int]) -> None:
        for pick in order:
            if moves := self.play.moves.all():
                await self.play.make(moves[pick % len(moves)])

    @rule(role=roles, most=st.integers(1, 12))
    def one_goes_on(self, role: str, most: int) -> None:
        """Far enough for what needs many steps of one actor."""
        self.do(self.play.one_goes_on(role, most))

    @rule(
        way=ways, pick=picks, what=st.sampled_from(["/binding", "/binding", "late: ", "copy", "claim_v1", "_v1 is ans"])
    )
    def what_matters_goes_wrong(self, way: list[int], pick: int, what: str) -> None:
        """Faults of one kind that matters, among the many that could be."""
        self.do(self._go_on(way))
        if faults := [move for move in self.play.faults.all() if what in move.label]:
            self.do(self.play.make(faults[pick % len(faults)]))

    @rule(way=ways, pick=picks)
    def something_goes_wrong(self, way: list[int], pick: int) -> None:
        self.do(self._go_on(way))
        if faults := self.play.faults.all():
            self.do(self.play.make(faults[pick % len(faults)]))

    @rule(seconds=st.sampled_from([0.1, 1.0, 10.0, 70.0]))
    def time_passes(self, seconds: float) -> None:
        self.do(self.play.time_passes(seconds))

    @rule(way=ways, role=roles, pick=picks, late=st.integers(0, 4), killed=st.booleans())
    def another_life(self, way: list[int], role: str, pick: int, late: int, killed: bool) -> None:
        """One dies and starts anew; or a second one leads while the first does not know that it is over."""
        self.do(self._go_on(way))
        living = [one for one in self.play.lives(role) if one.actor.alive]
        if living and (killed or len(living) > 1):
            actor = living[pick % len(living)].actor
            self.tell(f"{actor.name} dies")
            self.do(actor.die())
        self.do(self.play.start_anew(role, late))

    @rule(way=ways, what=st.sampled_from(["decisions", "state", "save", "flush", "restart", "lease"]))
    def a_store_is_lost(self, way: list[int], what: str) -> None:
        self.do(self._go_on(way))
        self.tell(f"lost: {what}")
        if what == "decisions":
            self.play.around.network.decisions.lose_all()
        elif what == "state":
            self.api.lose_state()
        elif what == "lease":
            self.do(self.cluster.lease_deleted())
        elif what == "save":
            self.saved = self.saved or bool(self.play.raw.save())
        elif what == "flush":
            self.play.raw.flushall()
        elif self.saved:
            self.saved = False  # once in a run: it takes a while
            self.play.restart_redis()


def run_machine(failed: list[int]) -> Counter[str]:
    """All runs on a server of their own; what happened in them. ``failed``: the numbers of the runs that did."""
    server = RedisServer()
    plain = asyncio.new_event_loop()
    plain.run_until_complete(server.start())
    happened: Counter[str] = Counter()
    try:
        run_state_machine_as_test(
            type("Bound", (Machine,), {"server": server, "happened": happened, "failures": failed}),
            settings=settings(
                max_examples=int(RUNS or "55"),
                stateful_step_count=40,
                derandomize=not RUNS,
                database=None,
                deadline=None,
                report_multiple_bugs=False,
                phases=[Phase.generate, *([Phase.shrink] if "KOORD_MODEL_SHRINK" in os.environ else [])],
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        plain.run_until_complete(server.stop())
        plain.close()
    return happened


@pytest.mark.timeout(0 if RUNS else 300)
def test_nothing_is_lost_done_twice_or_stuck() -> None:
    happened = run_machine([])
    print(dict(sorted(happened.items())))
    assert not (missing := [what for what in MUST_HAPPEN if not happened[what]]), f"it never came to {missing}"
