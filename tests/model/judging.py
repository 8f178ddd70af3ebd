"""Judges each step with what the test itself remembers of the run."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import msgspec
import redis

from koord.contracts.decisions import Bind, ClaimRef, Decision, Patch
from koord.kube.resources import PODS
from koord.ledger.client import Ledger
from koord.ledger.model import Item
from tests.model import checks
from tests.model.apiserver import ApiServer, Sent
from tests.model.calls import Claimed
from tests.model.stepping import SteppedLoop
from tests.model.streams import Decisions

STRICT, UIDS = 2, 7
"""Fields of a claim in the ledger's data (``CLM`` of store.lua, counted from 0)."""
OFFER_UNITS = 3
"""Field of an offer (``OFR``)."""


class Judge:
    """Sees the ledger's data by itself, and every request when it is sent and when it takes effect."""

    def __init__(
        self,
        api: ApiServer,
        ledger: Ledger,
        raw: "redis.Redis",
        key: str,
        loop: SteppedLoop,
        decisions: Decisions,
        wrong: list[str],
        happened: Counter[str],
    ) -> None:
        self.claimed_s: dict[str, float] = {}
        """When a claim was first seen."""
        self.offered_s: dict[str, float] = {}
        """When an offer was first seen."""
        self.shrunk: set[str] = set()
        """Nodes that lost room while pods were on them."""
        self.wrong = wrong
        """What was found while an actor was at it, whose own handlers must not hide it."""
        self.happened = happened
        self.most_cpu = 0
        """The most that the quota ever allowed."""
        self._api = api
        self._ledger = ledger
        self._raw = raw
        self._key = key
        self._loop = loop
        self._decisions = decisions
        self._before: dict[str, Item] = {}
        self._seen_bound: set[str] = set()
        self._by_koord: dict[str, str] = {}
        self._advanced: dict[tuple[str, str], set[str]] = defaultdict(set)
        self._epochs: set[int] = set()
        self._bound_now: list[tuple[str, str]] = []

    # The ledger's calls ---------------------------------------------------------------------------------------------

    async def before_call(self, function: str) -> None:
        """A function of the ledger is about to run."""
        if function in ("claim_v1", "nominate_v1"):
            self._before = await self._ledger.items()

    async def after_call(self, function: str, claimed: Claimed) -> None:
        """It has run."""
        try:
            if function == "claim_v1":
                after = await self._ledger.items()
                checks.check_taken(self._before, after, ("node/", "quota/"))
                self.happened.update(f"claim {answer.status}" for _, answer in claimed)
                self.happened["wounded"] += sum(len(answer.wounded) for _, answer in claimed)
                accepted = [request for request, answer in claimed if answer.status == "ok"]
                if accepted:
                    nominations = [one async for one in self._ledger.nominations()]
                    checks.check_nominated(accepted, self._before, after, nominations)
            elif function == "nominate_v1":
                checks.check_taken(self._before, await self._ledger.items(), ("pdb/",))
        except AssertionError as error:
            self.wrong.append(str(error))
        if function == "advance_v1":
            async for record in self._ledger.binding():
                self._advanced[record.uid, record.node].add(record.decision)

    # Requests -------------------------------------------------------------------------------------------------------

    def sent(self, sent: Sent) -> None:
        """A gateway sends a request: a Binding only after an advance of a decision that says the same."""
        if sent.binds:
            uid, node = _binding(sent)
            decided = {id_ for id_ in self._advanced[uid, node] if _binds(self._decisions.claimed.get(id_), uid, node)}
            if not decided:
                self.wrong.append(f"{sent!r} was sent without a record that is BINDING by a decision for {node}")

    def done(self, sent: Sent) -> None:
        """A request took effect."""
        if sent.response is not None and sent.response.status < 300:
            self.happened.update(_meaning(sent))
        if sent.binds and sent.response is not None and sent.response.status < 300:
            uid, node = _binding(sent)
            if uid in self._by_koord:
                self.wrong.append(f"{sent.path}: bound twice")
            self._by_koord[uid] = node
            self._bound_now.append((uid, node))

    # Each step ------------------------------------------------------------------------------------------------------

    async def judge(self) -> None:
        """All that must hold between two steps."""
        with self._loop.real():
            items, records = await checks.everything(self._ledger)
            status = await self._ledger.status()
        pipe = self._raw.pipeline(transaction=False)
        pipe.hgetall(f"{self._key}:nominations")
        pipe.hgetall(f"{self._key}:claims")
        offers, claims = pipe.execute()
        self._epochs.add(status.epoch)
        self.happened["the ledger is opened again"] = len(self._epochs) - 1
        checks.check_sums(items, records, self._units_held(offers))
        states = [record.state for record in records.values()]
        counted = (status.held, status.binding, status.observed)
        assert counted == tuple(states.count(state) for state in ("HELD", "BINDING", "OBSERVED"))
        self._seen_bound.update(
            pod["metadata"]["uid"] for pod in self._api.objects(PODS).values() if pod["spec"].get("nodeName")
        )
        checks.check_strict(records, self._strict_claims(claims), self._seen_bound)
        while self._bound_now:
            uid, node = self._bound_now.pop()
            record = records.get(uid)
            where = (record.state, record.node) if record is not None else None
            # A ledger that was lost says nothing; what was written on its word is found by the rebuild.
            assert where == ("BINDING", node) or not status.open, f"{uid} was bound to {node}, its record is {where}"
            if record is not None and status.open:
                claim = claim_of(self._decisions.claimed.get(record.decision))
                assert claim is not None and claim.epoch == status.epoch, f"{uid} was bound by {claim} of another epoch"
                assert claim.claim == record.claim, f"{uid} was bound by {claim}, its record is of {record.claim}"
        checks.check_nodes(self._api, self._by_koord, self.shrunk)
        checks.check_quota(self._api, self._by_koord, self.most_cpu)

    def leased(self) -> list[str]:
        """The claims with a lease."""
        return [str(id_, "utf-8") for id_ in self._raw.zrange(f"{self._key}:leases", 0, -1)]  # type: ignore[arg-type]

    def _units_held(self, offers: dict[bytes, bytes]) -> Counter[str]:
        held: Counter[str] = Counter()
        for id_, packed in offers.items():
            if id_.decode() not in self.offered_s:
                self.happened["offered"] += 1
                self.offered_s[id_.decode()] = self._loop.time()
            held.update(_text(one[0]) for one in msgspec.msgpack.decode(packed)[OFFER_UNITS])
        return held

    def _strict_claims(self, packed: dict[bytes, bytes]) -> dict[str, frozenset[str]]:
        found = {}
        for id_, entry in packed.items():
            claim = msgspec.msgpack.decode(entry)
            self.claimed_s.setdefault(id_.decode(), self._loop.time())
            if claim[STRICT]:
                found[id_.decode()] = frozenset(_text(uid) for uid in claim[UIDS])
        return found


def _meaning(sent: Sent) -> Iterator[str]:
    last = sent.path.partition("?")[0].rsplit("/", 1)[1]
    if last in ("binding", "eviction"):
        yield f"{last.replace('b', 'B')} done"
    if "/jobs/" in sent.path and b'"suspend":false' in sent.body:
        yield "a Job is let go"
    if "/jobs/" in sent.path and b'"suspend":true' in sent.body:
        yield "a Job is suspended"
    if "/queueunits/" in sent.path and b'"Dequeued"' in sent.body:
        yield "a unit is admitted"


def claim_of(decision: Decision | None) -> ClaimRef | None:
    return decision.claim if isinstance(decision, Bind | Patch) else None


def _binds(decision: Decision | None, uid: str, node: str) -> bool:
    return isinstance(decision, Bind) and any((one.uid, one.node) == (uid, node) for one in decision.members)


def _binding(sent: Sent) -> tuple[str, str]:
    body = json.loads(sent.body)
    return body["metadata"]["uid"], body["target"]["name"]


def _text(value: Any) -> str:
    return str(value, "utf-8") if isinstance(value, bytes) else str(value)
