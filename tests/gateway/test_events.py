"""Events never get in the way: they wait, are bounded, and are counted when dropped."""

import asyncio
import time
from typing import Any

from koord.contracts.decisions import EventNote, ObjectRef
from koord.gateway import metrics
from koord.gateway.api import Api
from koord.gateway.events import BURST, EventRecorder
from koord.gateway.leanclient import Response
from koord.kube.resources import EVENTS, PODS
from koord.runtime.ending import end
from tests.gateway.conftest import Kube, until


def note(kube: Kube, name: str, text: str = "t") -> EventNote:
    target = ObjectRef(PODS.token, kube.namespace, name, "u")
    return EventNote(target, "Pod", "v1", "Normal", "Scheduled", text, controller="koord-scheduler")


def dropped(reason: str) -> float:
    return float(metrics.EVENTS_DROPPED.labels(reason)._value.get())


async def written(kube: Kube) -> list[dict[str, Any]]:
    listing = await kube.get(EVENTS.path(kube.namespace))
    assert listing is not None
    items: list[dict[str, Any]] = listing["items"]
    return items


async def test_they_wait_while_anything_else_does(api: Api, kube: Kube) -> None:
    busy = True
    recorder = EventRecorder(api, lambda: busy)
    task = asyncio.create_task(recorder.run())
    for number in range(5):
        recorder.add(note(kube, f"p{number}"), time.time())
    waited, _ = await asyncio.wait({task}, timeout=0.4)
    assert (not waited, await written(kube), recorder.depth) == (True, [], 5)
    busy = False
    await until(lambda: recorder.depth == 0, "the backlog to be written")

    async def all_there() -> bool:
        return len(await written(kube)) == 5

    await until(all_there, "five events")
    await end(task)


async def test_the_backlog_is_bounded_and_equal_notes_take_one_place(api: Api, kube: Kube) -> None:
    recorder = EventRecorder(api, lambda: True, backlog=3)
    before = dropped("backlog")
    for number in range(5):
        for _ in range(4):
            recorder.add(note(kube, f"p{number}"), time.time())
    assert recorder.depth == 3
    assert dropped("backlog") - before == 8


async def test_one_object_may_have_only_so_many_different_ones(api: Api, kube: Kube) -> None:
    recorder = EventRecorder(api, lambda: True)
    before = dropped("rate")
    for number in range(BURST + 7):
        recorder.add(note(kube, "p", f"text {number}"), time.time())
    recorder.add(note(kube, "other"), time.time())
    assert recorder.depth == BURST + 1
    assert dropped("rate") - before == 7


async def test_a_name_that_cannot_stand_in_a_path_is_dropped(api: Api, kube: Kube) -> None:
    recorder = EventRecorder(api, lambda: True)
    before = dropped("invalid")
    recorder.add(note(kube, "../../secrets"), time.time())
    assert (recorder.depth, dropped("invalid") - before) == (0, 1)


async def test_a_backlog_goes_at_its_own_rate_while_nobody_else_writes(api: Api, kube: Kube) -> None:
    """At one moment of quiet per Event, 400 of them would take 20 s, and an error's Event would come minutes late."""
    recorder = EventRecorder(api, lambda: False, per_s=1000.0)
    for number in range(400):
        recorder.add(note(kube, f"p{number}"), time.time())
    task = asyncio.create_task(recorder.run())
    await until(lambda: recorder.depth == 0, "the backlog to be written", timeout=60)
    await end(task)


class Held(Api):
    """Passes on what the first `held` requests ask for only when `go` is set."""

    def __init__(self, inner: Api, held: int) -> None:
        self._inner = inner
        self._held = held
        self.waiting = 0
        self.go = asyncio.Event()

    async def call(self, *arguments: Any, **named: Any) -> Response:
        if self._held:
            self._held -= 1
            self.waiting += 1
            await self.go.wait()
        return await self._inner.call(*arguments, **named)


async def test_one_that_a_server_puts_off_does_not_hold_up_the_others_and_is_counted_on(api: Api, kube: Kube) -> None:
    held = Held(api, 1)
    recorder = EventRecorder(held, lambda: False)
    task = asyncio.create_task(recorder.run())
    recorder.add(note(kube, "slow"), time.time())
    await until(lambda: held.waiting == 1, "the first request to be held")
    for number in range(10):
        recorder.add(note(kube, f"p{number}"), time.time())
    recorder.add(note(kube, "slow"), time.time())

    async def others_there() -> bool:
        return len(await written(kube)) == 10

    await until(others_there, "the other events")
    held.go.set()

    async def counted() -> bool:
        slow = [event for event in await written(kube) if event["involvedObject"]["name"] == "slow"]
        return [event["count"] for event in slow] == [2]

    await until(counted, "the held one, counted twice, once there")
    await end(task)
