"""Which devices claims may be given, told plainly: every way to serve all requests is looked at, one after the other.

Upstream's rules (resource.k8s.io/v1, structured parameters): requests in their order, of a list of alternatives the
first that leads to a solution, devices in their order; a device is given once, except to administrators.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations, combinations_with_replacement
from typing import Any, NamedTuple

Object = dict[str, Any]


class Thing(NamedTuple):
    """A device: driver, pool, name, what it says of itself, whether somebody has it, what it takes of counters, its
    memory, and whether claims share that."""

    driver: str
    pool: str
    name: str
    attributes: dict[str, Any]
    used: bool = False
    takes: int = 0
    memory: int = 0
    shared: bool = False


class Got(NamedTuple):
    """One device for one request; ``part``: how much of its memory is wanted, None: all."""

    claim: int
    request: str
    thing: Thing
    admin: bool
    part: int | None = None

    @property
    def shares(self) -> bool:
        """Whether it is one of several shares of the device."""
        return self.thing.shared and not self.admin


def solutions(claims: Sequence[Object], things: Sequence[Thing], counter: int) -> Iterator[list[Got]]:
    """All ways, the one that counts first. ``counter``: what all devices share."""
    yield from _serve(claims, 0, 0, [], things, counter)


def _serve(
    claims: Sequence[Object], claim: int, request: int, got: list[Got], things: Sequence[Thing], counter: int
) -> Iterator[list[Got]]:
    if claim == len(claims):
        yield got
        return
    requests = claims[claim]["requests"]
    if request == len(requests):
        yield from _serve(claims, claim + 1, 0, got, things, counter)
        return
    for ask in requests[request]["asks"]:
        part = ask["part"]
        fitting = [
            thing
            for thing in things
            if ask["model"] in (None, thing.attributes.get("model")) and (part is None or part <= thing.memory)
        ]
        count = len(fitting) if ask["all"] else ask["count"]
        if not count:
            continue
        several = any(thing.shared for thing in fitting) and not ask["all"]
        for chosen in (combinations_with_replacement if several else combinations)(fitting, count):
            more = [*got, *(Got(claim, ask["name"], thing, ask["admin"], part) for thing in chosen)]
            if allowed(claims, more, counter):
                yield from _serve(claims, claim, request + 1, more, things, counter)


def allowed(claims: Sequence[Object], got: Sequence[Got], counter: int) -> bool:
    """Whether no rule is broken so far."""
    for number, one in enumerate(got):
        if one.thing.used and not one.admin:
            return False
        for other in got[:number]:
            same = one.thing[:3] == other.thing[:3]
            if same and not one.shares and not other.shares and (not one.admin or one.claim == other.claim):
                return False
    for thing in {one.thing.name: one.thing for one in got if one.shares}.values():
        parts = [one.part for one in got if one.shares and one.thing.name == thing.name]
        if sum(thing.memory if part is None else part for part in parts) > thing.memory:
            return False
    # What a shared device takes of counters it takes once.
    taken = sum(one.thing.takes for one in got if not one.shares)
    taken += sum({one.thing.name: one.thing.takes for one in got if one.shares}.values())
    if taken and taken > counter:
        return False
    for claim, body in enumerate(claims):
        if sum(one.claim == claim for one in got) > 32:
            return False
        for attribute, distinct, requests in body["constraints"]:
            values = [
                one.thing.attributes.get(attribute)
                for one in got
                if one.claim == claim and (not requests or {one.request, one.request.split("/")[0]} & set(requests))
            ]
            if None in values:
                return False
            if (len(set(values)) < len(values)) if distinct else (len(set(values)) > 1):
                return False
    return True
