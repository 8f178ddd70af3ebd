"""Between the types of :mod:`koord.ledger.model` and the MessagePack arrays that the functions read and answer.

Takes are packed on their own, as further arguments of the call that the first one refers to by number: the function
stores them in the record as they came, without packing them again.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, assert_never, cast

import msgspec

from koord.accounting.takes import NODE, Take
from koord.ledger.model import (
    MAX_MEMBERS,
    Advance,
    AdvanceAnswer,
    BudgetSeen,
    ClaimAnswer,
    ClaimRequest,
    Ended,
    Folded,
    Item,
    ItemClosed,
    LedgerRefused,
    LedgerStatus,
    LimitSet,
    Nameless,
    NodeSeen,
    Observation,
    ObserveAnswer,
    PodGone,
    PodNominated,
    PodSeen,
    PodTerminating,
    Record,
    Release,
    ReleaseAnswer,
    RetireAnswer,
    Settled,
    Short,
    State,
    Sums,
    UnitGone,
    UnitSeen,
    UnitUnbound,
    Wounded,
)
from koord.ledger.nominations import DISRUPTIONS

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode
_HUGE: Final = 2**62
_STATES: Final[tuple[State, ...]] = ("HELD", "BINDING", "OBSERVED")

Row = list[Any]


def pack(value: object) -> bytes:
    """MessagePack of plain lists."""
    return _pack(value)


def unpack(body: bytes) -> Any:
    """The plain lists of an answer."""
    return _unpack(body)


def _argument(arguments: list[bytes], takes: Iterable[Take]) -> int:
    """Append takes, packed as the record stores them; their number as Lua counts.

    The takes of a quota chain share their amounts: distinct ones are sent once, takes refer to them by number.
    """
    distinct: list[Mapping[str, int]] = []
    rows: list[tuple[str, int, bool]] = []
    last: Mapping[str, int] | None = None
    number = 0
    for take in takes:
        amounts = take.amounts
        if amounts is not last:
            last = amounts
            bounded = _bounded(amounts)
            if bounded in distinct:
                number = distinct.index(bounded) + 1
            else:
                distinct.append(bounded)
                number = len(distinct)
        rows.append((take.item, number, take.checked))
    arguments.append(_pack((distinct, rows)))
    return len(arguments)


def _bounded(amounts: Mapping[str, int]) -> Mapping[str, int]:
    """Amounts that fit Lua's integers. Anybody may write a pod of 100 Ei: it is refused or charged, never an error."""
    values = amounts.values()
    if values and (max(values) > _HUGE or min(values) < -_HUGE):
        return {key: max(-_HUGE, min(_HUGE, amount)) for key, amount in amounts.items()}
    return amounts


def on_node(node: str, takes: Iterable[Take]) -> Mapping[str, int]:
    """What is taken of the node's room."""
    total: dict[str, int] = {}
    for take in takes:
        if take.item == NODE + node:
            for key, amount in take.amounts.items():
                total[key] = total.get(key, 0) + amount
    return _bounded(total)


# ---- claims ----------------------------------------------------------------------------------------------------------


def check_claim(request: ClaimRequest) -> None:
    """LedgerRefused for a claim that no ledger would take; names the claim and the rule."""
    members = request.members
    if not members:
        raise LedgerRefused(f"claim {request.id}: it has no members")
    if len(members) > MAX_MEMBERS:
        raise LedgerRefused(f"claim {request.id}: {len(members)} members, at most {MAX_MEMBERS} can be claimed at once")
    for guard in request.guards:
        if guard.bump and guard.item.startswith("node/"):
            raise LedgerRefused(f"claim {request.id}: guard {guard.item}: a node's guard is the reconciler's to raise")
    if len(members) > 1 and len({member.uid for member in members}) != len(members):
        raise LedgerRefused(f"claim {request.id}: a uid is named twice")


def pack_claims(
    epoch: int, owner: str, lease_ms: int, requests: Sequence[ClaimRequest], since: tuple[int, int] | None = None
) -> list[bytes]:
    """The arguments of ``claim``; ``since``: up to where the caller knows what others placed."""
    arguments = [b""]
    arguments[0] = pack(
        (
            epoch,
            owner,
            lease_ms,
            [
                (
                    request.id,
                    [(m.uid, m.namespace, m.name, m.node, _argument(arguments, m.takes)) for m in request.members],
                    request.slots,
                    request.guards,
                    request.priority,
                    request.token,
                    request.trace,
                    request.strict,
                    request.ticket,
                    *(_rest(request) if request.group or request.wound or request.repels or request.given else ()),
                )
                for request in requests
            ],
            *((since,) if since is not None else ()),
        )
    )
    return arguments


def _rest(request: ClaimRequest) -> tuple[object, ...]:
    if request.repels or request.given:
        return request.group, request.wound, request.repels, request.given or {}
    return request.group, request.wound


def short(row: Row) -> Short:
    """One reason of a conflict; a huge sum arrives as a float."""
    item, key, kind, needed, available, version, holder = row
    return Short(item, key, kind, int(needed), int(available), int(version), holder)


def claim_answer(row: int | Row, epoch: int) -> ClaimAnswer:
    """What the function says of one claim: a token, or why not."""
    if type(row) is int:
        return ClaimAnswer("ok", row, epoch)
    row = cast(Row, row)
    status = row[0]
    if status == "conflict":
        return ClaimAnswer("conflict", 0, epoch, tuple(map(short, row[1])))
    if status == "busy":
        return ClaimAnswer("busy", 0, epoch, (), row[1], row[2])
    if status == "wounded":
        wounded = tuple(Wounded(claim, owner, tuple(uids), tuple(items)) for claim, owner, uids, items in row[2])
        return ClaimAnswer("ok", row[1], epoch, wounded=wounded)
    return ClaimAnswer(status, 0, row[1] if len(row) > 1 else epoch)


# ---- moves -----------------------------------------------------------------------------------------------------------


def pack_advances(role_epoch: int, incarnation: str, items: Sequence[Advance]) -> bytes:
    """The argument of ``advance``."""
    return pack(
        (role_epoch, incarnation, [(a.claim, a.token, a.epoch, a.decision, a.uids) for a in items]),
    )


def advance_answer(row: Row) -> AdvanceAnswer:
    """What the function says of one decision."""
    status, attempt, gone, observed, epoch = row
    nodes = dict(zip(observed[::2], observed[1::2], strict=True))
    return AdvanceAnswer(status, int(attempt), tuple(gone), nodes, epoch)


def pack_releases(epoch: int, incarnation: str, items: Sequence[Release]) -> bytes:
    """The argument of ``release``."""
    return pack(
        (
            epoch,
            incarnation,
            [(r.claim, r.token, r.uids, r.by == "gateway", r.role_epoch) for r in items],
        )
    )


def release_answer(row: Row) -> ReleaseAnswer:
    """What the function says of one release."""
    status, released, refused, items, epoch = row
    return ReleaseAnswer(status, tuple(released), tuple(refused), tuple(items), epoch)


# ---- observations ----------------------------------------------------------------------------------------------------


def _version(value: str, uid: str) -> str:
    if value and not value.isdecimal():
        raise LedgerRefused(f"{uid}: resourceVersion {value!r} is not a whole number")
    return value


def pack_observations(
    head: Sequence[object], observations: Sequence[Observation], folded: Folded | None = None
) -> list[bytes]:
    """The arguments of ``observe``; ``head`` comes first. LedgerRefused for what no ledger would take."""
    arguments = [b""]
    read = (folded.epoch, folded.sequence) if folded is not None else (None, None)
    try:
        arguments[0] = pack((*head, [_observation(seen, arguments) for seen in observations], *read, True))
    except OverflowError as error:
        raise LedgerRefused(f"a number of an observation has more than 64 bits: {error}") from error
    return arguments


def _observation(seen: Observation, arguments: list[bytes]) -> tuple[Any, ...]:
    """The array of one observation; its first letter says what it is."""
    match seen:
        case PodSeen(uid=uid, node=node):
            if not node:
                raise LedgerRefused(f"pod {seen.namespace}/{seen.name} ({uid}): seen without a node")
            version = _version(seen.resource_version, uid)
            takes = _argument(arguments, seen.takes)
            more = (seen.slots,) if seen.slots else ()
            return "P", uid, seen.namespace, seen.name, node, takes, version, seen.bumps, seen.recharge, *more
        case UnitSeen(uid=uid):
            version = _version(seen.resource_version, uid)
            takes = _argument(arguments, seen.takes)
            return "P", uid, seen.namespace, seen.name, "", takes, version, (), seen.recharge
        case PodGone(uid=uid) | UnitGone(uid=uid):
            return "G", uid, _version(seen.resource_version, uid)
        case UnitUnbound(uid=uid):
            return "U", uid, _version(seen.resource_version, uid)
        case PodNominated(uid=uid, node=node):
            named, amounts = (NODE + node, on_node(node, seen.takes)) if node else ("", {})
            version = _version(seen.resource_version, uid)
            who = uid, seen.namespace, seen.name
            return "M", *who, named, amounts, seen.priority, seen.group, seen.foreign, version
        case PodTerminating(uid=uid):
            return "T", uid
        case Settled(uid=uid):
            return "S", uid, seen.token, seen.attempts
        case NodeSeen(item=item, limits=limits):
            if not item.startswith("node/"):
                raise LedgerRefused(f"{item}: NodeSeen is for node/ items")
            return "N", item, _bounded(limits), _version(seen.resource_version, item), seen.generation
        case BudgetSeen(item=item):
            if not item.startswith("pdb/"):
                raise LedgerRefused(f"{item}: BudgetSeen is for pdb/ items")
            return "N", item, {DISRUPTIONS: max(0, seen.allowed)}, _version(seen.resource_version, item)
        case LimitSet(item=item, limits=limits):
            if item.startswith("node/"):
                raise LedgerRefused(f"{item}: LimitSet is not for node/ items")
            return "L", item, _bounded(limits)
        case ItemClosed(item=item):
            return "C", item, _version(seen.resource_version, item)
        case _:
            assert_never(seen)


def observe_answer(rows: Row) -> ObserveAnswer:
    """What observations changed."""
    if len(rows) == 2:
        return ObserveAnswer(rows[0], rows[1])
    status, epoch, changed, freed, released, expired, observed, gone, overcommitted, *more = rows
    # Items of claims that expired in calls of others come with the report of the claim.
    room = {*freed, *(item for report in expired for item in report[3])}
    return ObserveAnswer(
        status,
        epoch,
        tuple(sorted({*changed, *room})),
        tuple(sorted(room)),
        tuple(Ended(claim, tuple(uids), reason) for claim, uids, reason in released),
        tuple(Ended(claim, tuple(uids), reason) for claim, uids, reason, _ in expired),
        tuple(observed),
        tuple(gone),
        tuple(map(short, overcommitted)),
        tuple(Nameless(item, count, name) for item, count, name in more[0]) if more else (),
    )


def merge(answers: Sequence[ObserveAnswer]) -> ObserveAnswer:
    """The answers of the parts of one long observation, as one."""
    if len(answers) == 1:
        return answers[0]
    return ObserveAnswer(
        answers[-1].status,
        answers[-1].epoch,
        tuple(sorted({item for answer in answers for item in answer.changed})),
        tuple(sorted({item for answer in answers for item in answer.freed})),
        *(
            tuple(entry for answer in answers for entry in getattr(answer, field))
            for field in ("released", "expired", "observed", "gone", "overcommitted", "nameless")
        ),
    )


# ---- reading ---------------------------------------------------------------------------------------------------------


def _takes(rows: list[Row]) -> tuple[Take, ...]:
    # Lua does not tell an empty map from an empty list.
    return tuple(Take(item, amounts or {}, checked) for item, amounts, checked in rows)


def record(row: Row) -> Record:
    """A record as the function opened it."""
    uid, fields = row
    state, claim, token, owner, namespace, name, node, takes, decision, attempts, version, trace, slots, *more = fields
    return Record(
        uid,
        _STATES[state - 1],
        claim,
        token,
        owner,
        namespace,
        name,
        node,
        _takes(takes),
        decision,
        attempts,
        version,
        trace,
        tuple(slots),
        *more[:1],
    )


def item(row: Row) -> tuple[str, Item]:
    """An item's name and amounts; keys that the item neither limits nor counts are left out."""
    name, is_open, refs, version, amounts = row
    return name, Item(
        {key: int(limit) for key, limit, _, _, _ in amounts if limit is not False},
        {key: int(used) for key, _, used, _, _ in amounts if used},
        {key: int(held) for key, _, _, held, _ in amounts if held},
        {key: int(nested) for key, _, _, _, nested in amounts if nested},
        is_open,
        int(refs),
        int(version),
    )


def sums(row: Row) -> tuple[str, Sums]:
    """An item's name, and what it and the records say."""
    name, found, amounts, refs = row
    used = {key: int(amount) for key, amount, _ in amounts if amount}
    held = {key: int(amount) for key, _, amount in amounts if amount}
    return name, Sums(item(found)[1] if found else None, used, held, int(refs))


def retire_answer(row: Row) -> RetireAnswer:
    """Whose claims ended; whether there are more is left out."""
    status, _, ended, items, _ = row
    return RetireAnswer(status, tuple(Ended(claim, tuple(uids), why) for claim, uids, why in ended), tuple(items))


def status(row: Row) -> LedgerStatus:
    """The ledger at a glance (the build of the library, first in the row, is left out)."""
    _, is_open, epoch, run_id, token, held, binding, observed, items, roles, *folded = row
    return LedgerStatus(
        is_open,
        epoch,
        run_id,
        token,
        held,
        binding,
        observed,
        items,
        {role: (holder[0], holder[1]) for role, holder in roles},
        Folded(*folded[:2]),
    )
