"""Who is the one gateway: a Kubernetes Lease, because without the API server a gateway has nothing to do.

The Lease only elects. What fences a predecessor that does not know that it lost is the epoch of the ledger: each
leader takes a new one (``ledger.lead``) before its first write. Who can prove that the holder died (``is_dead``) need
not wait until the Lease has run out.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Literal

import msgspec

from koord.gateway.api import Api, ApiUnavailable
from koord.gateway.leanclient import RequestFailed
from koord.gateway.objects import read_status
from koord.kube.meta import micro_rfc3339, parse_time
from koord.kube.resources import LEASES, NAMESPACES
from koord.runtime.ending import end
from koord.telemetry.logs import get_logger

log = get_logger("koord.gateway.election")

MARGIN_S = 0.5
"""The role is given up this long before another may take it."""
SKEW_S = 0.5
"""How far two clocks may be apart."""
REMIND_S = 30.0
"""A reason for which the Lease cannot be had is told at once, and again this often while it stays."""


class _Spec(msgspec.Struct, rename="camel", omit_defaults=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Meta(msgspec.Struct, rename="camel", omit_defaults=True):
    name: str
    namespace: str
    resource_version: str = ""


class _Lease(msgspec.Struct, rename="camel"):
    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    api_version: str = "coordination.k8s.io/v1"
    kind: str = "Lease"


_decode = msgspec.json.Decoder(_Lease).decode
_encode = msgspec.json.encode


class LeaseElection:
    """One Lease. ``await acquire()``, work until ``lost`` is set, ``await release()``."""

    def __init__(
        self,
        api: Api,
        identity: str,
        *,
        namespace: str = "koord-system",
        name: str = "koord-gateway",
        duration_s: float = 10.0,
        renew_s: float = 1.0,
        is_dead: Callable[[str], bool] | None = None,
        on_standby: Callable[[], None] | None = None,
    ) -> None:
        self._api = api
        self._identity = identity
        self._namespace = namespace
        self._name = name
        self._duration_s = duration_s
        self._renew_s = renew_s
        self._is_dead = is_dead
        self._on_standby = on_standby
        self._lease: _Lease | None = None
        self._renewed = 0.0
        self._keeper: asyncio.Task[None] | None = None
        self.lost = asyncio.Event()

    @property
    def held(self) -> bool:
        """Whether the role is ours by our own clock; once it is not, it is lost: a sleep too long ends it."""
        if self._keeper is None or self.lost.is_set():
            return False
        if time.monotonic() >= self._renewed + self._duration_s - MARGIN_S:
            self.lost.set()
            return False
        return True

    async def acquire(self) -> None:
        """Wait until the role is ours; outages are waited out."""
        self.lost = asyncio.Event()
        seen: tuple[str | None, str] = ("", "")
        seen_at = 0.0
        waiting_for: str | None = ""
        told, told_at = "", 0.0
        while True:
            begun = time.monotonic()
            try:
                lease = await self._read()
                if lease is None:
                    if await self._write(_Lease(_Meta(self._name, self._namespace), self._spec(0)), "create"):
                        break
                else:
                    holder = lease.spec.holder_identity
                    now = (holder, lease.metadata.resource_version)
                    if now != seen:
                        seen, seen_at = now, begun
                    if self._may_take(holder, lease.spec, begun - seen_at):
                        transitions = (lease.spec.lease_transitions or 0) + (holder != self._identity)
                        taken = _Lease(lease.metadata, self._spec(transitions))
                        if await self._write(taken, "update"):
                            break
                    elif holder != waiting_for:
                        log.info("another gateway leads, standing by", holder=holder)
                        waiting_for = holder
                        if self._on_standby is not None:
                            self._on_standby()
            except (RequestFailed, ApiUnavailable) as error:
                if str(error) != told or begun - told_at >= REMIND_S:
                    told, told_at = str(error), begun
                    log.warning("the lease cannot be asked for", error=told)
            await asyncio.sleep(self._renew_s / 5)
        self._renewed = begun
        log.info("leading", identity=self._identity)
        self._keeper = asyncio.create_task(self._keep(), name="gateway-lease")

    async def release(self) -> None:
        """Give the role back at once, if it is held."""
        held = not self.lost.is_set()
        if self._keeper is not None:
            await end(self._keeper)
            self._keeper = None
        lease, self._lease = self._lease, None
        if lease is not None and held:
            spec = msgspec.structs.replace(lease.spec, holder_identity=None, lease_duration_seconds=1)
            try:
                await self._write(_Lease(lease.metadata, spec), "update")
                self._lease = None
            except (RequestFailed, ApiUnavailable) as error:
                log.info("the lease was not given back, it expires", error=str(error))
        self.lost.set()

    async def _keep(self) -> None:
        try:
            while True:
                await asyncio.sleep(self._renew_s)
                while not await self._renew():
                    left = self._renewed + self._duration_s - MARGIN_S - time.monotonic()
                    if left <= 0:
                        log.error("the lease was not renewed in time, giving up the role")
                        return
                    await asyncio.sleep(min(0.2, left))
        except _Taken as taken:
            log.error("another gateway has the lease", holder=str(taken))
        finally:
            self.lost.set()

    async def _renew(self) -> bool:
        begun = time.monotonic()
        lease = self._lease
        assert lease is not None
        left = self._renewed + self._duration_s - MARGIN_S - begun
        spec = msgspec.structs.replace(lease.spec, renew_time=micro_rfc3339(time.time()))
        try:
            async with asyncio.timeout(max(0.1, left)):
                if not await self._write(_Lease(lease.metadata, spec), "update"):
                    current = await self._read()
                    if current is None or current.spec.holder_identity != self._identity:
                        raise _Taken(current.spec.holder_identity if current is not None else "nobody: it was deleted")
                    self._lease = current  # a renewal of ours whose answer was lost
                    return False
        except (RequestFailed, ApiUnavailable, TimeoutError) as error:
            log.warning("the lease is not renewed yet", error=str(error) or "no answer in time")
            return False
        self._renewed = begun
        return True

    def _may_take(self, holder: str | None, spec: _Spec, unchanged_s: float) -> bool:
        if not holder or holder == self._identity:
            return True
        return (self._is_dead is not None and self._is_dead(holder)) or self._is_free(spec, unchanged_s)

    def _is_free(self, spec: _Spec, unchanged_s: float) -> bool:
        """Whether the holder is dead: the Lease did not change for its duration by our clock alone.

        Or for two renewals, if by the clock of the wall it has run out as well: who starts right after a crash need not
        wait for the whole duration again. A clock that is wrong can then cost at most what the ledger fences anyway.
        """
        duration = float(spec.lease_duration_seconds or self._duration_s)
        if unchanged_s > duration:
            return True
        if unchanged_s < 2 * self._renew_s or not spec.renew_time:
            return False
        try:
            return time.time() > parse_time(spec.renew_time) + duration + SKEW_S
        except ValueError:
            return False

    async def _read(self) -> _Lease | None:
        answer = await self._api.once("get", LEASES.path(self._namespace, self._name))
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise ApiUnavailable(f"get lease {self._name}: {answer.status} {read_status(answer.body).message}")
        return _decode(answer.body)

    async def _write(self, lease: _Lease, verb: Literal["create", "update"]) -> bool:
        name = self._name if verb == "update" else ""
        answer = await self._api.once(verb, LEASES.path(self._namespace, name), _encode(lease))
        if answer.status in (200, 201):
            self._lease = _decode(answer.body)
            return True
        if answer.status == 404 and verb == "create":
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self._namespace}}
            made = await self._api.once("create", NAMESPACES.path(), _encode(body))
            if made.status not in (201, 409):
                raise ApiUnavailable(
                    f"create namespace {self._namespace}: {made.status} {read_status(made.body).message}"
                )
            return False
        if answer.status in (404, 409):
            return False
        raise ApiUnavailable(f"{verb} lease {self._name}: {answer.status} {read_status(answer.body).message}")

    def _spec(self, transitions: int) -> _Spec:
        now = micro_rfc3339(time.time())
        return _Spec(self._identity, int(self._duration_s), now, now, transitions)


class _Taken(Exception):
    """Another holder."""
