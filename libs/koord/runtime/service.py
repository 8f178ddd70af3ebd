"""What a service is: a name, its settings, and how to build it. ``koord run NAME`` finds it by its entry point."""

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Protocol

import msgspec

from koord.runtime.host import Host

GROUP = "koord.services"


class Service(Protocol):
    """A running service. ``start`` subscribes and opens its gates; ``drain`` stops taking work and finishes it."""

    async def start(self) -> None:
        """Begin. Raising ends the process with exit code 1."""

    async def drain(self) -> None:
        """Stop taking work, finish or give back what is in flight, within the drain deadline."""


class ServiceSpec(msgspec.Struct, frozen=True):
    """One service. ``needs`` is a subset of {"bus", "ledger"}: what to connect before ``build`` is called."""

    name: str
    summary: str
    settings: type[msgspec.Struct]
    build: Callable[[Host, Any], Service]
    needs: frozenset[str] = frozenset(("bus", "ledger"))


class UnknownService(LookupError):
    """No installed service has this name."""


def names() -> list[str]:
    """Every installed service."""
    return sorted({point.name for point in entry_points(group=GROUP)})


def find(name: str) -> ServiceSpec:
    """The spec of ``name``. UnknownService lists what there is; TypeError when the entry point is no ServiceSpec."""
    points: list[EntryPoint] = [point for point in entry_points(group=GROUP) if point.name == name]
    if not points:
        raise UnknownService(f"service {name!r}: not installed; there are: {', '.join(names()) or 'none'}")
    spec = points[0].load()
    if not isinstance(spec, ServiceSpec):
        raise TypeError(f"entry point {points[0].value} of service {name!r} is a {type(spec).__name__}, no ServiceSpec")
    return spec
