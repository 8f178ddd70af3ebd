"""Pages that a service adds to its small HTTP server: what it shows of itself, besides health and metrics.

Nothing here knows HTTP itself, so services and tests can ask for a page without a server. Handlers answer from what is
in memory and must not block: they run on the service's event loop.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

import msgspec

_encode = msgspec.json.Encoder(order="deterministic").encode


class Asked(NamedTuple):
    """One request: what stands for the ``{names}`` of the pattern, the query's last values, and the body."""

    method: str
    names: Mapping[str, str] = {}
    query: Mapping[str, str] = {}
    body: bytes = b""


class Page(NamedTuple):
    """An answer."""

    status: int
    body: bytes
    content_type: str = "application/json"


Handler = Callable[[Asked], Awaitable[Page]]
ANY = "*"


def json_page(found: object, status: int = 200) -> Page:
    """``found`` as JSON, keys of mappings sorted. TypeError where it cannot be JSON."""
    return Page(status, _encode(found))


def message_page(status: int, message: str) -> Page:
    """An error as the original tells it: ``{"message": ...}``."""
    return json_page({"message": message}, status)


class _Route(NamedTuple):
    method: str
    pattern: str
    parts: tuple[str, ...]
    handler: Handler


class Pages:
    """The pages by method and pattern: ``/apis/v1/nodes/{node}``; a name stands for one part of the path."""

    def __init__(self) -> None:
        self._routes: list[_Route] = []

    def add(self, method: str, pattern: str, handler: Handler) -> None:
        """``method`` is one, or ``*`` for all that no other page of the pattern takes. ValueError: it is there."""
        if any(route.method == method and route.pattern == pattern for route in self._routes):
            raise ValueError(f"{method} {pattern}: there is such a page")
        self._routes.append(_Route(method, pattern, _parts(pattern), handler))

    @property
    def paths(self) -> dict[str, list[str]]:
        """The patterns of each method, sorted."""
        found: dict[str, list[str]] = {}
        for route in self._routes:
            found.setdefault(route.method, []).append(route.pattern)
        return {method: sorted(patterns) for method, patterns in sorted(found.items())}

    async def answer(
        self, method: str, path: str, query: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Page | None:
        """The page; 405 where the path has pages for other methods only, None where it has none."""
        parts = _parts(path)
        found: tuple[_Route, dict[str, str]] | None = None
        known = False
        for route in self._routes:
            names = _match(route.parts, parts)
            if names is None:
                continue
            known = True
            if route.method == method or (method == "HEAD" and route.method == "GET"):
                found = route, names
                break
            if route.method == ANY and found is None:
                found = route, names
        if found is None:
            return message_page(405, f"{method} is not a method of {path}") if known else None
        route, names = found
        return await route.handler(Asked(method, names, query or {}, body))


def _parts(path: str) -> tuple[str, ...]:
    return tuple(path.strip("/").split("/"))


def _match(pattern: tuple[str, ...], path: tuple[str, ...]) -> dict[str, str] | None:
    if len(pattern) != len(path):
        return None
    names: dict[str, str] = {}
    for wanted, part in zip(pattern, path, strict=True):
        if wanted.startswith("{"):
            if not part:
                return None
            names[wanted[1:-1]] = part
        elif wanted != part:
            return None
    return names
