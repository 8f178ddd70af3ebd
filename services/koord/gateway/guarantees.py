"""What the API server promises about Bindings, and what holds where it promises less.

A Binding carries the pod's uid and resourceVersion as preconditions, and koord's fencing rests on them: a request that
is overtaken must fail. Releases of Kubernetes before 1.23 read neither. There a gateway lets one scheduler bind, and
where it would change a pod's version to make older requests fail it waits until none can be under way any more.
"""

import asyncio
import time
from collections.abc import Callable

from koord.contracts.asks import BindingGuarantees, Preconditions, WhichGuarantees
from koord.gateway import metrics
from koord.telemetry.logs import get_logger

log = get_logger("koord.gateway.guarantees")

SEAT_S = 6.0
"""A scheduler that was not heard for so long is not the one that binds any more; it asks each two seconds."""
_GAUGE: dict[Preconditions, int] = {"honoured": 1, "ignored": 0, "unknown": -1}


class Guarantees:
    """The verdict of the probe (:mod:`koord.gateway.probing`), and the seat of the one scheduler where it must be one.

    ``api_timeout_s``: so long the API server may work on a request whose sender is gone. ``tried`` is set when there is
    a verdict, or has been no way to one. ``is_dead`` proves the death of an incarnation, where that can be.
    """

    def __init__(
        self,
        api_timeout_s: float = 60.0,
        *,
        is_dead: Callable[[str], bool] | None = None,
        preconditions: Preconditions = "unknown",
    ) -> None:
        self.preconditions: Preconditions = preconditions
        self.server = ""
        self.tried = asyncio.Event()
        self._honoured = asyncio.Event()
        self.api_timeout_s = api_timeout_s
        self._is_dead = is_dead
        self._seat = ""
        self._heard_s = 0.0

    @classmethod
    def full(cls, api_timeout_s: float = 60.0) -> "Guarantees":
        """Those of a server that is known to honour preconditions."""
        full = cls(api_timeout_s, preconditions="honoured")
        full.tried.set()
        full._honoured.set()
        return full

    @property
    def outlive_s(self) -> float:
        """How long to wait before an older request certainly has no effect any more; 0 where its version fails it."""
        return 0.0 if self.preconditions == "honoured" else self.api_timeout_s

    async def outlived(self) -> bool:
        """Once no claim is spent any more: wait until no older Binding can have an effect, unless its version fails it.

        True if that was waited for: then every older request is over, whatever it would have written.
        """
        await self.tried.wait()
        if not self.outlive_s:
            return False
        log.warning("waiting for old requests", seconds=self.outlive_s, preconditions=self.preconditions)
        try:
            async with asyncio.timeout(self.outlive_s):
                await self._honoured.wait()  # the first tries may have found no way to a verdict
        except TimeoutError:
            return True
        return False

    def found(self, preconditions: Preconditions, server: str, why: str) -> None:
        """Take a verdict."""
        if preconditions != self.preconditions or server != self.server:
            if preconditions == "honoured":
                log.info("the API server honours preconditions of Bindings", server=server)
            else:
                log.warning(
                    "only one scheduler may bind: preconditions of Bindings are " + preconditions,
                    server=server,
                    why=why,
                    remedy="docs/compatibility.md",
                )
        self.preconditions, self.server = preconditions, server
        if preconditions == "honoured":
            self._honoured.set()
        else:
            self._honoured.clear()
        metrics.PRECONDITIONS.set(_GAUGE[preconditions])
        self.tried.set()

    def may_bind(self, scheduler: str, now: float | None = None) -> bool:
        """Whether this incarnation may bind; where only one may, the first that asks while the seat is free has it."""
        if self.preconditions == "honoured":
            return True
        now = time.monotonic() if now is None else now
        free = now - self._heard_s > SEAT_S or (self._is_dead is not None and self._is_dead(self._seat))
        if scheduler and (not self._seat or free):
            if scheduler != self._seat:
                log.info("this scheduler binds, the others stand by", scheduler=scheduler)
            self._seat = scheduler
        if scheduler == self._seat:
            self._heard_s = now
        return scheduler == self._seat

    async def answer(self, question: WhichGuarantees) -> BindingGuarantees:
        """What is known. A scheduler that asks is heard, and has the seat if that is free."""
        if self.preconditions == "honoured":
            return BindingGuarantees("honoured", self.server)
        self.may_bind(question.scheduler)
        return BindingGuarantees(self.preconditions, self.server, self._seat)

    def refusal(self) -> str:
        """Why a bind of another scheduler is rejected."""
        return (
            f"only one scheduler may bind, which is {self._seat}: preconditions of Bindings are {self.preconditions} "
            f"by the API server ({self.server or 'of unknown version'})"
        )
