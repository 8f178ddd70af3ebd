"""A reconciler may not tell the ledger less than it was told already (spec 20 section 3.12, "a new R catches up").

An older version of an object that has a record is ignored. But who lags may also tell of what has ended: a node that
was deleted would be open again, an admission that was taken back would end a new claim, and a record whose object has
not been read yet would be ended although the object lives. So whoever takes over reads on until it holds all that its
predecessor can have folded.

``lead`` has made the predecessor stale by then: what the ledger says of it is final, and all that it folded is in the
stream, or was in one that is lost. Nothing of a lost one has to be caught up with: the new one is read as complete only
once the gateway has listed the API into it, and that list is younger than anything that came through the old one
(docs/decisions/007). Only a stream that lives on without its last messages has no such list: what was folded of them
cannot be read any more, and the ledger has to be rebuilt behind a barrier, which lists.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Final

from koord.bus.connection import Bus
from koord.bus.errors import BusError
from koord.bus.statecache import StateCache
from koord.bus.streams import state_life
from koord.ledger.model import Folded
from koord.telemetry.logs import get_logger

log = get_logger("koord.reconciler.catchingup")

TRY_S: Final = 5.0
"""One try; the next asks anew for the end of the stream, for what was there may be a tombstone whose time is over."""
_AGAIN_S: Final = 0.1
_COMPLAIN_S: Final = 5.0


Caches = Sequence[StateCache[Any]]


async def catch_up(bus: Bus, caches: Caches, folded: Folded) -> bool:
    """Wait until ``caches`` hold all that can have been folded, however long nobody answers.

    False if the stream lost messages that were folded: there is nothing to catch up with, only a rebuild helps.
    """
    began_s = complained_s = time.monotonic()
    while True:
        try:
            async with asyncio.timeout(TRY_S):
                epoch, last = await state_life(bus, folded.sequence, folded.epoch)
                if epoch == folded.epoch and last < folded.sequence:
                    log.warning("the state stream lost what was folded", ends=last, folded=folded.sequence)
                    return False
                await asyncio.gather(*(cache.level() for cache in caches))
            if all(cache.epoch == epoch for cache in caches):
                break
        except (BusError, TimeoutError) as error:
            if time.monotonic() - complained_s > _COMPLAIN_S:
                complained_s = time.monotonic()
                log.warning("still behind what was folded", error=str(error) or "the caches are not complete")
        await asyncio.sleep(_AGAIN_S)
    seconds = round(time.monotonic() - began_s, 3)
    if folded.epoch and folded.epoch != epoch:
        log.warning("the state stream was made anew, caught up with its list", was=folded.epoch, now=epoch, s=seconds)
    else:
        log.info("caught up", sequence=folded.sequence, last=last, s=seconds)
    return True


async def level(bus: Bus, caches: Caches) -> bool:
    """Have ``caches`` hold what the stream holds now; False if nobody says what that is, or they are late."""
    try:
        async with asyncio.timeout(TRY_S):
            epoch, _ = await state_life(bus)
            await asyncio.gather(*(cache.level() for cache in caches))
    except (BusError, TimeoutError):
        return False
    return all(cache.epoch == epoch for cache in caches)
