"""The ledger's client: typed calls, many callers to few round trips, closed whenever in doubt.

Claims and advances, which every pod passes through, share one pipelined connection of their own (:mod:`resp`) and are
batched; everything else goes through redis-py. Each new connection makes sure that the function library is loaded and
reads the epoch and whether the ledger is open; the functions themselves compare the server's run_id, so that a Redis
that restarted, empty or not, takes nothing before the reconciler has opened it again.
"""

import asyncio
import time
from collections.abc import Collection, Sequence
from typing import Any, Final, Self

import hiredis
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError

from koord.ledger import library, nominationwire, wire
from koord.ledger.batching import Batcher
from koord.ledger.model import (
    GONE_S,
    LEASE_S,
    MAX_MEMBERS,
    Advance,
    AdvanceAnswer,
    ClaimAnswer,
    ClaimRequest,
    Ended,
    Folded,
    ItemClosed,
    LedgerError,
    LedgerRefused,
    LedgerReset,
    LedgerStale,
    LedgerUnavailable,
    LimitSet,
    Observation,
    ObserveAnswer,
    Release,
    ReleaseAnswer,
    RetireAnswer,
    Role,
)
from koord.ledger.nominations import NominateAnswer, NominateRequest
from koord.ledger.placements import Placements
from koord.ledger.reader import Reader
from koord.ledger.replicas import Replicas
from koord.ledger.replies import info_of, refusal, said
from koord.ledger.resp import Connection

_BATCH_MEMBERS: Final = 256
_WAIT_MS: Final = b"100"
_CLOSED: Final = "closed"
_CONNECTIONS: Final = 32


class Ledger(Reader):
    """One process' access to the ledger of ``cluster``.

    ``incarnation`` is new at every start of a process and owns its claims. All methods raise LedgerUnavailable when
    Redis cannot be reached, is out of memory or does not answer within ``timeout_s``; every call may be repeated.
    """

    def __init__(
        self, url: str, cluster: str, incarnation: str, *, timeout_s: float, lease_s: float, gone_s: float
    ) -> None:
        self.cluster = cluster
        self.incarnation = incarnation
        self._epoch = 0
        self._key = f"{{koord:{cluster}}}".encode()
        self._lease_ms = round(lease_s * 1000)
        self._gone_ms = round(gone_s * 1000)
        self._replicas = Replicas()
        self.placements = Placements()
        """What other schedulers placed, as far as it came with answers."""
        self._redis = redis.asyncio.Redis.from_pool(
            redis.asyncio.BlockingConnectionPool.from_url(
                url,
                # Whoever comes when all are taken waits; without a bound of its own the pool raises at its hundredth.
                max_connections=_CONNECTIONS,
                timeout=timeout_s,
                socket_timeout=timeout_s,
                socket_connect_timeout=timeout_s,
                # Every function may be repeated, and a connection of the pool may have died while it was idle.
                retry=Retry(ExponentialBackoff(cap=0.5, base=0.02), 2, supported_errors=(RedisConnectionError,)),
                retry_on_error=[RedisConnectionError],
            )
        )
        self._connection = Connection(url, timeout_s=timeout_s, on_connect=self._greet)
        self._claims: Batcher[ClaimRequest, ClaimAnswer] = Batcher(
            self._claim_batch, weight=lambda request: len(request.members), limit=_BATCH_MEMBERS
        )
        self._advances: Batcher[tuple[Advance, int], AdvanceAnswer] = Batcher(
            self._advance_batch, weight=lambda request: len(request[0].uids), limit=_BATCH_MEMBERS
        )

    @classmethod
    async def connect(
        cls,
        url: str,
        cluster: str,
        incarnation: str,
        *,
        timeout_s: float = 5.0,
        wait_s: float = 10.0,
        lease_s: float = LEASE_S,
        gone_s: float = GONE_S,
    ) -> Self:
        """Connect within ``wait_s``, load the function library if need be; LedgerUnavailable if Redis is not there."""
        ledger = cls(url, cluster, incarnation, timeout_s=timeout_s, lease_s=lease_s, gone_s=gone_s)
        try:
            await ledger._connection.start(wait_s)
        except ConnectionError as error:
            await ledger._redis.aclose()
            raise LedgerUnavailable(str(error)) from error
        except BaseException:
            await ledger.close()
            raise
        return ledger

    async def close(self) -> None:
        """Close the connections; calls under way end with LedgerUnavailable."""
        await self._connection.close()
        await self._claims.close()
        await self._advances.close()
        await self._redis.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def epoch(self) -> int:
        """The epoch this client knows; 0 before the first opening."""
        return self._epoch

    @property
    def connected(self) -> bool:
        """Whether the hot connection is up."""
        return self._connection.connected

    # ---- schedulers and the queue ----

    async def claim(self, requests: Sequence[ClaimRequest]) -> list[ClaimAnswer]:
        """Judge claims in order, each held whole or not at all. LedgerRefused for a malformed one: then none was sent.

        Concurrent callers share round trips. A batch is one atomic call up to 256 members; longer ones are cut between
        claims. The same request may be sent again after LedgerUnavailable: an accepted claim keeps its token.
        """
        for request in requests:
            wire.check_claim(request)
        return await self._claims.ask(requests)

    async def follow_placements(self, *, sees: bool = True) -> None:
        """Bring :attr:`placements` to what was claimed until now (not ``sees``: of what keeps others off alone). The
        first call only marks where to begin: what was claimed before is to be read from :meth:`flights` or
        :meth:`records`. Who makes no call and no claim for ten minutes is told that something is lost."""
        since = self.placements.since(sees)
        self.placements.learn(since, await self._call("placements_v1", wire.pack((self.incarnation, since))))

    async def renew(self) -> int:
        """Extend all leases of this incarnation; how many claims that is (0 also when the ledger was closed)."""
        status, epoch, held = await self._call("renew_v1", wire.pack((self._epoch, self.incarnation, self._lease_ms)))
        self._learn(epoch)
        return held if status == "ok" else 0

    async def release(self, items: Sequence[Release]) -> list[ReleaseAnswer]:
        """Give members back. Idempotent: members that have ended already are in neither list of the answer."""
        if not items:
            return []
        for _ in range(2):
            rows = await self._call("release_v1", wire.pack_releases(self._epoch, self.incarnation, items))
            answers = [wire.release_answer(row) for row in rows]
            self._learn(answers[0].epoch)
            # Claims of an older epoch are gone, and a token cannot be met by another claim: ask again as of now.
            if answers[0].status != "epoch":
                break
        return answers

    async def nominate(self, requests: Sequence[NominateRequest]) -> list[NominateAnswer]:
        """Judge nominations in order, each kept whole or not at all. LedgerRefused for a malformed one.

        4,096 members and victims a call at most. May be repeated: an offer that still stands is answered ``ok`` again.
        """
        if not requests:
            return []
        for request in requests:
            nominationwire.check_nomination(request)
        for _ in range(2):
            rows = await self._call("nominate_v1", nominationwire.pack_nominations(self._epoch, requests))
            answers = [nominationwire.nominate_answer(row, self._epoch) for row in rows]
            if answers[0].status != "epoch":
                break
            self._learn(answers[0].epoch)
        return answers

    # ---- the gateway ----

    async def advance(self, items: Sequence[Advance], role_epoch: int) -> list[AdvanceAnswer]:
        """Move the members that decisions name to BINDING; only then may they be written to the API.

        Concurrent callers share round trips. With replicas the move counts only once one of them has it.
        """
        for item in items:
            if not item.uids or len(item.uids) > MAX_MEMBERS:
                raise LedgerRefused(
                    f"claim {item.claim}: {len(item.uids)} members to advance, 1 to {MAX_MEMBERS} can be"
                )
        return await self._advances.ask([(item, role_epoch) for item in items])

    # ---- the reconciler and the quota leader ----

    async def observe(
        self,
        observations: Sequence[Observation],
        *,
        role: Role = "reconciler",
        role_epoch: int,
        folded: Folded | None = None,
    ) -> ObserveAnswer:
        """Fold what the API shows. The quota leader may only set limits and close ``quota/`` and ``admitted/`` items.

        More than 4,096 observations are cut into several calls; the answer is that of all. Works before the ledger is
        opened. ``closed``: the data is of an earlier server process, ``begin`` comes first. ``folded``: up to where the
        state stream was read, at least that of the observations; kept for the caller's successor (:meth:`status`).
        """
        if role == "quota":
            for seen in observations:
                if not isinstance(seen, LimitSet | ItemClosed) or seen.item.startswith("node/"):
                    raise LedgerRefused(f"{type(seen).__name__}: the quota leader keeps quota limits only")
        answers = []
        for first in range(0, max(1, len(observations)), MAX_MEMBERS):
            head = (role, role_epoch, self.incarnation, self._epoch, self._gone_ms)
            packed = wire.pack_observations(head, observations[first : first + MAX_MEMBERS], folded)
            answer = wire.observe_answer(await self._call("observe_v1", *packed))
            answers.append(answer)
            self._learn(answer.epoch)
            if answer.status != "ok":
                break
        return wire.merge(answers)

    async def sweep(self, role_epoch: int) -> ObserveAnswer:
        """Row 4, by the reconciler each second: expire what is due; the answer tells what expired in any call."""
        answer = wire.observe_answer(await self._call("sweep_v1", wire.pack((role_epoch, self.incarnation))))
        self._learn(answer.epoch)
        return answer

    async def shut(self, role_epoch: int) -> int:
        """Close the ledger: from here on nothing is claimed or advanced. LedgerStale if a newer reconciler leads."""
        return await self._lifecycle("close_v1", role_epoch, self.incarnation)

    async def rebuild(self, role_epoch: int, epoch: int, roles: Sequence[tuple[str, int, str]] = ()) -> int:
        """Drop what a closed ledger holds, to fill it anew under ``epoch``, which the gateway's barrier raised.

        ``roles``: (role, epoch, incarnation) of leaders that a Redis which lost its data must know again. May be
        repeated. LedgerStale if a newer reconciler leads, LedgerReset if it is open or has had a later epoch.
        """
        return await self._lifecycle("rebuild_v1", role_epoch, self.incarnation, epoch, roles)

    async def begin(self, role_epoch: int, *, at_least: int = 0) -> int:
        """Close the ledger and drop its records, items and marks, to fill it anew; the new epoch.

        The epoch is above every earlier one and at least ``at_least``. LedgerStale if a newer reconciler leads. Without
        a barrier: a bind may be under way. :meth:`rebuild` is what the reconciler uses.
        """
        return await self._lifecycle("begin_v1", role_epoch, self.incarnation, max(at_least, self._epoch + 1))

    async def open(self, role_epoch: int, *, epoch: int = 0) -> int:
        """Open the ledger that was filled by ``observe``; its epoch. Opening an open one changes nothing.

        With ``epoch`` only if it is still the one that was filled: LedgerReset when Redis lost it meanwhile.
        """
        return await self._lifecycle("open_v1", role_epoch, self.incarnation, epoch)

    async def lead(self, role: str) -> int:
        """The fencing epoch of this incarnation as leader of ``role``: above every earlier incarnation's."""
        epoch: int = await self._call("lead_v1", wire.pack((role, self.incarnation)))
        return epoch

    async def retire(self, owners: Collection[str]) -> RetireAnswer:
        """End the HELD claims of incarnations that are dead; nobody else would before their leases are over.

        Safe for one that lives after all: a decision that it published is refused like one whose lease ran out.
        """
        ended: list[Ended] = []
        items: set[str] = set()
        while True:
            row = await self._call("retire_v1", wire.pack((self._epoch, list(owners))))
            answer = wire.retire_answer(row)
            ended += answer.ended
            items.update(answer.items)
            if answer.status != "ok" or not row[4]:
                return RetireAnswer(answer.status, tuple(ended), tuple(sorted(items)))

    # ---- inside ----

    def _learn(self, epoch: int) -> None:
        # Never back: an empty Redis answers 0, and what was planned under the old epoch must stay refused.
        self._epoch = max(self._epoch, epoch)

    async def _greet(self, connection: Connection) -> None:
        """At each connect: the library, the epoch, the number of replicas."""
        code, build = library.source()
        command = (b"FCALL_RO", b"status_v1", b"1", self._key)
        reply, info, memory = await asyncio.gather(
            *connection.call(command, (b"INFO", b"replication"), (b"INFO", b"memory"), handshake=True)
        )
        if info_of(info).get("role", "master") != "master":
            raise ConnectionError("redis is a read-only replica, not the primary")
        if not isinstance(reply, bytes) and "Function not found" not in str(reply):
            raise ConnectionError(str(reply))
        if not isinstance(reply, bytes) or library.replaces(build, wire.unpack(reply)[0]):
            loading = connection.call((b"FUNCTION", b"LOAD", b"REPLACE", code), command, handshake=True)
            loaded, reply = await asyncio.gather(*loading)
            if not isinstance(reply, bytes):
                raise ConnectionError(f"the function library cannot be loaded: {loaded!r}, {reply!r}")
        status = wire.status(wire.unpack(reply))
        self._learn(status.epoch)
        self._replicas.note(info, time.monotonic(), status.run_id)
        limits = info_of(memory)
        if limits.get("maxmemory", "0") != "0" and limits.get("maxmemory_policy") != "noeviction":
            raise LedgerRefused(f"redis evicts data: maxmemory-policy {limits['maxmemory_policy']}, must be noeviction")

    async def _count_replicas(self) -> None:
        try:
            self._replicas.note(await self._connection.call((b"INFO", b"replication"))[0], time.monotonic())
        except ConnectionError as error:
            raise LedgerUnavailable(str(error)) from error

    async def _claim_batch(self, requests: list[ClaimRequest]) -> Sequence[ClaimAnswer]:
        since = self.placements.asked(any(request.sees for request in requests))
        packed = wire.pack_claims(self._epoch, self.incarnation, self._lease_ms, requests, since)
        rows = await self._hot(b"claim_v1", *packed)
        if rows is None:
            return [ClaimAnswer(_CLOSED, 0, self._epoch)] * len(requests)
        if since is not None and len(rows) > len(requests):
            self.placements.learn(since, rows.pop())
        epoch = self._epoch
        answers = [wire.claim_answer(row, epoch) for row in rows]
        if answers and answers[0].status in ("epoch", "closed"):
            self._learn(answers[0].epoch)
        return answers

    async def _advance_batch(self, requests: list[tuple[Advance, int]]) -> Sequence[AdvanceAnswer]:
        role_epoch = max(epoch for _, epoch in requests)
        # A caller that still uses an older epoch of this process must not be lifted by its neighbour in the batch.
        current = [advance for advance, epoch in requests if epoch == role_epoch]
        body = wire.pack_advances(role_epoch, self.incarnation, current)
        if self._replicas.due(time.monotonic()):
            await self._count_replicas()
        rows = await self._hot(b"advance_v1", body, wait=self._replicas.count > 0)
        if rows is None:
            return [AdvanceAnswer(_CLOSED, gone=advance.uids, epoch=self._epoch) for advance, _ in requests]
        answers = iter(map(wire.advance_answer, rows))
        stale = [AdvanceAnswer("stale", gone=advance.uids, epoch=self._epoch) for advance, _ in requests]
        return [next(answers) if epoch == role_epoch else stale[i] for i, (_, epoch) in enumerate(requests)]

    async def _hot(self, function: bytes, *arguments: bytes, wait: bool = False) -> list[Any] | None:
        """A call on the pipelined connection; None: the server does not know the function (it is another server)."""
        command = (b"FCALL", function, b"1", self._key, *arguments)
        try:
            if wait:
                reply, copies = await asyncio.gather(*self._connection.call(command, (b"WAIT", b"1", _WAIT_MS)))
                if not isinstance(copies, int) or copies < 1:
                    raise LedgerUnavailable("no replica confirmed the move in time")
            else:
                reply = await self._connection.call(command)[0]
        except ConnectionError as error:
            raise LedgerUnavailable(str(error)) from error
        if isinstance(reply, hiredis.ReplyError):
            if "Function not found" in str(reply):
                self._connection.drop()
                return None
            raise await self._refused(str(reply))
        assert isinstance(reply, bytes)
        rows: list[Any] = wire.unpack(reply)
        return rows

    async def _call(self, function: str, *arguments: bytes) -> Any:
        """A call through redis-py."""
        try:
            reply = await self._redis.execute_command("FCALL", function, 1, self._key, *arguments)  # type: ignore[no-untyped-call]
        except ResponseError as error:
            if "Function not found" in str(error):
                self._connection.drop()
                raise LedgerUnavailable("the server has lost the function library") from error
            raise await self._refused(said(error)) from error
        except (RedisError, OSError, TimeoutError) as error:
            raise LedgerUnavailable(f"{function}: {error}") from error
        return wire.unpack(reply)

    async def _refused(self, message: str) -> LedgerError:
        if message.startswith("READONLY"):
            # This server is the primary no more: who is, is asked anew with the next connection.
            self._connection.drop()
            await self._redis.connection_pool.disconnect(inuse_connections=False)
        return refusal(message)

    async def _lifecycle(self, function: str, *arguments: object) -> int:
        status, epoch = await self._call(function, wire.pack(arguments))
        if status != "ok":
            kind = LedgerStale if status == "stale" else LedgerReset
            raise kind(f"{function}: {status} (epoch {epoch})")
        self._learn(epoch)
        found: int = epoch
        return found
