"""Pods that an extender binds (``bindVerb``) and not the gateway: asked, and then seen bound, or not.

The claim stays held in the ledger, and is renewed, until the API shows the pod on its node; the reconciler then makes
it an observed one, as with any pod that somebody else bound. So the room is kept as for the gateway's Bindings; what
the gateway adds is missing: the ledger cannot keep an extender from writing a Binding late.

An answer that says no, or a question that was never sent, gives the room back at once. Where nobody knows (a time-out,
a connection that broke, a 5xx) it is kept for :data:`DOUBT_S` while the pod may yet be seen bound: then the pod is
tried again, and of two Bindings the API server takes the first.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Sequence

import msgspec

from koord.bus.decisions import DecisionPublisher
from koord.bus.errors import BusError
from koord.contracts.decisions import ObjectRef, Patch
from koord.contracts.results import Result
from koord.kube.resources import PODS
from koord.scheduler.engine.placement import Placed, PodInfo
from koord.scheduler.extenders import wire
from koord.scheduler.extenders.asking import Extenders
from koord.scheduler.extenders.client import ExtenderClient, ExtenderError
from koord.scheduler.flights import Flight, open_members
from koord.telemetry.logs import Logger

DOUBT_S = 10.0
SEEN_S = 60.0
"""How long a Binding that was answered for may take to be seen."""
ANNOTATED_S = 30.0

Member = tuple[PodInfo, Placed]
Refused = Callable[[Flight, Sequence[PodInfo], str], None]


class ExtenderBinder:
    """``takes`` a flight whose pods an extender binds. ``refused`` is told of pods that are not bound, ``left`` of
    flights whose other members are the gateway's."""

    def __init__(
        self,
        extenders: Extenders,
        publisher: DecisionPublisher,
        log: Logger,
        *,
        refused: Refused,
        left: Callable[[Flight], None],
        doubt_s: float = DOUBT_S,
        seen_s: float = SEEN_S,
    ) -> None:
        self._extenders = extenders
        self._publisher = publisher
        self._log = log
        self._refused = refused
        self._left = left
        self._doubt_s = doubt_s
        self._seen_s = seen_s
        self._numbers = itertools.count(1)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._done: set[str] = set()
        self._awaited: dict[str, asyncio.Event] = {}
        self._annotated: dict[str, asyncio.Future[Result]] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def takes(self, flight: Flight) -> bool:
        """Whether an extender binds pods of the flight, which is under way from here on. Asked again it is not."""
        if flight.claim in self._tasks:
            return True
        if flight.claim in self._done:
            self._done.discard(flight.claim)
            return False
        members = [(client, member) for member in open_members(flight) if (client := self._of(member[0])) is not None]
        if not members:
            return False
        flight.outside = True
        task = asyncio.create_task(self._bind(flight, members))
        self._tasks[flight.claim] = task
        task.add_done_callback(lambda ended: self._ended(flight, ended))
        return True

    def on_result(self, result: Result) -> bool:
        """What became of annotations; False if it is none of these."""
        future = self._annotated.get(result.id)
        if future is None:
            return False
        if not future.done():
            future.set_result(result)
        return True

    def settled(self, uid: str) -> None:
        """The pod is seen bound, or gone."""
        seen = self._awaited.get(uid)
        if seen is not None:
            seen.set()

    async def close(self) -> None:
        """What was asked for goes on without us."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Inside ---------------------------------------------------------------------------------------------------------

    def _of(self, pod: PodInfo) -> ExtenderClient | None:
        return next((each for each in self._extenders.interested(pod.class_) if each.config.bind_verb), None)

    def _ended(self, flight: Flight, task: "asyncio.Task[None]") -> None:
        self._tasks.pop(flight.claim, None)
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            self._log.error("binding by an extender failed", claim=flight.claim, error=repr(error))
            pods = [pod for pod, _ in open_members(flight) if self._of(pod) is not None]
            self._refused(flight, pods, f"binding by an extender: {type(error).__name__}: {error}")
        flight.outside = False
        if flight.open:
            self._done.add(flight.claim)
            self._left(flight)

    async def _bind(self, flight: Flight, members: Sequence[tuple[ExtenderClient, Member]]) -> None:
        await asyncio.gather(*(self._bind_one(flight, client, *member) for client, member in members))

    async def _bind_one(self, flight: Flight, client: ExtenderClient, pod: PodInfo, placed: Placed) -> None:
        """Until the pod is seen bound or refused; or left to the gateway, where the extender's failure is ignored."""
        why = await self._annotate(flight, pod, placed)
        if why:
            self._refused(flight, [pod], why)
            return
        if pod.uid not in flight.open:
            return  # it went meanwhile
        verb, ref = client.config.bind_verb, pod.ref
        patience, text = self._seen_s, f"extender {client.name} has bound the pod, which is not seen bound"
        failure: ExtenderError | None = None
        try:
            body = wire.binding_args(ref.name, ref.namespace, ref.uid, placed.node)
            error = wire.read_binding(await client.ask(verb, body, flight.trace, once=True))
            if error:
                failure = ExtenderError(f"extender {client.name}: {error}", sent=False)
        except wire.WireError as problem:
            failure = ExtenderError(f"extender {client.name}: {verb}: the answer {problem}")
        except ExtenderError as problem:
            failure = problem
        if failure is not None and client.config.ignorable:
            self._extenders.passed_over(client, verb, failure)
            return
        if failure is not None:
            patience, text = self._doubt_s if failure.sent else 0.0, str(failure)
        if not await self._seen(flight, pod.uid, patience):
            self._refused(flight, [pod], text)

    async def _annotate(self, flight: Flight, pod: PodInfo, placed: Placed) -> str:
        """Write what plugins gave the pod, as it would be written with the gateway's Binding; why it cannot be."""
        if not placed.annotations:
            return ""
        ref = pod.ref
        body = msgspec.json.encode({"metadata": {"annotations": dict(placed.annotations)}})
        target = ObjectRef(PODS.token, ref.namespace, ref.name, ref.uid)
        patch = Patch(f"{flight.claim}-annotations-{next(self._numbers)}", target, body, lane="bind")
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._annotated[patch.id] = future
        try:
            async with asyncio.timeout(ANNOTATED_S):
                await self._publisher.send(patch, flight.trace)
                result = await future
        except TimeoutError:
            return "annotations were not written in time"
        except BusError as error:
            return f"annotations were not written: {error}"
        finally:
            del self._annotated[patch.id]
        return "" if result.outcome == "done" else f"annotations were not written: {result.outcome}: {result.reason}"

    async def _seen(self, flight: Flight, uid: str, patience: float) -> bool:
        """Whether the pod is bound, or gone, within ``patience`` seconds."""
        if uid in flight.open and patience > 0.0:
            seen = self._awaited[uid] = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await seen.wait()
            del self._awaited[uid]
        return uid not in flight.open
