"""How many processes of each service: ``--replicas 2`` or ``gateway=2,scheduler=3``, or setting ``local.replicas``.

Of gateway, reconciler, queue and quota one leads and the others stand by; schedulers share the pods.
"""

from collections.abc import Mapping, Sequence

SERVICES = ("gateway", "reconciler", "quota", "queue", "scheduler")
"""What ``koord up`` runs."""
MOST = 9
"""Replicas of one service on one machine; more would only cost memory."""


def parse(value: int | str | Mapping[str, int], services: Sequence[str]) -> dict[str, int]:
    """Replicas by service, only of those named; a bare number is for every service, ``NAME=N`` after it wins.

    ValueError names the part that is wrong and the rule.
    """
    if isinstance(value, int):
        return {service: _count(str(value), str(value)) for service in services}
    if isinstance(value, Mapping):
        pairs = [(name, str(count)) for name, count in value.items()]
        return {_known(name, services): _count(count, f"{name}={count}") for name, count in pairs}
    found: dict[str, int] = {}
    named: set[str | None] = set()  # None stands for the bare number
    for part in (part.strip() for part in value.split(",")):
        name, equals, count = (word.strip() for word in part.partition("="))
        if not equals:
            if None in named:
                raise ValueError(f"{part!r}: there is a number for every service already")
            named.add(None)
            found = {service: _count(part, part) for service in services} | found
        elif name in named:
            raise ValueError(f"{part!r}: {name} is named twice")
        else:
            named.add(_known(name, services))
            found[name] = _count(count, part)
    return found


def slots(service: str, replicas: Mapping[str, int]) -> list[str]:
    """The names of a service's processes: its own with one replica, else ``NAME-1``, ``NAME-2``, …"""
    count = replicas.get(service, 1)
    return [service] if count == 1 else [f"{service}-{number}" for number in range(1, count + 1)]


def _known(name: str, services: Sequence[str]) -> str:
    if name not in services:
        raise ValueError(f"{name!r}: no service that is run here; there are: {', '.join(services)}")
    return name


def _count(text: str, part: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MOST:
        raise ValueError(f"{part!r}: the number of replicas must be a whole number from 1 to {MOST}")
    return int(text)
