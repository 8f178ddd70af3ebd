"""Leader leases in a NATS key-value bucket: they only elect. Fencing epochs come from the ledger (design section 4).

The bucket's entries live as long as the bucket says (5 s; 15 s in a NATS cluster, which outlasts an election of its
leader); the holder writes its own again every ``renew`` seconds with the revision it knows, so two holders cannot both
succeed. A holder that could not renew in time gives up on its own clock before the entry can be taken by another. Who
can prove that the holder died (``is_dead``) takes its entry over at once. Only the bucket's leader is believed, and
where it does not answer nothing is concluded.
"""

import asyncio
import time
from collections.abc import Callable

import nats.errors
import nats.js.errors
from nats.js.kv import KeyValue

from koord.bus.connection import Bus
from koord.bus.ending import end
from koord.bus.errors import BusUnavailable
from koord.bus.streams import LEASE_TTL_S
from koord.telemetry.logs import get_logger
from koord.telemetry.metrics import gauge

log = get_logger("koord.bus")

RENEW_S = 1.5
# Given up this long before the entry expires, so that a slow loop never overlaps with the next holder.
MARGIN_S = 1.0
# A role that was given back is taken within this long.
ASK_S = 0.2
COMPLAIN_S = 10.0
# A write that a dying leader took is never answered; where there is none at all that is said at once.
ANSWER_S = 1.0
AGAIN_S = 0.2


class KvLease:
    """One role that one incarnation at a time may hold."""

    def __init__(
        self,
        bus: Bus,
        role: str,
        incarnation: str,
        *,
        renew: float = RENEW_S,
        is_dead: Callable[[str], bool] | None = None,
    ) -> None:
        self._bus = bus
        self.role = role
        self.incarnation = incarnation
        self._ttl = LEASE_TTL_S
        self._renew = renew
        self._is_dead = is_dead
        self._leading = gauge(f"koord_{role.replace('-', '_')}_leader", "1 while this process leads")
        self._revision = 0
        self._renewed = 0.0
        self._task: asyncio.Task[None] | None = None
        self._store: KeyValue | None = None
        self.lost = asyncio.Event()

    @property
    def held(self) -> bool:
        """Whether the lease is held and was renewed recently enough."""
        return self._revision > 0 and not self.lost.is_set() and time.monotonic() < self._renewed + self._ttl - MARGIN_S

    async def acquire(self) -> None:
        """Wait until the role is ours, outages included. Afterwards ``lost`` says when it is not ours any more."""
        if self._task is not None:
            await self.release()
        self.lost = asyncio.Event()
        self._store = None  # how long its entries live may have been changed
        waited = False
        complained = float("-inf")
        while True:
            begun = time.monotonic()
            try:
                self._revision = await self._take()
                if self._revision:
                    self._renewed = begun
                    break
                if not waited:
                    log.info("another instance leads, standing by", role=self.role)
                    waited = True
            except (nats.errors.Error, nats.js.errors.Error, TimeoutError, BusUnavailable) as error:
                if begun - complained > COMPLAIN_S:
                    complained = begun
                    log.warning("the lease cannot be asked for", role=self.role, error=str(error) or repr(error))
            await asyncio.sleep(ASK_S)
        self._leading.set(1)
        log.info("leading", role=self.role, incarnation=self.incarnation)
        self._task = asyncio.create_task(self._keep(), name=f"lease-{self.role}")

    async def release(self) -> None:
        """Give the role back at once, if it is held."""
        held = not self.lost.is_set()
        await end(self._task)
        self._task = None
        self._leading.set(0)
        revision, self._revision = self._revision, 0
        if revision and held and self._bus.connected:
            try:
                bucket = await self._bucket()
                await bucket.delete(self.role, last=revision)
            except (nats.errors.Error, nats.js.errors.Error, TimeoutError) as error:
                log.info("the lease was not given back, it expires", role=self.role, error=str(error) or repr(error))
        self.lost.set()

    async def _bucket(self) -> KeyValue:
        if self._store is None:
            store = await self._bus.js_quick.key_value(self._bus.subjects.leases_bucket)
            self._ttl = (await store.status()).ttl or LEASE_TTL_S
            self._store = store
        return self._store

    async def _keep(self) -> None:
        """Renew until it fails for good; then ``lost`` is set."""
        complained = float("-inf")
        try:
            while True:
                await asyncio.sleep(self._renew)
                while True:
                    left = self._renewed + self._ttl - MARGIN_S - time.monotonic()
                    if left <= 0:
                        log.error("the lease was not renewed in time, giving up the role", role=self.role)
                        return
                    begun = time.monotonic()
                    try:
                        async with asyncio.timeout(min(left, ANSWER_S)):
                            if not await self._renewed_once():
                                log.error("another instance has the lease", role=self.role)
                                return
                        self._renewed = begun
                        break
                    except (nats.errors.Error, nats.js.errors.Error, TimeoutError) as error:
                        if begun - complained > COMPLAIN_S:
                            complained = begun
                            log.warning("the lease is not renewed yet", role=self.role, error=str(error) or repr(error))
                        await asyncio.sleep(AGAIN_S)
        finally:
            self._leading.set(0)
            self.lost.set()

    async def _renewed_once(self) -> bool:
        """Write our entry again; False if it is another's, or gone. Raises what leaves that open."""
        bucket, value = await self._bucket(), self.incarnation.encode()
        try:
            self._revision = await bucket.update(self.role, value, last=self._revision)
            return True
        except nats.js.errors.KeyWrongLastSequenceError:
            pass
        # Perhaps an earlier renewal of ours, whose answer was lost.
        holder, revision = await self._entry()
        if holder != self.incarnation:
            return False
        self._revision = await bucket.update(self.role, value, last=revision)
        return True

    async def _take(self) -> int:
        """The revision under which the role is ours now; 0 if another has it."""
        bucket = await self._bucket()
        value = self.incarnation.encode()
        try:
            return int(await bucket.create(self.role, value))
        except nats.js.errors.KeyWrongLastSequenceError:
            pass
        try:
            holder, revision = await self._entry()
            if not holder:
                return 0  # given back or ended a moment ago: asked for again
            # Our own word, whose answer was lost, must not keep us waiting until it ends.
            if holder != self.incarnation:
                if self._is_dead is None or not self._is_dead(holder):
                    return 0
                log.info("the holder of a role died", role=self.role, holder=holder)
            return int(await bucket.update(self.role, value, last=revision))
        except nats.js.errors.KeyWrongLastSequenceError:
            return 0

    async def _entry(self) -> tuple[str, int]:
        """Who has the role, and the entry's revision, as the bucket's leader says; a replica may lag. Empty: nobody."""
        bucket = self._bus.subjects.leases_bucket
        try:
            entry = await self._bus.js_quick.get_last_msg(f"KV_{bucket}", f"$KV.{bucket}.{self.role}", direct=False)
        except nats.js.errors.NotFoundError:
            return "", 0
        if "KV-Operation" in (entry.headers or {}):  # given back
            return "", entry.seq or 0
        return (entry.data or b"").decode(errors="replace"), entry.seq or 0
