"""Whether replicas may share the pods: the gateway knows if the API server keeps their Bindings apart.

Where it does not, one scheduler binds and the others stand by until it is gone; the gateway says which, and refuses the
binds of any other. A gateway that does not answer, or is too old to know, changes nothing.
"""

import asyncio
from collections.abc import Callable

from koord.bus.connection import Bus
from koord.bus.errors import BusError
from koord.bus.questions import ask
from koord.contracts.asks import BindingGuarantees, WhichGuarantees
from koord.contracts.codec import ContractError

EVERY_S = 2.0


async def watch_seat(bus: Bus, incarnation: str, on_alone: Callable[[str], None], every_s: float = EVERY_S) -> None:
    """Until cancelled; ``on_alone`` is told the one scheduler that may bind, or nothing where all may."""
    question = WhichGuarantees(incarnation)
    while True:
        try:
            answer = await ask(bus, "gateway", "guarantees", question, BindingGuarantees, timeout=every_s)
        except (BusError, ContractError):
            pass
        else:
            on_alone("" if answer.preconditions == "honoured" else answer.scheduler)
        await asyncio.sleep(every_s)
