"""Between the types of :mod:`koord.ledger.nominations` and the arrays that the functions read and answer."""

from collections.abc import Sequence

from koord.accounting.takes import NODE
from koord.ledger.model import MAX_MEMBERS, LedgerRefused
from koord.ledger.nominations import OFFER_S, NominateAnswer, NominateRequest, Nomination
from koord.ledger.wire import Row, on_node, pack, short


def check_nomination(request: NominateRequest) -> None:
    """LedgerRefused for a nomination that no ledger would take; names it and the rule."""
    members, victims = request.members, request.victims
    if not members or len(members) + len(victims) > MAX_MEMBERS:
        text = f"{len(members)} members and {len(victims)} victims, 1 to {MAX_MEMBERS} in all can be"
        raise LedgerRefused(f"nomination {request.id}: {text}")
    if not 0 < request.lease_s <= OFFER_S:
        raise LedgerRefused(f"nomination {request.id}: lease_s {request.lease_s}: at most {OFFER_S}, more than 0")
    uids = [member.uid for member in members] + [victim.uid for victim in victims]
    if len(set(uids)) != len(uids):
        raise LedgerRefused(f"nomination {request.id}: a uid is named twice")
    for member in members:
        if not member.node:
            raise LedgerRefused(f"nomination {request.id}: {member.namespace}/{member.name}: without a node")


def pack_nominations(epoch: int, requests: Sequence[NominateRequest]) -> bytes:
    """The argument of ``nominate``."""
    rows = [
        (
            request.id,
            [(m.uid, m.namespace, m.name, NODE + m.node, on_node(m.node, m.takes)) for m in request.members],
            request.priority,
            request.group,
            request.victims,
            round(request.lease_s * 1000),
        )
        for request in requests
    ]
    return pack((epoch, rows))


def nominate_answer(row: Row, epoch: int) -> NominateAnswer:
    """What the function says of one nomination."""
    match row:
        case ["conflict", shorts]:
            return NominateAnswer("conflict", epoch, tuple(map(short, shorts)))
        case ["busy", uid, claim]:
            return NominateAnswer("busy", epoch, (), uid, claim)
        case [status, current]:
            return NominateAnswer(status, current)
        case _:
            return NominateAnswer(row[0], epoch)


def nomination(row: Row) -> Nomination:
    """A nominated pod as the function opened it."""
    uid, fields = row
    offer, namespace, name, item_name, amounts, noted, priority, group, foreign = fields[:9]
    node = item_name.removeprefix(NODE)
    return Nomination(uid, offer, namespace, name, node, amounts or {}, noted, priority, group, foreign)
