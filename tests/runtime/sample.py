"""A service for the runtime's own tests: ``python -m tests.runtime.sample``, told by settings how to behave."""

import asyncio
import sys

import msgspec

from koord.runtime.host import Host
from koord.runtime.run import run_service
from koord.runtime.service import ServiceSpec
from koord.runtime.settings import load_service


class SampleSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What should go wrong."""

    fail_start: bool = False
    hang_start: bool = False
    crash_after_s: float = 0.0
    drain_s: float = 0.0
    lead: bool = False


class Sample:
    """Does as it is told."""

    def __init__(self, host: Host, settings: SampleSettings) -> None:
        self._host = host
        self._settings = settings
        host.ready.require("warm")

    async def start(self) -> None:
        if self._settings.fail_start:
            raise ValueError("sample: cannot start on purpose")
        if self._settings.hang_start:
            await asyncio.Event().wait()
        if self._settings.crash_after_s:
            self._host.spawn(self._crash(), "crasher")
        if self._settings.lead:
            leadership = await self._host.lead("sample")
            print(f"leads epoch={leadership.epoch}", flush=True)
        self._host.ready.open("warm")

    async def _crash(self) -> None:
        await asyncio.sleep(self._settings.crash_after_s)
        raise ZeroDivisionError("crashed on purpose")

    async def drain(self) -> None:
        await asyncio.sleep(self._settings.drain_s)
        print("drained", flush=True)


SPEC = ServiceSpec("sample", "for tests", SampleSettings, Sample, frozenset(("bus",)))
WITH_LEDGER = ServiceSpec("sample", "for tests", SampleSettings, Sample)

if __name__ == "__main__":
    spec = WITH_LEDGER if "--ledger" in sys.argv else SPEC
    common, own = load_service(spec)
    sys.exit(run_service(spec, common, own))
