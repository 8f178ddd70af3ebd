"""The quota service's writes under way (:mod:`koord.runtime.underway`), each with the step that it was made for."""

from koord.quota.profiles import Step
from koord.runtime.underway import UnderWay, Write


class _StepWrite(Write):
    step: Step | None = None


class Writes:
    """By object, whatever names it. A write of which nothing was heard for ``patience_s`` may be made again."""

    def __init__(self, patience_s: float) -> None:
        self._writes: UnderWay[_StepWrite] = UnderWay(patience_s)

    def __len__(self) -> int:
        return len(self._writes)

    def begin(self, key: str, id_: str, now_s: float, step: Step | None = None) -> bool:
        """The object is written with decision ``id_`` (for ``step``); False: not now, a write is under way."""
        return self._writes.begin(_StepWrite(key, id_, now_s, step))

    def seen(self, key: str) -> None:
        """The object changed: what is to be written now follows from what it shows."""
        self._writes.end(key)

    def ended(self, id_: str, *, at_once: bool) -> tuple[str, Step | None] | None:
        """A result: the object and the step, if that write was waited for.

        Only ``at_once`` is it free again: what was done is still to be seen, and what was refused would be again.
        """
        write = self._writes.heard(id_)
        if write is None:
            return None
        if at_once:
            self._writes.end(write.key)
        return write.key, write.step

    def clear(self) -> None:
        """Nothing is under way: what was decided did not go out."""
        self._writes.clear()
