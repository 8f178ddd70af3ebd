"""Strict decoding: what a client asked for (`fieldValidation`), and what was found: unknown and duplicate fields."""

import json
from typing import Any

from koord.localcluster.api.store import encode

IGNORE, WARN, STRICT = "Ignore", "Warn", "Strict"
# As many as the real server's reader notes.
_MOST = 100
SUPPORTED = ("", IGNORE, STRICT, WARN)


class Report:
    """What one request's body got wrong without being unreadable; unknown fields are dropped in every mode.

    `version` is that of the request when a custom resource has several; its schema counts.
    """

    __slots__ = ("mode", "problems", "repeated", "version")

    def __init__(self, mode: str = WARN, version: str = "") -> None:
        self.mode = mode
        self.version = version
        self.problems: list[str] = []
        self.repeated: list[str] = []

    def add_duplicates(self, body: bytes, decoded: Any) -> None:
        """Note members that occur twice in a JSON body; `decoded` is what was read from it, still unchanged.

        A member that was dropped takes its colon along, so bodies without duplicates are told by a count.
        """
        if body.count(b'":') != encode(decoded).count(b'":'):
            self.note([f'duplicate field "{path}"' for path in duplicates(body)])

    def note(self, problems: list[str]) -> None:
        """Add what was found, as far as there is room: nobody reads thousands, and no client takes as many headers."""
        self.problems += problems[: max(_MOST - len(self.problems), 0)]

    def add_repeated(self, lines: list[str]) -> None:
        """Note the keys that a YAML body says again."""
        if self.mode == STRICT:
            self.repeated = lines
        else:
            self.note(lines)

    @property
    def refused(self) -> str:
        """The sentence of a strict refusal; empty when there is nothing to refuse."""
        if self.mode != STRICT or not (self.problems or self.repeated):
            return ""
        lines = ["\n  ".join(("yaml: unmarshal errors:", *self.repeated))] if self.repeated else []
        return "strict decoding error: " + ", ".join(lines + self.problems)

    @property
    def warnings(self) -> list[str]:
        """What the answer warns of."""
        return self.problems if self.mode == WARN else []


class _Members(dict[str, Any]):
    """An object, with the names that it had more than once."""

    twice: tuple[str, ...] = ()


def _members(pairs: list[tuple[str, Any]]) -> _Members:
    made = _Members(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        made.twice = tuple(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
    return made


def duplicates(body: bytes) -> list[str]:
    """The paths of members that occur more than once, in order of the document."""
    found: list[str] = []

    def walk(value: Any, path: str) -> None:
        if isinstance(value, _Members):
            start = f"{path}." if path else ""
            found.extend(f"{start}{name}" for name in dict.fromkeys(value.twice))
            for name, inner in value.items():
                walk(inner, f"{start}{name}")
        elif isinstance(value, list):
            for i, inner in enumerate(value):
                walk(inner, f"{path}[{i}]")

    walk(json.loads(body, object_pairs_hook=_members), "")
    return found
