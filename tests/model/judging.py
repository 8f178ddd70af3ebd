"""Judges each step with what the test itself remembers of the run."""

import json

import msgspec
import redis

from koord.kube.resources import PODS
from koord.ledger.client import Ledger
from koord.ledger.model import Item
from tests.model import checks
from tests.model.outside import ApiServer, Sent
from tests.model.stepping import SteppedLoop

STRICT, UIDS = 2, 7
"""Fields of a claim in the ledger's data (``CLM`` of store.lua, counted from 0)."""


class Judge:
    """Sees the ledger's data by itself, and every request when it takes effect."""

    def __init__(self, api: ApiServer, ledger: Ledger, raw: "redis.Redis", key: str, loop: SteppedLoop) -> None:
        self.claimed_s: dict[str, float] = {}
        """When a claim was first seen."""
        self.shrunk: set[str] = set()
        """Nodes that lost room while pods were on them."""
        self._api = api
        self._ledger = ledger
        self._raw = raw
        self._key = key
        self._loop = loop
        self._before: dict[str, Item] = {}
        self._seen_bound: set[str] = set()
        self._by_koord: dict[str, str] = {}
        self._bound_now: list[tuple[str, str]] = []

    async def before_call(self, function: str) -> None:
        """A function of the ledger is about to run."""
        if function == "claim_v1":
            self._before = await self._ledger.items()

    async def after_call(self, function: str) -> None:
        """It has run."""
        if function == "claim_v1":
            checks.check_taken(self._before, await self._ledger.items(), ("node/", "quota/"))

    def done(self, sent: Sent) -> None:
        """A request took effect."""
        if sent.binds and sent.response is not None and sent.response.status < 300:
            body = json.loads(sent.body)
            uid, node = body["metadata"]["uid"], body["target"]["name"]
            assert uid not in self._by_koord, f"{sent.path}: bound twice"
            self._by_koord[uid] = node
            self._bound_now.append((uid, node))

    async def judge(self) -> None:
        """All that must hold between two steps."""
        with self._loop.real():
            items, records = await checks.everything(self._ledger)
            status = await self._ledger.status()
        checks.check_sums(items, records)
        states = [record.state for record in records.values()]
        counted = (status.held, status.binding, status.observed)
        assert counted == tuple(states.count(state) for state in ("HELD", "BINDING", "OBSERVED"))
        self._seen_bound.update(
            pod["metadata"]["uid"] for pod in self._api.objects(PODS).values() if pod["spec"].get("nodeName")
        )
        checks.check_strict(records, self._strict_claims(), self._seen_bound)
        while self._bound_now:
            uid, node = self._bound_now.pop()
            record = records.get(uid)
            where = (record.state, record.node) if record is not None else None
            # A ledger that was lost says nothing; what was written on its word is found by the rebuild.
            assert where == ("BINDING", node) or not status.open, f"{uid} was bound to {node}, its record is {where}"
        checks.check_nodes(self._api, self._by_koord, self.shrunk)

    def leased(self) -> list[str]:
        """The claims with a lease."""
        return [str(id_, "utf-8") for id_ in self._raw.zrange(f"{self._key}:leases", 0, -1)]  # type: ignore[arg-type]

    def _strict_claims(self) -> dict[str, frozenset[str]]:
        found = {}
        packed: dict[bytes, bytes] = self._raw.hgetall(f"{self._key}:claims")  # type: ignore[assignment]
        for id_, entry in packed.items():
            claim = msgspec.msgpack.decode(entry)
            self.claimed_s.setdefault(id_.decode(), self._loop.time())
            if claim[STRICT]:
                found[id_.decode()] = frozenset(
                    str(uid, "utf-8") if isinstance(uid, bytes) else uid for uid in claim[UIDS]
                )
        return found
