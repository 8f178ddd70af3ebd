"""Messages that nobody of koord's would send, for every subject of the catalogue."""

import json
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import msgspec
from hypothesis import strategies as st

from koord.contracts.asks import BindingRecord, ExplainPod, RaiseBarrier, SettleBindings
from koord.contracts.codec import ContractError, decode_decision
from koord.contracts.decisions import (
    KINDS,
    Bind,
    BindMember,
    ClaimRef,
    Create,
    Delete,
    EventNote,
    Evict,
    ObjectRef,
    Patch,
    RecordEvents,
)
from koord.contracts.gang import GangHint
from koord.contracts.ledger import EpochHint, LedgerHint
from koord.contracts.quota import QuotaRuntime, QuotaState
from koord.contracts.results import MemberResult, Result
from koord.contracts.state import HEADER
from koord.contracts.subjects import Subjects
from koord.kube.resources import (
    PODS,
    QUEUE_UNITS,
    QUEUES,
    WATCHED,
)
from tests.fuzz.bending import Bend, bends, bent, broken, collect, places, share

Channel = Literal["decision", "core", "wake", "ask", "state", "stored", "lease"]
GHOST = ObjectRef(PODS.token, "fuzz", "ghost", "0b0b0b0b-0000-4000-8000-000000000000", "1")
UNIT = ObjectRef(QUEUE_UNITS.token, "fuzz", "ghost", "0b0b0b0b-0000-4000-8000-000000000001", "1")
CLAIM = ClaimRef("nobody-1", 7, 1)
HUGE = 900_000
"""Bytes of a huge message; NATS takes 8 MiB here and 1 MiB by default."""
_pack = msgspec.msgpack.encode


class MessageCase(NamedTuple):
    """One message. ``bad``: no reader can take it for good; ``id``: of a decision that can be read."""

    channel: Channel
    subject: str
    body: bytes
    id: str = ""
    headers: tuple[str, str] | None = None
    bad: bool = True


def message_cases(subjects: Subjects) -> list[MessageCase]:
    """All of them."""
    return [
        *_decisions(subjects),
        *_asks(subjects),
        *_hints(subjects),
        *_results(subjects),
        *_states(subjects),
        *_leases(subjects),
    ]


# Decisions ------------------------------------------------------------------------------------------------------------

_BINDING = BindMember("u", "fuzz", "ghost", "node-00001", {"a": "b"}, "fuzz/gang", "")
_NOTE = EventNote(GHOST, "Pod", "v1", "Warning", "Fuzz", "about a ghost", "Acting", "fuzz", 1)
_GOOD: Sequence[tuple[str, str, msgspec.Struct]] = (
    ("scheduler", "bind", Bind("", CLAIM, [_BINDING, _BINDING], {"fuzz/gang": 2})),
    ("queue", "create", Create("", QUEUES.token, "nowhere", "fuzz-made", b"{}", "owner")),
    ("queue", "patch", Patch("", UNIT, b'{"status":{}}', "merge", "status", CLAIM, "bind")),
    ("scheduler", "patch", Patch("", GHOST, b'{"metadata":{"labels":{"a":"b"}}}')),
    ("quota", "patch", Patch("", UNIT, b"[]", "json")),
    ("queue", "delete", Delete("", UNIT, "Background")),
    ("quota", "evict", Evict("", GHOST, "fuzz")),
    ("scheduler", "event", RecordEvents("", [_NOTE])),
    ("intruder", "patch", Patch("", GHOST, b"{}")),
    ("queue", "explode", Delete("", UNIT)),
)


def _decisions(subjects: Subjects) -> list[MessageCase]:
    cases: list[MessageCase] = []
    each = share(0.34) // len(_GOOD)
    for service, kind, good in _GOOD:
        subject = subjects.decision(service, kind)
        for number, (changes, raw) in enumerate(_drawn(good, each)):
            id_ = f"fuzz-{service}-{kind}-{number}"
            body = _bent_body(good, changes, id_)
            if number % 6 == 5:
                body = raw
            elif number % 400 == 399:
                body = _pack({**_plain(good), "id": id_, "unknown": "x" * HUGE})
            elif number % 400 == 199:
                body = b"\x83\xa4kind\xa6create\xa2id\xa4deep\xa1x" + b"\x91" * 50_000 + b"\xc0"
            cases.append(_judged(subject, kind, body))
    return cases


def _judged(subject: str, kind: str, body: bytes) -> MessageCase:
    try:
        decision = decode_decision(body)
    except ContractError:
        return MessageCase("decision", subject, body)
    return MessageCase("decision", subject, body, decision.id, bad=KINDS[type(decision)] != kind)


# Questions, hints, results --------------------------------------------------------------------------------------------


def _asks(subjects: Subjects) -> list[MessageCase]:
    record = BindingRecord(GHOST, "nobody-1")
    questions: Sequence[tuple[str, str, type[msgspec.Struct], msgspec.Struct]] = (
        ("scheduler", "explain", ExplainPod, ExplainPod("fuzz", "ghost")),
        ("gateway", "settle", SettleBindings, SettleBindings([record])),
        ("gateway", "barrier", RaiseBarrier, RaiseBarrier("fuzz", 1, 1, ["pods_core"])),
    )
    cases = []
    for service, verb, type_, good in questions:
        subject = subjects.ask(service, verb)
        for number, (changes, raw) in enumerate(_drawn(good, share(0.03))):
            body = raw if number % 3 == 2 else _bent_body(good, changes)
            bad = not _reads(type_, body)
            if bad or verb != "barrier":  # one that can be read is obeyed, and stops all binding for a while
                cases.append(MessageCase("ask", subject, body, bad=bad))
    return cases


def _hints(subjects: Subjects) -> list[MessageCase]:
    state = QuotaState("nobody", "fuzz", "", {"cpu": 1}, {"cpu": 2}, {"cpu": 1}, {"cpu": 0}, {"cpu": 0})
    kinds: Sequence[tuple[Channel, str, type[msgspec.Struct], msgspec.Struct]] = (
        ("core", subjects.ledger("claim.released"), LedgerHint, LedgerHint("released", ["node/x"], ["c-1"])),
        ("core", subjects.ledger("claim.expired"), LedgerHint, LedgerHint("expired", ["admitted/fuzz"], ["c-1"])),
        ("wake", subjects.ledger("epoch"), EpochHint, EpochHint(1)),
        ("core", subjects.gang("ready", "fuzz", "gang"), GangHint, GangHint("ready", "fuzz", "gang")),
        ("stored", subjects.quota_runtime("fuzz-tree"), QuotaRuntime, QuotaRuntime("fuzz-tree", 1, [state])),
    )
    cases = []
    for channel, subject, type_, good in kinds:
        for number, (changes, raw) in enumerate(_drawn(good, share(0.02))):
            body = raw if number % 3 == 2 else _bent_body(good, changes)
            # Of a stream's subject only the last message is kept, and a reader may see no other.
            own = f"{subject}-{number}" if channel == "stored" else subject
            cases.append(MessageCase(channel, own, body, bad=not _reads(type_, body)))
    return cases


def _results(subjects: Subjects) -> list[MessageCase]:
    cases = []
    good = Result("nobody-1", "conflict", "because", 409, "1", [MemberResult("u", "done", "x")])
    for service in ("scheduler", "queue", "quota"):
        subject = subjects.result(service, "fuzz")
        for number, (changes, raw) in enumerate(_drawn(good, share(0.02))):
            body = raw if number % 3 == 2 else _bent_body(good, changes)
            cases.append(MessageCase("core", subject, body, bad=not _reads(Result, body)))
    return cases


# State ----------------------------------------------------------------------------------------------------------------

_METAS: Sequence[Any] = (
    7,
    "x",
    [],
    [1],
    True,
    {"name": 7},
    {"name": []},
    {"labels": 1, "annotations": "x"},
    {"uid": {}},
)


def _states(subjects: Subjects) -> list[MessageCase]:
    """Bodies that no reader can take for an object, under names that no object has; and headers that are none.

    What decodes is believed, by design: only the gateway may write there.
    """
    cases: list[MessageCase] = []
    for resource in WATCHED:
        body = json.dumps({"metadata": {"name": "x", "namespace": "fuzz"}, "spec": {}}).encode()
        bad_object = st.builds(
            lambda meta: json.dumps({"metadata": meta, "spec": {}}).encode(), st.sampled_from(_METAS)
        )
        bodies = st.one_of(broken(body).filter(_no_object), bad_object)
        headers = st.sampled_from(
            ("ADDED 1 x",) * 4 + ("EXPLODED 1 x", "", "ADDED", "MODIFIED  1", "☃ 1 x", "ADDED 1 x y")
        )
        for number, (raw, header) in enumerate(collect(st.tuples(bodies, headers), share(0.24 / len(WATCHED)))):
            name = f"fuzz-{resource.plural}-{number}"
            subject = subjects.state(resource.token, "fuzz" if resource.namespaced else "", name)
            cases.append(MessageCase("state", subject, raw, headers=(HEADER, header)))
    return cases


def _leases(subjects: Subjects) -> list[MessageCase]:
    """Entries of the leases' bucket under names that nobody holds: they only elect, nobody has to say anything."""
    names = ("fuzz", "gateway-fuzz", "scheduler.fuzz", "presence.scheduler.fuzz", "presence.queue.fuzz")
    drawn = collect(st.tuples(st.sampled_from(names), st.binary(max_size=64)), share(0.01))
    return [MessageCase("lease", f"$KV.{subjects.leases_bucket}.{name}", body, bad=False) for name, body in drawn]


def _no_object(body: bytes) -> bool:
    try:
        # Readers pass over what they do not know, whatever bytes it has.
        return not isinstance(msgspec.json.decode(body.decode("utf-8", "replace")), dict)
    except (msgspec.MsgspecError, RecursionError):
        return True


# Inside ---------------------------------------------------------------------------------------------------------------


def _plain(good: msgspec.Struct) -> dict[str, Any]:
    plain = msgspec.msgpack.decode(_pack(good))
    assert isinstance(plain, dict)
    return plain


def _drawn(good: msgspec.Struct, count: int) -> list[tuple[list[Bend], bytes]]:
    plain = _plain(good)
    return collect(st.tuples(bends(list(places(plain))), broken(_pack(good))), count)


def _bent_body(good: msgspec.Struct, changes: list[Bend], id_: str = "") -> bytes:
    plain = _plain(good)
    if "id" in plain and id_:
        plain["id"] = id_
    return _pack(_fitting(bent(plain, changes)))


def _fitting(value: Any) -> Any:
    """MessagePack has integers of 64 bits; larger ones go as floats."""
    if isinstance(value, dict):
        return {key: _fitting(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_fitting(inner) for inner in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return float(value)
    return value


def _reads(type_: type[msgspec.Struct], body: bytes) -> bool:
    try:
        msgspec.msgpack.decode(body, type=type_)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return False
    return True
