"""A thin queue: it admits QueueUnits one by one, by the same claims and decisions as the queue service."""

import asyncio
import itertools
import json
from typing import Any

from koord.accounting.takes import unit_takes
from koord.contracts.codec import decode, encode
from koord.contracts.decisions import ClaimRef, ObjectRef, Patch
from koord.contracts.results import Result
from koord.kube.resources import QUEUE_UNITS
from koord.ledger.model import ClaimRequest, LedgerUnavailable, Member
from koord.telemetry.context import TraceContext
from tests.model.actors import SteppedLedger, Surroundings
from tests.model.outside import Core, SteppedBus
from tests.model.stepping import Actor

REPUBLISH_S = 10.0


class UnitQueue:
    """Admits QueueUnits: claims room, and publishes the admission that spends the claim until it is seen."""

    def __init__(self, around: Surroundings, actor: Actor, ledger: SteppedLedger) -> None:
        self.actor = actor
        self.around = around
        self.bus: SteppedBus = around.bus(actor)
        self.ledger = ledger
        self._asking: set[str] = set()
        self._decided: dict[str, Patch] = {}
        self._published_s: dict[str, float] = {}
        self._numbers = itertools.count(1)

    def admit(self, unit: dict[str, Any], cpu: int, quota: str) -> None:
        """Claim for this unit, or publish again what was decided of it."""
        uid = unit["metadata"]["uid"]
        now = asyncio.get_running_loop().time()
        if (decided := self._decided.get(uid)) is not None:
            if now - self._published_s[uid] >= REPUBLISH_S:
                self._publish(uid, decided)
        elif uid not in self._asking:
            self._asking.add(uid)
            self.actor.run(self._admit(unit, cpu, quota))

    async def _admit(self, unit: dict[str, Any], cpu: int, quota: str) -> None:
        meta = unit["metadata"]
        uid = meta["uid"]
        takes = unit_takes({"cpu": cpu}, (quota,))
        request = ClaimRequest(
            f"{self.actor.name}-{next(self._numbers)}", (Member(uid, meta["namespace"], meta["name"], "", takes),)
        )
        try:
            [answer] = await self.ledger.claim([request])
        except LedgerUnavailable:
            return
        finally:
            self._asking.discard(uid)
        if answer.status != "ok":
            return
        body = {"status": {"phase": "Dequeued", "attempts": 0, "admissions": [{"name": "main", "replicas": 1}]}}
        target = ObjectRef(QUEUE_UNITS.token, meta["namespace"], meta["name"], uid)
        claim = ClaimRef(request.id, answer.token, answer.epoch)
        self._decided[uid] = Patch(request.id, target, json.dumps(body).encode(), subresource="status", claim=claim)
        self._publish(uid, self._decided[uid])

    def _publish(self, uid: str, decision: Patch) -> None:
        self._published_s[uid] = asyncio.get_running_loop().time()
        headers = b"NATS/1.0\r\ntraceparent: " + TraceContext.new().traceparent.encode() + b"\r\n\r\n"
        self.bus.acks.publish(self.bus.subjects.decision("queue", "patch"), encode(decision), headers)

    def hear(self, message: Core) -> None:
        """A result: what was refused is claimed anew."""
        if ".result.queue." in message.subject:
            result = decode(Result, message.body)
            for uid, decision in list(self._decided.items()):
                if decision.id == result.id and result.outcome != "done":
                    del self._decided[uid]

    def forget(self, uid: str) -> None:
        """The API shows it admitted, or gone."""
        self._decided.pop(uid, None)
