"""One resource: list it once, follow it, and keep the state stream equal to it.

A watch resumes where it broke. Only when the server can no longer continue (410), or a line could not be read, is the
resource listed again; then what the stream holds is compared with the list, differences are published, and what
vanished becomes a tombstone. The stream is therefore right after any gap, and nothing is published twice for nothing.

A standby lists and watches, too, and publishes nothing: it knows the versions, and the bodies of recent changes. When
it takes over it compares these with what the stream holds and publishes the differences at once.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Mapping
from typing import Literal

import aiohttp

from koord.bus.errors import BusError, TooLarge
from koord.contracts.state import ChangeType
from koord.gateway import metrics
from koord.gateway.access import ApiAccess
from koord.gateway.apifeed import ApiFeed, Expired, Refused
from koord.gateway.objects import Brief, ObjectError, read_line, read_object, read_status, read_version, stub
from koord.gateway.recent import Recent, missing
from koord.gateway.sinks import StateSink, Watcher
from koord.kube.resources import PODS, Resource
from koord.runtime.gathering import Gathering
from koord.telemetry.logs import get_logger

COMPANY = 8
GATHER_S = 0.02
"""From 400 changes a second on a watch is read in batches of about eight, at most so far apart."""
ABSENT_S = 60.0
"""How long a resource must be unknown to the server before its objects count as deleted."""
_SETTLE_S = 0.5

log = get_logger("koord.gateway.reflector")


class Reflector:
    """Follows one resource. ``watcher`` sees every change before it is published.

    ``publishing`` False: as a standby, until :meth:`lead`. ``may_publish`` is asked before anything that arrived is
    published: a process that slept through the end of its leadership must not put old states over new ones.

    ``state`` is ``starting``, ``synced``, ``absent`` (the server does not know the resource: a missing CRD) or
    ``failing``; ``note`` says why it is not synced.
    """

    def __init__(
        self,
        resource: Resource,
        access: ApiAccess,
        session: aiohttp.ClientSession,
        sink: StateSink,
        *,
        watcher: Watcher | None = None,
        on_state: Callable[["Reflector"], None] | None = None,
        publishing: bool = True,
        may_publish: Callable[[], bool] | None = None,
    ) -> None:
        self.resource = resource
        self.publishing = publishing
        self.state: Literal["starting", "synced", "absent", "failing"] = "starting"
        self.note = ""
        self._feed = ApiFeed(resource, access, session)
        self._sink = sink
        self._watcher = watcher
        self._on_state = on_state
        self._may_publish = may_publish
        self._known: dict[str, str] | None = None
        self._recent = Recent()
        self._version = ""
        self._lost: BaseException | None = None
        self._cycle: asyncio.Task[float] | None = None
        self._resetting = False
        self._absent_since = 0.0
        self._mark = ""
        self._marked: asyncio.Future[None] | None = None
        self._hurry = asyncio.Event()
        self._pod = resource is PODS or resource.token == PODS.token
        self._events = metrics.WATCH_EVENTS.labels(resource.token)
        self._relists = metrics.RELISTS.labels(resource.token)

    @property
    def objects(self) -> int:
        """How many live objects are known."""
        return len(self._known or ())

    def reset(self) -> None:
        """Distrust what the stream was seen to hold (it was made anew): list again and publish what it lacks."""
        if self.publishing:  # a standby does not go by what the stream holds
            self._forget()
            self._again()

    async def lead(self) -> None:
        """Publish from now on, first what the stream lacks; afterwards it is complete, or is being listed anew."""
        if self.publishing:
            return
        held: Mapping[str, str] | None = None
        if self._known is not None and self._version:
            with contextlib.suppress(BusError):
                held = await self._sink.held(self.resource)
        self.publishing = True
        self._absent_since = 0.0
        warm = held is not None and self._known is not None and self._version
        lacking = missing(self._known or {}, held or {}, self._recent) if warm else None
        self._recent.clear()
        if lacking is None:
            self.reset()
            return
        for type_, brief in lacking:
            self._send(type_, brief)
        try:
            await self._listed(self._version)
        except BusError:
            self.reset()

    def stand_by(self) -> None:
        """Publish nothing from now on."""
        self.publishing = False
        self._lost = None

    async def compare(self) -> None:
        """Somebody else wrote to the stream: read it back, and list again if it is not what was published.

        Twice: what differs only because it was on its way is no longer so a moment later.
        """
        wrong: dict[str, str | None] | None = None
        while True:
            try:
                held = await self._sink.held(self.resource)
            except BusError:
                self.reset()
                return
            known = self._known
            if not self.publishing or known is None or not self._version:
                return  # it is compared, or listed, in any case
            differ = {key: held.get(key) for key in known.keys() | held.keys() if known.get(key) != held.get(key)}
            if wrong is not None:
                break
            wrong = differ
            if not wrong:
                return
            await asyncio.sleep(_SETTLE_S)
        if any(differ.get(key, "") == version for key, version in wrong.items()):
            self._known, self._version = dict(held), ""
            self._again()

    def trim(self) -> None:
        """Let go of the bodies of changes that are not recent any more."""
        self._recent.trim(time.monotonic())

    async def list_anew(self, mark: str) -> None:
        """List with a consistent read and publish the differences; ``mark`` is in the marker from then on.

        Returns when the stream has it, however often the list has to be repeated. A later call supersedes this one.
        """
        self._mark, self._version = mark, ""
        self._marked = asyncio.get_running_loop().create_future()
        self._again()
        await self._marked

    def _again(self) -> None:
        """End the present cycle, or the wait for the next one."""
        self._hurry.set()
        if self._cycle is not None and not self._cycle.done():
            self._resetting = True
            self._cycle.cancel()

    async def run(self) -> None:
        """Follow the resource until cancelled."""
        failures = 0
        while True:
            began = time.monotonic()
            self._hurry.clear()
            self._cycle = asyncio.ensure_future(self._list_and_watch(failures))
            try:
                delay = await self._cycle
            except asyncio.CancelledError:
                if not self._resetting:
                    self._cycle.cancel()
                    raise
                self._resetting, delay = False, 0.0
            failures = 0 if time.monotonic() - began > 60.0 or not delay else failures + 1
            if delay:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(delay * random.uniform(0.5, 1.5)):
                        await self._hurry.wait()

    async def _list_and_watch(self, failures: int) -> float:
        """One cycle; answers how long to wait before the next."""
        try:
            if not self._version:
                await self._relist()
            await self._watch()
            return 0.0
        except Expired:
            self._version = ""
            log.info("watch expired; listing again", resource=self.resource.token)
            return 0.05
        except ObjectError as error:
            self._version = ""
            metrics.BAD_OBJECTS.labels(self.resource.token).inc()
            log.warning("unreadable; listing again", resource=self.resource.token, error=str(error))
            return min(30.0, 0.2 * 2.0 ** min(failures, 8))
        except Refused as error:
            await self._refused(error)
            return 5.0 if error.code == 404 else min(30.0, 0.5 * 2.0 ** min(failures, 6))
        except BusError as error:
            self._forget()  # a change is missing in the stream: read it back and compare
            self._set("failing", f"{type(error).__name__}: {error}")
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            self._set("failing", f"{type(error).__name__}: {error}")
        return min(10.0, 0.1 * 2.0 ** min(failures, 7))

    def _forget(self) -> None:
        self._known = None
        self._version = ""
        self._lost = None

    # List and compare ---------------------------------------------------------------------------------------------

    async def _relist(self) -> None:
        self._relists.inc()
        if self._known is None:
            self._known = dict(await self._sink.held(self.resource)) if self.publishing else {}
        known = self._known
        first = not known
        seen: set[str] = set()
        version = ""
        async for page in self._feed.pages():
            for raw in page.items:
                try:
                    brief = self._read(raw)
                except ObjectError as error:
                    metrics.BAD_OBJECTS.labels(self.resource.token).inc()
                    log.warning("unreadable object left out", resource=self.resource.token, error=str(error))
                    continue
                key = _key(brief)
                seen.add(key)
                held = known.get(key)
                if held != brief.resource_version:
                    if self._may():
                        await self._sink.room()
                    self._publish("ADDED" if held is None else "MODIFIED", brief, recent=not first)
                elif self._watcher is not None:
                    self._watcher.observe("MODIFIED", key, brief)
            version = page.resource_version
        for key in [key for key in known if key not in seen]:
            await self._bury(key, version)
        await self._listed(version)
        self._version = version
        self._absent_since = 0.0
        self._set("synced", "")

    # Follow -------------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        gathering = Gathering(COMPANY, GATHER_S)
        async with contextlib.aclosing(self._feed.changes(self._version)) as changes:
            async for lines in changes:
                self._set("synced", "")
                self._may()
                for line in lines:
                    if line:
                        self._take(line)
                self._events.inc(len(lines))
                self._check()
                if self.publishing:
                    await self._sink.room()
                gathering.came(len(lines), now := time.monotonic())
                if len(lines) < COMPANY and (pause := gathering.pause_s(now)):
                    await asyncio.sleep(pause)

    def _take(self, line: bytes) -> None:
        type_, raw = read_line(line)
        if type_ == "BOOKMARK":
            self._version = read_version(raw)
            return
        if type_ == "ERROR":
            status = read_status(raw)
            if status.code == 410 or status.reason == "Expired":
                raise Expired
            raise Refused(status.code, status.message)
        brief = self._read(raw)
        self._publish(type_, brief)
        self._version = brief.resource_version

    def _read(self, raw: bytes) -> Brief:
        resource = self.resource
        return read_object(raw, kind=resource.kind, api_version=resource.api_version, pod=self._pod)

    def _may(self) -> bool:
        """Whether this is the one who publishes; if the leadership ended unnoticed, it is over from here on."""
        if self.publishing and self._may_publish is not None and not self._may_publish():
            self.stand_by()
        return self.publishing

    def _publish(self, type_: ChangeType, brief: Brief, *, recent: bool = True) -> None:
        known = self._known
        if known is None:
            raise Expired  # reset meanwhile: what the stream holds is not known any more
        key = _key(brief)
        if self._watcher is not None:
            self._watcher.observe(type_, key, brief)
        if type_ == "DELETED":
            known.pop(key, None)
        else:
            known[key] = brief.resource_version
        if self.publishing:
            self._send(type_, brief)
        elif recent:
            self._recent.put(key, type_, brief, time.monotonic())

    def _send(self, type_: ChangeType, brief: Brief) -> None:
        publish, resource, version = self._sink.publish, self.resource, brief.resource_version
        try:
            future = publish(resource, type_, brief.namespace, brief.name, version, brief.body)
        except TooLarge as error:
            # The last version that fitted stays, and everything else goes on.
            metrics.BAD_OBJECTS.labels(resource.token).inc()
            log.warning("too large, left out", resource=resource.token, object=_key(brief), error=str(error))
            if type_ != "DELETED":
                return
            future = publish(resource, type_, brief.namespace, brief.name, version, stub(brief))
        future.add_done_callback(self._stored)

    async def _bury(self, key: str, version: str) -> None:
        if self.publishing:
            await self._sink.bury(self.resource, key, version)
        if self._watcher is not None:
            self._watcher.drop(key)
        if self._known is not None:
            self._known.pop(key, None)

    def _stored(self, future: "asyncio.Future[int]") -> None:
        if future.cancelled():
            return
        error = future.exception()
        if error is None:
            self._sink.stored(future.result())
        elif self.publishing:
            self._lost = error

    def _check(self) -> None:
        """Raise if the stream did not take a change."""
        lost, self._lost = self._lost, None
        if lost is not None:
            raise lost

    async def _listed(self, version: str) -> None:
        if not self.publishing:
            return
        marked = self._marked
        await self._sink.listed(self.resource, version, self._mark)
        self._check()
        if marked is not None and marked is self._marked and not marked.done():
            marked.set_result(None)

    # Around it ----------------------------------------------------------------------------------------------------

    async def _refused(self, error: Refused) -> None:
        if error.code != 404:
            self._set("failing", str(error))
            return
        now = time.monotonic()
        first = not self._absent_since
        self._absent_since = self._absent_since or now
        self._version = ""
        try:
            if self._known is None:
                self._known = dict(await self._sink.held(self.resource)) if self.publishing else {}
            if self._known and now - self._absent_since > ABSENT_S:
                for key, version in list(self._known.items()):
                    await self._bury(key, version)
                first = True
            wanted = self._marked is not None and not self._marked.done()
            if wanted or (first and not self._known):
                await self._listed("0")  # readers need not wait for what does not exist
        except BusError as trouble:
            self._forget()
            self._absent_since = 0.0
            log.warning("absent resource", resource=self.resource.token, error=str(trouble))
        self._set("absent", "the API server does not know this resource (is its CRD installed?)")

    def _set(self, state: Literal["synced", "absent", "failing"], note: str) -> None:
        if (state, note) == (self.state, self.note):
            return
        if state != self.state:
            log.info("resource", resource=self.resource.token, state=state, note=note)
        self.state, self.note = state, note
        if self._on_state is not None:
            self._on_state(self)


def _key(brief: Brief) -> str:
    return f"{brief.namespace}/{brief.name}" if brief.namespace else brief.name
