"""Writes under way: no object is written again before the last write of it has shown, failed or been silent too long.

What is known of a write goes with it. Results are told once and may be lost, so nothing here waits for one for good.
"""

import msgspec

from koord.quota.profiles import Step


class _Write(msgspec.Struct, frozen=True):
    id: str
    since_s: float
    step: Step | None


class Writes:
    """By object, whatever names it. A write of which nothing was heard for ``patience_s`` may be made again."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._of: dict[str, _Write] = {}
        self._waiting: dict[str, str] = {}
        """Objects by the id of the decision that has no result yet."""

    def __len__(self) -> int:
        return len(self._of) + len(self._waiting)

    def begin(self, key: str, id_: str, now_s: float, step: Step | None = None) -> bool:
        """The object is written with decision ``id_`` (for ``step``); False: not now, a write is under way."""
        held = self._of.get(key)
        if held is not None and now_s - held.since_s < self._patience_s:
            return False
        self.seen(key)
        self._of[key] = _Write(id_, now_s, step)
        self._waiting[id_] = key
        return True

    def seen(self, key: str) -> None:
        """The object changed: what is to be written now follows from what it shows."""
        held = self._of.pop(key, None)
        if held is not None:
            self._waiting.pop(held.id, None)

    def ended(self, id_: str, *, at_once: bool) -> tuple[str, Step | None] | None:
        """A result: the object and the step, if that write was waited for.

        Only ``at_once`` is it free again: what was done is still to be seen, and what was refused would be again.
        """
        key = self._waiting.pop(id_, None)
        if key is None:
            return None
        return key, (self._of.pop(key) if at_once else self._of[key]).step

    def clear(self) -> None:
        """Nothing is under way: what was decided did not go out."""
        self._of.clear()
        self._waiting.clear()
