"""Listens to everything of one cluster and names the messages that carry no trace context although they must.

Used by the bus's own test and by the end-to-end tests: every message is exactly one kind of the catalogue; a kind
without an exemption must carry a valid ``traceparent``, and no message may carry a header that is not listed here.
"""

import re

from koord.bus.client import header_value
from koord.bus.connection import TRACEPARENT, Bus
from koord.contracts.catalog import CATALOG, MessageKind
from koord.contracts.state import HEADER
from koord.telemetry.context import TraceContext

STATE_HEADERS = frozenset((HEADER, "Nats-TTL"))
OTHER_HEADERS = frozenset((TRACEPARENT,))


class TraceCheck:
    """Counts messages by kind and collects complaints. ``violations`` holds one line per distinct complaint."""

    def __init__(self, bus: Bus) -> None:
        self.seen: dict[str, int] = {}
        self.violations: list[str] = []
        self._complained: set[str] = set()
        self._bus = bus
        self._root = bus.subjects.root + "."
        self._kinds = [(_pattern(kind.subject), kind) for kind in CATALOG if not kind.subject.startswith("(")]
        self._subscription = bus.subscribe_raw(self._root + ">", self._receive)

    def close(self) -> None:
        """Stop listening."""
        self._bus.unsubscribe_raw(self._subscription)

    def kind_of(self, subject: str) -> MessageKind | None:
        """The kind of message that travels on ``subject``; None if the catalogue does not know it."""
        tail = subject.removeprefix(self._root)
        return next((kind for pattern, kind in self._kinds if pattern.fullmatch(tail)), None)

    def _receive(self, subject: bytes, reply: bytes, headers: bytes | None, body: bytes) -> None:
        name = subject.decode()
        kind = self.kind_of(name)
        if kind is None:
            self._complain(name, f"{name}: not in the catalogue of messages")
            return
        self.seen[kind.name] = self.seen.get(kind.name, 0) + 1
        allowed = STATE_HEADERS if kind.name in ("State", "LiveState") else OTHER_HEADERS
        for header in header_names(headers):
            if header not in allowed:
                self._complain(f"{kind.name} {header}", f"{name}: {kind.name} carries the header {header}")
        if kind.exempt:
            return
        value = header_value(headers, TRACEPARENT.encode())
        if value is None:
            self._complain(kind.name, f"{name}: {kind.name} without {TRACEPARENT}")
        elif TraceContext.parse(value) is None:
            self._complain(f"{kind.name} bad", f"{name}: {kind.name} with {TRACEPARENT} {value!r}, which is not valid")

    def _complain(self, key: str, text: str) -> None:
        if key not in self._complained:
            self._complained.add(key)
            self.violations.append(text)


def header_names(block: bytes | None) -> list[str]:
    """The names of the headers in a raw block."""
    if block is None:
        return []
    lines = block.split(b"\r\n")[1:]
    return [line.partition(b":")[0].decode("utf-8", "replace") for line in lines if line]


def _pattern(subject: str) -> re.Pattern[str]:
    """A subject of the catalogue as a pattern: ``{name}`` is one or more tokens where it stands last, else one."""
    parts = re.split(r"(\{\w+\})", subject)
    return re.compile("".join("[^.]+" if part.startswith("{") else re.escape(part) for part in parts))
