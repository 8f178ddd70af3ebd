"""Writes that a service decided and whose effect it has not seen: one per object, and how long to pause after failures.

An object is busy from its decision until the state shows the write, the gateway says that it failed, or it was silent
for too long; results are told once and may be lost, so nothing here waits for one for good. What to do about a failed
write is for the service to derive again from what it sees by then. Pure: seconds of one monotonic clock are passed in.
"""

from collections.abc import Iterator
from typing import Generic, TypeVar

import msgspec


class Write(msgspec.Struct):
    """One decision about the object ``key`` (whatever names it), sent at ``sent_s``. Services add what they need."""

    key: str
    id: str
    sent_s: float


W = TypeVar("W", bound=Write)


class UnderWay(Generic[W]):
    """Writes by object and by decision. One that was silent for ``patience_s`` is *overdue*."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._by_key: dict[str, W] = {}
        self._by_id: dict[str, W] = {}
        """Those that no result was :meth:`heard` of."""

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[W]:
        return iter(self._by_key.values())

    def __contains__(self, key: str) -> bool:
        return key in self._by_key

    def begin(self, write: W) -> bool:
        """The object is being written; False: another write of it is under way, and not overdue when this is sent."""
        held = self._by_key.get(write.key)
        if held is not None and write.sent_s - held.sent_s < self._patience_s:
            return False
        self.end(write.key)
        self._by_key[write.key] = write
        self._by_id[write.id] = write
        return True

    def of(self, key: str) -> W | None:
        """The write of an object."""
        return self._by_key.get(key)

    def unheard(self, id_: str) -> W | None:
        """The write with that decision, if it was not :meth:`heard` of."""
        return self._by_id.get(id_)

    def heard(self, id_: str) -> W | None:
        """A result: its write, once. The object stays busy until :meth:`end`: what was done is still to be seen."""
        return self._by_id.pop(id_, None)

    def end(self, key: str) -> W | None:
        """The object shows the write, is gone, or may be written anew: the write that was under way."""
        write = self._by_key.pop(key, None)
        if write is not None:
            self._by_id.pop(write.id, None)
        return write

    def overdue(self, now_s: float) -> list[W]:
        """Writes that were silent for too long."""
        return [write for write in self._by_key.values() if now_s - write.sent_s >= self._patience_s]

    def next_overdue_s(self) -> float | None:
        """When the next one will be."""
        return min((write.sent_s + self._patience_s for write in self._by_key.values()), default=None)

    def clear(self) -> None:
        """Nothing is under way: what was decided did not go out, or another does it now."""
        self._by_key.clear()
        self._by_id.clear()


class Pauses:
    """How long to leave an object alone after failures in a row: ``first_s``, doubled each time up to ``longest_s``."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._failures: dict[str, int] = {}
        self._until: dict[str, float] = {}

    def failed(self, key: str, now_s: float, *, free: int = 0) -> None:
        """A write failed; up to ``free`` failures in a row cost no pause."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        if failures > free:
            self._until[key] = now_s + min(self._first_s * 2.0 ** min(failures - 1, 16), self._longest_s)

    def hold(self, key: str, now_s: float) -> None:
        """No failure, but leave it alone for ``first_s`` or until :meth:`seen`."""
        self._until[key] = now_s + self._first_s

    def seen(self, key: str) -> None:
        """The object changed: what was only held is free."""
        if key not in self._failures:
            self._until.pop(key, None)

    def over(self, key: str) -> None:
        """It succeeded, or is no more."""
        self._failures.pop(key, None)
        self._until.pop(key, None)

    def left_s(self, key: str, now_s: float) -> float:
        """Seconds until the object may be written again."""
        return max(0.0, self._until.get(key, 0.0) - now_s)
