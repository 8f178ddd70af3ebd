"""The state machine: what it may do to the actors and to their world. What must hold is in ``judging`` and ``checks``.

``KOORD_MODEL_EXAMPLES=n`` makes n runs that are new each time, ``KOORD_MODEL_SHRINK=1`` makes a failing one small.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from koord.kube.resources import ELASTIC_QUOTAS, NODES, PODS, QUEUE_UNITS
from koord.localcluster.servers import RedisServer
from tests.model import checks
from tests.model.play import QUOTA, Play
from tests.model.stepping import SteppedLoop, owned

MERGE = "application/merge-patch+json"
NAMESPACE = "default"
QUOTA_CPU = 9
PODS_AT_ONCE = 9
UNITS_AT_ONCE = 3
NODES_AT_ONCE = 3

RUNS = os.environ.get("KOORD_MODEL_EXAMPLES", "")

picks = st.integers(0, 1_000_000)
roles = st.sampled_from(["scheduler", "gateway", "reconciler", "queue"])


class Machine(RuleBasedStateMachine):
    """Each rule leaves everybody standing still."""

    server: RedisServer
    tell: Callable[[str], None] = staticmethod(note)

    def __init__(self) -> None:
        super().__init__()
        self.loop = SteppedLoop()
        self.loop.set_task_factory(owned)
        self.play = Play(self.loop, self.server, QUOTA_CPU, self.tell)
        self.play.raw.flushall()
        self.api = self.play.api
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
            await self._node()
        quota = {"kind": "ElasticQuota", "metadata": {"name": QUOTA}, "spec": self._quota(QUOTA_CPU)}
        await self.api.do("POST", ELASTIC_QUOTAS.path(NAMESPACE), {"apiVersion": ELASTIC_QUOTAS.api_version, **quota})
        await self.play.start()
        await self.play.calm(self.play.closed)

    def teardown(self) -> None:
        try:
            if self.started and not self.failed:
                self.do(self._end())
        finally:
            self.do(self.play.close())
            self.loop.close()

    async def _end(self) -> None:
        """Everything is delivered and everybody runs: nothing is stuck, and a rebuild changes nothing."""
        play = self.play
        self.tell("--- nothing goes wrong any more")
        for role in ("scheduler", "gateway", "queue"):
            if not play.lives(role)[-1].actor.alive:
                await play.start_anew(role, 0)
        for reconciler in play.reconcilers:
            if reconciler.actor.alive:
                await reconciler.actor.die()
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

    def _quota(self, cpu: int) -> dict[str, Any]:
        return {"max": {"cpu": str(cpu)}, "min": {"cpu": "0"}}

    async def _node(self) -> None:
        allocatable = {"cpu": str(checks.NODE_CPU // 1000), "memory": "64Gi", "pods": "110"}
        meta = {"name": f"n{next(self.play.names)}"}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": {"allocatable": allocatable}}
        await self.api.do("POST", NODES.path(), body)

    async def _pod(self, cpu: int, quota: bool, annotations: dict[str, str]) -> None:
        labels = {checks.QUOTA_NAME: QUOTA} if quota else {}
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": str(cpu)}}}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"p{next(self.play.names)}", "labels": labels, "annotations": annotations},
            "spec": {"schedulerName": "koord-scheduler", "containers": [container]},
        }
        await self.api.do("POST", PODS.path(NAMESPACE), body)

    def _pods(self, *, bound: bool | None = None) -> list[dict[str, Any]]:
        return [
            pod
            for pod in self.api.objects(PODS).values()
            if checks.live(pod) and bound in (None, bool(pod["spec"].get("nodeName")))
        ]

    @rule(data=st.data(), what=st.sampled_from(["pods", "pods", "gang", "unit"]))
    def something_comes(self, data: st.DataObject, what: str) -> None:
        if what == "pods":
            self.pods_come(data.draw(st.integers(1, 2)), data.draw(st.booleans()), data.draw(st.integers(1, 3)))
        elif what == "gang":
            mode = data.draw(st.sampled_from(["Strict", "Strict", "NonStrict"]))
            self.a_gang_comes(data.draw(st.integers(2, 3)), mode, data.draw(st.integers(-1, 1)))
        else:
            self.a_unit_comes(data.draw(st.integers(1, 5)))

    def pods_come(self, cpu: int, quota: bool, count: int) -> None:
        for _ in range(min(count, PODS_AT_ONCE - len(self._pods()))):
            self.do(self._pod(cpu, quota, {}))

    def a_gang_comes(self, size: int, mode: str, more: int) -> None:
        name = f"g{next(self.play.names)}"
        annotations = {checks.GANG_NAME: name, checks.GANG_MINIMUM: str(size), checks.GANG_MODE: mode}
        if len(self._pods()) + size + more <= PODS_AT_ONCE:
            for _ in range(size + more):
                self.do(self._pod(1, False, annotations))

    def a_unit_comes(self, cpu: int) -> None:
        if len(self.api.objects(QUEUE_UNITS)) < UNITS_AT_ONCE:
            meta = {"name": f"u{next(self.play.names)}", "labels": {checks.QUOTA_NAME: QUOTA}}
            body = {"kind": "QueueUnit", "metadata": meta, "spec": {"resource": {"cpu": str(cpu)}}}
            self.do(self.api.do("POST", QUEUE_UNITS.path(NAMESPACE), {"apiVersion": QUEUE_UNITS.api_version, **body}))

    @rule(
        pick=picks,
        how=st.sampled_from(["delete", "end", "foreign", "unit", "node goes", "node shrinks", "node comes", "quota"]),
    )
    def something_changes(self, pick: int, how: str) -> None:
        if how in ("delete", "end", "foreign", "unit"):
            self.something_ends(pick, how)
        else:
            self.the_room_changes(pick, how)

    def something_ends(self, pick: int, how: str) -> None:
        if how == "unit":
            if units := list(self.api.objects(QUEUE_UNITS).values()):
                name = units[pick % len(units)]["metadata"]["name"]
                self.do(self.api.do("DELETE", QUEUE_UNITS.path(NAMESPACE, name)))
            return
        found = self._pods(bound={"delete": None, "end": True, "foreign": False}[how])
        if not found:
            return
        name = found[pick % len(found)]["metadata"]["name"]
        if how == "delete":
            self.do(self.api.do("DELETE", PODS.path(NAMESPACE, name), {"gracePeriodSeconds": 0}))
        elif how == "end":
            path = PODS.path(NAMESPACE, name, "status")
            self.do(self.api.do("PATCH", path, {"status": {"phase": "Succeeded"}}, MERGE))
        elif nodes := sorted(self.api.objects(NODES)):
            target = {"metadata": {"name": name}, "target": {"kind": "Node", "name": nodes[pick // 7 % len(nodes)]}}
            self.do(self.api.do("POST", PODS.path(NAMESPACE, name, "binding"), target))

    def the_room_changes(self, pick: int, how: str) -> None:
        nodes = sorted(self.api.objects(NODES))
        if how == "quota":
            self.play.quota_cpu = 2 + pick % QUOTA_CPU
            path = ELASTIC_QUOTAS.path(NAMESPACE, QUOTA)
            self.do(self.api.do("PATCH", path, {"spec": self._quota(self.play.quota_cpu)}, MERGE))
        elif how == "node comes":
            if len(nodes) < NODES_AT_ONCE:
                self.do(self._node())
        elif nodes:
            node = nodes[pick % len(nodes)]
            if how == "node goes":
                self.do(self.api.do("DELETE", NODES.path("", node)))
            else:
                self.play.judge.shrunk.add(node)
                body = {"status": {"allocatable": {"cpu": "2"}}}
                self.do(self.api.do("PATCH", NODES.path("", node, "status"), body, MERGE))

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
            if moves := self.play.moves():
                await self.play.make(moves[pick % len(moves)])

    @rule(role=roles, most=st.integers(1, 12))
    def one_goes_on(self, role: str, most: int) -> None:
        """Far enough for what needs many steps of one actor."""
        self.do(self.play.one_goes_on(role, most))

    @rule(pick=picks)
    def a_binding_goes_wrong(self, pick: int) -> None:
        """The requests that matter most, among the many that could."""
        if faults := [move for move in self.play.faults() if "/binding" in move.label]:
            self.do(self.play.make(faults[pick % len(faults)]))

    @rule(pick=picks)
    def something_goes_wrong(self, pick: int) -> None:
        if faults := self.play.faults():
            self.do(self.play.make(faults[pick % len(faults)]))

    @rule(seconds=st.sampled_from([0.1, 1.0, 10.0, 70.0]))
    def time_passes(self, seconds: float) -> None:
        self.do(self.play.time_passes(seconds))

    @rule(role=roles, pick=picks, late=st.integers(0, 4), killed=st.booleans())
    def another_life(self, role: str, pick: int, late: int, killed: bool) -> None:
        """One dies and starts anew; or a second one leads while the first does not know that it is over."""
        living = [one for one in self.play.lives(role) if one.actor.alive]
        if living and (killed or len(living) > 1 or role == "queue"):
            actor = living[pick % len(living)].actor
            self.tell(f"{actor.name} dies")
            self.do(actor.die())
        self.do(self.play.start_anew(role, late))

    @rule(what=st.sampled_from(["decisions", "save", "flush", "restart"]))
    def a_store_is_lost(self, what: str) -> None:
        self.tell(f"lost: {what}")
        if what == "decisions":
            self.play.around.decisions.lose_all()
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
