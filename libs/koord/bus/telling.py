"""How a state cache tells its user: each change, those of a slice, bad bodies. What the user raises harms nothing."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from koord.bus.changes import Change
from koord.contracts.codec import ContractError
from koord.telemetry.logs import get_logger
from koord.telemetry.metrics import counter

T = TypeVar("T")

log = get_logger("koord.bus")
_bad = counter("koord_bus_state_bad_bodies", "State messages that did not decode", ("resource",))


class Telling(Generic[T]):
    """The callbacks of one cache, of the resource ``token``."""

    def __init__(
        self,
        token: str,
        on_change: Callable[[Change[T]], None] | None,
        on_batch: Callable[[Sequence[Change[T]]], None] | None,
        on_bad: Callable[[str, ContractError], None] | None,
    ) -> None:
        self._token = token
        self._on_change = on_change
        self._on_batch = on_batch
        self._on_bad = on_bad
        self._batch: list[Change[T]] = []

    @property
    def begun(self) -> bool:
        """Whether the slice has exactly one change."""
        return len(self._batch) == 1

    def tell(self, change: Change[T]) -> None:
        """One difference."""
        if self._on_batch is not None:
            self._batch.append(change)
        if self._on_change is not None:
            try:
                self._on_change(change)
            except Exception:
                log.exception("on_change failed", resource=self._token, key=change.key, kind=change.kind)

    def flush(self) -> None:
        """The end of a slice."""
        if not self._batch:
            return
        batch, self._batch = self._batch, []
        if self._on_batch is not None:
            try:
                self._on_batch(batch)
            except Exception:
                log.exception("on_batch failed", resource=self._token, changes=len(batch))

    def report(self, key: str, error: ContractError) -> None:
        """A body or a header that does not decode."""
        _bad.labels(self._token).inc()
        if self._on_bad is None:
            log.warning("a state message does not decode, the last good version stays", key=key, error=str(error))
            return
        try:
            self._on_bad(key, error)
        except Exception:
            log.exception("on_bad failed", resource=self._token, key=key)
