"""Users who ask: makes ScheduleExplanations, shows what is written into them as the API does, waits for answers."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import msgspec

from koord.contracts.decisions import Patch
from koord.kube.explanations import ExplanationStatus, ScheduleExplanation
from koord.kube.meta import now_rfc3339
from koord.kube.resources import SCHEDULE_EXPLANATIONS
from tests.scheduler.outside import Outside

Manifest = dict[str, Any]


class Questions:
    """The ScheduleExplanations of a world, in the namespace ``default``."""

    def __init__(self, world: Outside) -> None:
        self._world = world
        self._bodies: dict[str, Manifest] = {}
        self._taken = 0
        self.writes: list[str] = []
        """Whose status was written, in order."""

    async def ask(self, name: str, spec: Manifest, *, age_s: float = 0.0) -> str:
        """A new question, or another one under the same name; its uid."""
        known = self._bodies.get(name)
        meta = {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "creationTimestamp": now_rfc3339(time.time() - age_s),
        }
        body = known or {"metadata": meta}
        body["spec"] = spec
        self._bodies[name] = body
        await self._show(body, "MODIFIED" if known else "ADDED")
        return str(meta["uid"])

    async def _show(self, body: Manifest, type_: Any) -> None:
        meta = body["metadata"]
        version = meta["resourceVersion"] = self._world.version()
        raw = msgspec.json.encode(body)
        await self._world.publisher.publish(SCHEDULE_EXPLANATIONS, type_, "default", meta["name"], version, raw)

    async def _take(self) -> None:
        patches = self._world.patches[self._taken :]
        self._taken += len(patches)
        for patch in patches:
            if patch.target.resource == SCHEDULE_EXPLANATIONS.token:
                await self._write(patch)

    async def _write(self, patch: Patch) -> None:
        body = self._bodies[patch.target.name]
        assert (patch.patch, patch.subresource, patch.target.uid) == ("merge", "status", body["metadata"]["uid"])
        change = msgspec.json.decode(patch.body)
        assert set(change) == {"status"}, change
        assert set(change["status"]) == {
            "schedulable", "schedulableAfterPreemption", "failedMessage", "lastUpdateTime", "detailedExplanation",
        }, "a merge patch says all of it"  # fmt: skip
        body["status"] = change["status"]
        self.writes.append(patch.target.name)
        await self._show(body, "MODIFIED")

    async def answered(
        self, name: str, good: Callable[[ExplanationStatus], Any] = bool, timeout: float = 60.0
    ) -> ExplanationStatus:
        """The status of a question, once it is as wanted."""
        deadline = time.monotonic() + timeout
        while True:
            await self._take()
            body = self._bodies[name]
            status = msgspec.convert(body, ScheduleExplanation).status
            if "status" in body and good(status):
                return status
            assert time.monotonic() < deadline, f"not within {timeout} s, is {status}"
            await asyncio.sleep(0.02)
