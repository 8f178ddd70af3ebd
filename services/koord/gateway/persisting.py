"""Steps that must be done before anything else may go on, however long the API or the bus is away."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from koord.bus.errors import BusError
from koord.gateway.api import ApiUnavailable
from koord.gateway.leanclient import RequestFailed
from koord.gateway.settling import Unsettleable
from koord.telemetry.logs import get_logger

log = get_logger("koord.gateway.barrier")

AGAIN_S: Final = 0.2
_COMPLAIN_S: Final = 5.0

T = TypeVar("T")


async def persist(step: Callable[[], Awaitable[T]]) -> T:
    """Do one step until there is an answer; told now and then, for it may be long. Unsettleable, which is one."""
    complained_s = float("-inf")
    while True:
        try:
            return await step()
        except Unsettleable:
            raise
        except (ApiUnavailable, RequestFailed, BusError) as error:
            if time.monotonic() - complained_s > _COMPLAIN_S:
                complained_s = time.monotonic()
                log.warning("barrier: goes on later", error=str(error))
            await asyncio.sleep(AGAIN_S)
