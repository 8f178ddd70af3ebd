"""What may happen next when nothing goes wrong."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from koord.kube.resources import JOBS, PODS, QUEUE_UNITS
from tests.model.preemptor import nominated_to, to_preempt
from tests.model.streams import Core, Message, Stored

if TYPE_CHECKING:
    from tests.model.play import Play

CHANGED_OFTEN = frozenset((PODS.token, QUEUE_UNITS.token, JOBS.token))


class Move(NamedTuple):
    """One thing that may happen; its action is a plain call or a coroutine function."""

    label: str
    action: Callable[[], Any]


class Moves:
    """All that everybody could do, in a fixed order."""

    def __init__(self, play: "Play") -> None:
        self._play = play

    def all(self) -> list[Move]:
        return [
            *self._calls(),
            *self._messages(),
            *self._sights(),
            *self._looks(),
            *self._terms(),
            *self._controllers(),
        ]

    def _calls(self) -> Iterator[Move]:
        play = self._play
        for gate in play.gates.shut:
            yield Move(repr(gate), partial(play.gates.open, gate))
        for sent in play.api.under_way:
            if play.loop.now < sent.held_until_s:
                continue
            if sent.response is None:
                # A request that nobody waits for any more is nobody's next step.
                label = f"execute {sent}" if sent.awaited else f"execute late {sent.method} {sent.path}"
                yield Move(label, partial(play.api.execute, sent))
            elif sent.awaited:
                yield Move(f"answer {sent}", partial(play.api.answer, sent))

    def _messages(self) -> Iterator[Move]:
        network = self._play.around.network
        decisions = network.decisions
        for message in decisions.on_the_way:
            yield Move(f"publish {message}", partial(decisions.store, message))
        for message in decisions.unconfirmed:
            yield Move(f"confirm {message}", partial(decisions.confirm, message))
        if self.takes_decisions:
            for message in decisions.copies:
                yield Move(f"hand out a copy of {message}", partial(self.hand_out_copy, message))
            for stored in decisions.held:
                if not stored.out:
                    yield Move(f"hand out {stored}", partial(self.hand_out, stored))
        for core in network.core[: None if self._play.calming else 4]:
            yield Move(f"hear {core}", partial(self.hear, core))

    def _sights(self) -> Iterator[Move]:
        play = self._play
        gateway = play.gateways[-1]
        if gateway.actor.alive and gateway.seen < len(play.api.log(PODS)):
            yield Move(f"{gateway.actor.name} watches", partial(gateway.watch, 100))
        for one in play.readers:
            name = one.actor.name
            if not one.actor.alive:
                continue
            for feed in one.feeds:
                if play.loop.now < feed.held_until_s:
                    continue
                if feed.lost:
                    yield Move(f"{name} reads {feed.token} anew", feed.renew)
                elif feed.behind:
                    if feed.token in CHANGED_OFTEN and not play.calming:
                        yield Move(f"{name} sees {feed.token}", partial(feed.deliver, 1))
                    yield Move(f"{name} sees all {feed.token}", partial(feed.deliver, 100))
            for values in one.values:
                if values.behind:
                    yield Move(f"{name} hears runtimes", values.deliver)

    def _looks(self) -> Iterator[Move]:
        for scheduler in self._play.schedulers:
            name, service = scheduler.actor.name, scheduler.service
            if not scheduler.actor.alive:
                continue
            if not service._driver.ledger_open.is_set():
                yield Move(f"{name} looks", scheduler.look)
            elif not scheduler.planning and len(service._world.pending):
                yield Move(f"{name} plans", partial(scheduler.plan, 0.0))
                yield Move(f"{name} plans later", partial(scheduler.plan, 20.0))
            if service._binds.releasing.is_set():
                yield Move(f"{name} gives back", partial(scheduler.upkeep, 0.0))

    def _terms(self) -> Iterator[Move]:
        """Who learns that a newer one leads gives up its term, and stands for election again."""
        gateway, reconciler = self._play.gateways[-1], self._play.reconcilers[-1]
        fenced = gateway.executor is not None and gateway.executor.not_leading.is_set()
        if gateway.actor.alive and fenced:
            yield Move(f"{gateway.actor.name} gives up its term", partial(self._next_term, "gateway"))
        if reconciler.actor.alive and reconciler.superseded:
            yield Move(f"{reconciler.actor.name} gives up its term", partial(self._next_term, "reconciler"))

    async def _next_term(self, role: str) -> None:
        actor = self._play.lives(role)[-1].actor
        if actor.alive:
            await actor.die()
            await self._play.start_anew(role, 0, strict_audit=self._play.calming)

    def _controllers(self) -> Iterator[Move]:
        cluster = self._play.cluster
        for job in list(cluster.jobs_to_look_at()):
            yield Move(f"the Job controller looks at {job['metadata']['name']}", partial(cluster.look_at_job, job))
        if cluster.garbage:
            yield Move("garbage is collected", cluster.collect_garbage)
        yield from self._preemption()
        if not self._play.calming:
            yield Move("a moment passes", partial(self._play.time_passes, 0.3))

    def _preemption(self) -> Iterator[Move]:
        play = self._play
        preemptor = play.preemptors[-1]
        if not preemptor.actor.alive:
            return
        name = preemptor.actor.name
        for pod in play.api.objects(PODS).values():
            if nominated_to(pod) and play.calming:
                yield Move(f"{name} gives up {pod['metadata']['name']}", partial(preemptor.give_up, pod))
        if not play.calming:
            for pod, node, victims in to_preempt(play.api):
                label = f"{name} makes room for {pod['metadata']['name']} on {node}"
                yield Move(label, partial(preemptor.preempt, pod, node, victims))

    # What some of them are ------------------------------------------------------------------------------------------

    @property
    def takes_decisions(self) -> bool:
        gateway = self._play.gateways[-1]
        return gateway.actor.alive and gateway.executor is not None

    def hand_out(self, stored: Stored) -> None:
        decisions, gateway = self._play.around.network.decisions, self._play.gateways[-1]
        if stored in decisions.held and self.takes_decisions:
            gateway.take(decisions.hand_out(stored, gateway.bus))

    def hand_out_copy(self, message: Message, *, again: bool = False) -> None:
        decisions, gateway = self._play.around.network.decisions, self._play.gateways[-1]
        if (again or message in decisions.copies) and self.takes_decisions:
            self._play.happened["copy handed out"] += 1
            gateway.take(decisions.hand_out_live(message, gateway.bus, again=again))

    async def hear(self, core: Core, *, again: bool = False) -> None:
        messages = self._play.around.network.core
        if core in messages:
            if not again:
                messages.remove(core)
            for one in self._play.hearers:
                if one.actor.alive:
                    await one.hear(core)
