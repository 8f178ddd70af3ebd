"""The state machine: what it may do to the actors and to their world. What must hold is in ``judging`` and ``checks``.

``KOORD_MODEL_EXAMPLES=n`` makes n runs that are new each time, ``KOORD_MODEL_SHRINK=1`` makes a failing one small.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from koord.kube.resources import JOBS, NODES, PODS, QUEUE_UNITS
from koord.localcluster.servers import RedisServer
from tests.model.objects import GANG_MINIMUM, GANG_MODE, GANG_NAME, NAMESPACE, QUOTA, QUOTA_NAME, live
from tests.model.play import ROLES, Play
from tests.model.seams import stepped
from tests.model.stepping import SteppedLoop, owned

QUOTA_CPU = 9
PODS_AT_ONCE = 9
UNITS_AT_ONCE = 3
JOBS_AT_ONCE = 2
NODES_AT_ONCE = 3

RUNS = os.environ.get("KOORD_MODEL_EXAMPLES", "")

picks = st.integers(0, 1_000_000)
roles = st.sampled_from(ROLES)


class Machine(RuleBasedStateMachine):
    """Each rule leaves everybody standing still."""

    server: RedisServer
    tell: Callable[[str], None] = staticmethod(note)

    def __init__(self) -> None:
        super().__init__()
        self.loop = SteppedLoop()
        self.loop.set_task_factory(owned)
        self._seams = ExitStack()
        self._seams.enter_context(stepped(self.loop))
        self.play = Play(self.loop, self.server, QUOTA_CPU, self.tell)
        self.play.raw.flushall()
        self.api = self.play.api
        self.cluster = self.play.cluster
        self.started = self.failed = self.saved = False

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            return self.loop.run_until_complete(work)
        except BaseException:
            self.failed = True
            raise

    @initialize()
    def start(self) -> None:
        self.do(self._start())
        self.started = True

    async def _start(self) -> None:
        for _ in range(NODES_AT_ONCE):
            await self.cluster.node()
        await self.cluster.priority_class()
        await self.cluster.quota(QUOTA_CPU)
        await self.play.start()
        await self.play.calm(self.play.closed)

    def teardown(self) -> None:
        try:
            if self.started and not self.failed:
                self.do(self._end())
        finally:
            self.do(self.play.close())
            self.loop.close()
            self._seams.close()

    async def _end(self) -> None:
        """Everything is delivered and everybody runs: nothing is stuck, and a rebuild changes nothing."""
        play = self.play
        self.tell("--- nothing goes wrong any more")
        for role in ("scheduler", "gateway", "queue", "quota", "preemptor"):
            if not play.lives(role)[-1].actor.alive:
                await play.start_anew(role, 0)
        for actor in [one.actor for role in ("reconciler", "queue", "quota") for one in play.lives(role)[:-1]]:
            if actor.alive:
                await actor.die()
        if play.reconcilers[-1].actor.alive:
            await play.reconcilers[-1].actor.die()
        await play.start_anew("reconciler", 0, strict_audit=True)
        await play.calm(play.restless)
        before = await play.amounts()
        self.tell("--- a rebuild at rest")
        play.raw.flushall()
        await play.calm(play.restless)
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

    @rule(data=st.data(), what=st.sampled_from(["pods", "pods", "gang", "unit", "job"]))
    def something_comes(self, data: st.DataObject, what: str) -> None:
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
        pick=picks,
        how=st.sampled_from(
            [
                "pod goes", "pod ends", "pod ends", "bound by others", "unit goes", "job goes", "job is switched",
                "node goes", "node shrinks", "node comes", "quota",
            ]
        ),
    )  # fmt: skip
    def something_changes(self, pick: int, how: str) -> None:
        if how in ("pod goes", "pod ends", "bound by others"):
            self.a_pod_changes(pick, how)
        elif how in ("unit goes", "job goes", "job is switched"):
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
        resource = QUEUE_UNITS if how == "unit goes" else JOBS
        found = list(self.api.objects(resource).values())
        if not found:
            return
        one = found[pick % len(found)]
        name = one["metadata"]["name"]
        if how == "job is switched":
            self.do(self.cluster.switched(name, suspended=not one["spec"].get("suspend")))
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

    @rule(order=st.lists(picks, min_size=1, max_size=14))
    def go_on(self, order: list[int]) -> None:
        self.do(self._go_on(order))

    @rule(order=st.lists(picks, min_size=1, max_size=14))
    def go_on_further(self, order: list[int]) -> None:
        """The same again, so that more goes on than goes wrong."""
        self.do(self._go_on(order))

    async def _go_on(self, order: list[int]) -> None:
        for pick in order:
            if moves := self.play.moves.all():
                await self.play.make(moves[pick % len(moves)])

    @rule(role=roles, most=st.integers(1, 12))
    def one_goes_on(self, role: str, most: int) -> None:
        """Far enough for what needs many steps of one actor."""
        self.do(self.play.one_goes_on(role, most))

    @rule(pick=picks)
    def a_binding_goes_wrong(self, pick: int) -> None:
        """The requests that matter most, among the many that could."""
        if faults := [move for move in self.play.faults.all() if "/binding" in move.label]:
            self.do(self.play.make(faults[pick % len(faults)]))

    @rule(pick=picks)
    def something_goes_wrong(self, pick: int) -> None:
        if faults := self.play.faults.all():
            self.do(self.play.make(faults[pick % len(faults)]))

    @rule(seconds=st.sampled_from([0.1, 1.0, 10.0, 70.0]))
    def time_passes(self, seconds: float) -> None:
        self.do(self.play.time_passes(seconds))

    @rule(role=roles, pick=picks, late=st.integers(0, 4), killed=st.booleans())
    def another_life(self, role: str, pick: int, late: int, killed: bool) -> None:
        """One dies and starts anew; or a second one leads while the first does not know that it is over."""
        living = [one for one in self.play.lives(role) if one.actor.alive]
        if living and (killed or len(living) > 1):
            actor = living[pick % len(living)].actor
            self.tell(f"{actor.name} dies")
            self.do(actor.die())
        self.do(self.play.start_anew(role, late))

    @rule(what=st.sampled_from(["decisions", "state", "save", "flush", "restart"]))
    def a_store_is_lost(self, what: str) -> None:
        self.tell(f"lost: {what}")
        if what == "decisions":
            self.play.around.network.decisions.lose_all()
        elif what == "state":
            self.api.lose_state()
        elif what == "save":
            self.saved = self.saved or bool(self.play.raw.save())
        elif what == "flush":
            self.play.raw.flushall()
        elif self.saved:
            self.saved = False  # once in a run: it takes a while
            self.play.restart_redis()


@pytest.mark.timeout(0 if RUNS else 300)
def test_nothing_is_lost_done_twice_or_stuck() -> None:
    server = RedisServer()
    plain = asyncio.new_event_loop()
    plain.run_until_complete(server.start())
    try:
        run_state_machine_as_test(
            type("Bound", (Machine,), {"server": server}),
            settings=settings(
                max_examples=int(RUNS or "70"),
                stateful_step_count=40,
                derandomize=not RUNS,
                database=None,
                deadline=None,
                phases=[Phase.generate, *([Phase.shrink] if "KOORD_MODEL_SHRINK" in os.environ else [])],
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        plain.run_until_complete(server.stop())
        plain.close()
