"""What is wrong with objects, as Events on them: a hundred at a time, and as many more may wait.

A cluster in which thousands of pods are broken at once needs no thousands of Events to say so, and nothing may grow
without a bound. What does not fit is counted.
"""

import itertools
import time
from typing import Final

from koord.accounting.requests import resource_list
from koord.accounting.takes import NODE
from koord.contracts.decisions import EventNote, ObjectRef
from koord.kube.resources import ELASTIC_QUOTAS, NODES, PODS, QUEUE_UNITS, Resource
from koord.ledger.model import MOST_NAMES, SHARED, Short
from koord.reconciler import metrics
from koord.reconciler.sights import MetaSight
from koord.reconciler.world import World
from koord.telemetry.logs import get_logger

log = get_logger("koord.reconciler.telling")

MOST: Final = 100
"""Events of one kind in one message; of what cannot be charged, as many more wait for the next."""
UNCHARGED: Final = "CannotBeCharged"
OVERCOMMIT: Final = "LedgerOvercommit"
NAMELESS: Final = "TooManyResourceNames"

_RESOURCES: Final[dict[str, Resource]] = {
    resource.kind: resource for resource in (NODES, PODS, ELASTIC_QUOTAS, QUEUE_UNITS)
}


def take_notes(world: World) -> list[EventNote]:
    """What is to be told now; it is taken from ``world``, and so is what does not fit."""
    return [*_uncharged(world), *_overcommitted(world), *_nameless(world)]


def _uncharged(world: World) -> list[EventNote]:
    problems = world.folder.problems
    taken, dropped = problems[:MOST], problems[2 * MOST :]
    problems[:] = problems[MOST : 2 * MOST]
    for kind, _, _ in (*taken, *dropped):
        metrics.PROBLEMS.labels(kind).inc()
    _dropped(UNCHARGED, len(dropped))
    for kind, meta, text in taken:
        log.warning("cannot be charged", kind=kind, name=meta.name, error=text)
    return [_note(kind, meta, UNCHARGED, text) for kind, meta, text in taken]


def _overcommitted(world: World) -> list[EventNote]:
    """Spec 20 section 3.12, foreign scheduler binds: nothing HELD could be sent away any more."""
    found, world.overcommitted = world.overcommitted, {}
    _dropped(OVERCOMMIT, len(found) - MOST)
    notes = []
    for short in itertools.islice(found.values(), MOST):
        name = short.item.removeprefix(NODE)
        text = _text(name, short)
        log.warning("overcommitted", name=name, resource=short.key, text=text)
        node = world.nodes.items.get(name)
        if node is not None:
            notes.append(_note(NODES.kind, node.metadata, OVERCOMMIT, text))
    return notes


def _nameless(world: World) -> list[EventNote]:
    """Names beyond those that the ledger can tell apart: nobody is stopped, but of these the node offers nothing."""
    found, world.nameless = world.nameless, {}
    _dropped(NAMELESS, len(found) - MOST)
    notes = []
    for one in itertools.islice(found.values(), MOST):
        text = (
            f"{one.item}: {one.count} of its resource names are left out, the first is {one.name}: the ledger limits "
            f"at most {MOST_NAMES} names in all; a rebuild forgets those that are not used"
        )
        log.warning("limits left out", name=one.item, resource=one.name, count=one.count, text=text)
        node = world.nodes.items.get(one.item.removeprefix(NODE))
        if one.item.startswith(NODE) and node is not None:
            notes.append(_note(NODES.kind, node.metadata, NAMELESS, text))
    return notes


def _dropped(reason: str, count: int) -> None:
    if count > 0:
        metrics.EVENTS_DROPPED.labels(reason).inc(count)
        log.warning("more to tell than can be told", reason=reason, dropped=count)


def _text(node: str, short: Short) -> str:
    taken, room = (_printed(short.key, amount) for amount in (short.needed, short.available))
    key = "resources that nobody offers" if short.key == SHARED else short.key
    return f"node {node}: {key}: {taken} taken of {room}; nothing more is placed there"


def _printed(key: str, amount: int) -> str:
    """An amount of the ledger as a quantity."""
    return resource_list({key: amount}).get(key, str(amount))


def _note(kind: str, meta: MetaSight, reason: str, text: str) -> EventNote:
    resource = _RESOURCES[kind]
    return EventNote(
        ObjectRef(resource.token, meta.namespace, meta.name, meta.uid),
        kind,
        resource.api_version,
        "Warning",
        reason,
        text,
        controller="koord-reconciler",
        time_ns=time.time_ns(),
    )
