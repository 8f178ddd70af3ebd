"""The streams and buckets of one cluster, made or brought up to date by whichever service starts first.

The state stream's metadata holds its *epoch*, a random name for its life: a store that was lost and made anew has
another one, and everything derived from the old one must be rebuilt (see :mod:`koord.bus.statecache`).

In a NATS cluster each stream has ``replicas`` copies. Their number is raised when it is set higher, never lowered: that
is an operator's decision (``nats stream edit``). A cluster that is just starting knows its servers one by one and has
no leader for a moment; both are waited for.
"""

import asyncio
import secrets
import time

import msgspec
import nats.errors
import nats.js.errors
from nats.js.api import (
    DiscardPolicy,
    RetentionPolicy,
    StorageType,
    StreamConfig,
    StreamInfo,
)

from koord.bus.connection import Bus
from koord.bus.errors import BusError, BusUnavailable
from koord.telemetry.logs import get_logger

log = get_logger("koord.bus")

EPOCH = "koord.epoch"
LEASE_TTL_S = 5.0
# In a NATS cluster nothing is renewed while the bucket has no leader, 4 to 9 s, at times two rounds: roles must
# outlast that.
CLUSTER_LEASE_TTL_S = 15.0
# A decision nobody executes for a day is void: its preconditions have long changed.
DECISION_AGE_S = 86400.0
# How long a JetStream that is just starting is waited for.
PATIENCE_S = 15.0
# JetStream's own number for "no suitable peers for placement": too few servers are known, or up.
_NO_PEERS = 10005


class StreamLimits(msgspec.Struct, frozen=True):
    """What the streams may hold (-1: no bound of koord's own), and whether they live on disk.

    Decisions are bounded by their number: a bound in bytes is reserved on the server's disk when the stream is made.
    ``replicas`` is 1, 3 or 5: how many servers hold each stream, the leases' bucket included.
    """

    state_bytes: int = -1
    decisions: int = 200_000
    memory: bool = False
    replicas: int = 1


def lease_ttl_s(replicas: int) -> float:
    """How long a leader's lease lives that is not renewed."""
    return CLUSTER_LEASE_TTL_S if replicas > 1 else LEASE_TTL_S


def configs(bus: Bus, limits: StreamLimits) -> list[StreamConfig]:
    """Every stream of the cluster, the leases bucket's included."""
    subjects = bus.subjects
    storage = StorageType.MEMORY if limits.memory else StorageType.FILE
    return [
        StreamConfig(
            name=subjects.state_stream,
            description="API objects, last message per object",
            subjects=[subjects.state_all],
            retention=RetentionPolicy.LIMITS,
            max_msgs_per_subject=1,
            max_bytes=limits.state_bytes,
            discard=DiscardPolicy.NEW,
            storage=storage,
            allow_direct=True,
            allow_msg_ttl=True,
            num_replicas=limits.replicas,
            metadata={EPOCH: secrets.token_hex(6)},
        ),
        StreamConfig(
            name=subjects.decisions_stream,
            description="Writes to the API, until executed",
            subjects=[subjects.decision_all],
            retention=RetentionPolicy.WORK_QUEUE,
            max_msgs=limits.decisions,
            max_age=DECISION_AGE_S,
            discard=DiscardPolicy.NEW,
            storage=storage,
            allow_direct=True,
            num_replicas=limits.replicas,
        ),
        StreamConfig(
            name=subjects.quota_stream,
            description="Runtime quotas, last message per tree",
            subjects=[subjects.quota_runtime_all],
            retention=RetentionPolicy.LIMITS,
            max_msgs_per_subject=1,
            storage=storage,
            allow_direct=True,
            num_replicas=limits.replicas,
        ),
        StreamConfig(
            name=f"KV_{subjects.leases_bucket}",
            description="Leader leases; they only elect",
            subjects=[f"$KV.{subjects.leases_bucket}.>"],
            retention=RetentionPolicy.LIMITS,
            max_msgs_per_subject=1,
            max_age=lease_ttl_s(limits.replicas),
            discard=DiscardPolicy.NEW,
            storage=storage,
            allow_direct=True,
            allow_rollup_hdrs=True,
            deny_delete=True,
            num_replicas=limits.replicas,
        ),
    ]


async def ensure_streams(bus: Bus, limits: StreamLimits | None = None, *, patience: float = PATIENCE_S) -> None:
    """Make or update every stream; idempotent, safe when several services do it at once, repeated after reconnects.

    Without ``limits`` those of the last call count. A JetStream that is not ready yet (no leader, too few servers
    known) is asked again for ``patience`` seconds; then BusUnavailable. BusError when it refuses a configuration.
    """
    bus.limits = limits or bus.limits or StreamLimits()

    async def ensure(patience: float) -> None:
        until = time.monotonic() + patience
        for config in configs(bus, bus.limits or StreamLimits()):
            while True:
                try:
                    await _ensure(bus, config)
                    break
                except BusUnavailable:
                    if time.monotonic() > until:
                        raise
                    await asyncio.sleep(0.1)

    await ensure(patience)
    # After a reconnect the caller of the hook tries again, and says so.
    bus.on_prepare("streams", lambda: ensure(0.0))


async def state_epoch(bus: Bus) -> str:
    """The epoch of the state stream. BusUnavailable when it does not answer or does not exist."""
    return (await state_life(bus))[0]


async def state_life(bus: Bus, known: int = 0, known_epoch: str = "") -> tuple[str, int]:
    """The state stream's epoch and the sequence of its last message. BusUnavailable as :func:`state_epoch`.

    ``known`` is a sequence that the stream is known to have had in ``known_epoch``. A cluster's answer that ends before
    it is not believed for STALE_S: a leader that was parted from the others goes on answering until it finds out.
    BusUnavailable then.
    """
    name = bus.subjects.state_stream
    try:
        info = await bus.js_quick.stream_info(name)
    except (nats.errors.Error, TimeoutError) as error:
        raise BusUnavailable(f"stream {name}: {_text(error)}") from error
    epoch, last = (info.config.metadata or {}).get(EPOCH, ""), info.state.last_seq
    bus.clustered = info.cluster is not None and bool(info.cluster.name)
    if not bus.clustered:
        bus.doubt.clear()
    elif not bus.doubt.believes(epoch, last, known, known_epoch, time.monotonic()):
        raise BusUnavailable(f"stream {name}: ends at {last}, {known} were confirmed; the answer may be a stale one")
    return epoch, last


async def _ensure(bus: Bus, wanted: StreamConfig) -> None:
    assert wanted.name is not None
    try:
        try:
            held = await bus.js_quick.stream_info(wanted.name)
        except nats.js.errors.NotFoundError:
            try:
                await bus.js.add_stream(wanted)
                return
            except nats.js.errors.BadRequestError as error:
                if error.err_code == _NO_PEERS:
                    raise
                held = await bus.js_quick.stream_info(wanted.name)  # another service was faster
        replicas = max(held.config.num_replicas or 1, wanted.num_replicas or 1)
        if wanted.subjects == [f"$KV.{bus.subjects.leases_bucket}.>"]:
            wanted = wanted.evolve(max_age=lease_ttl_s(replicas))
        if _differs(held, wanted):
            metadata = {**(wanted.metadata or {}), **(held.config.metadata or {})}
            await bus.js.update_stream(wanted.evolve(metadata=metadata, num_replicas=held.config.num_replicas))
        if replicas != (held.config.num_replicas or 1):
            await _raise_replicas(bus, wanted.name or "", replicas)
    except nats.js.errors.ServiceUnavailableError as error:
        raise BusUnavailable(f"stream {wanted.name}: JetStream is not available") from error
    except nats.js.errors.APIError as error:
        kind = BusUnavailable if error.err_code == _NO_PEERS else BusError
        raise kind(f"stream {wanted.name}: {error.description or error} (error {error.err_code})") from error
    except (nats.errors.Error, TimeoutError) as error:
        raise BusUnavailable(f"stream {wanted.name}: {_text(error)}") from error


async def _raise_replicas(bus: Bus, name: str, replicas: int) -> None:
    """More copies of a stream that is in use: it works on meanwhile, and also when there is no place for them yet."""
    held = (await bus.js.stream_info(name)).config
    try:
        await bus.js.update_stream(held.evolve(num_replicas=replicas))
    except nats.js.errors.APIError as error:
        log.warning(
            "a stream keeps fewer replicas than wanted for now",
            stream=name,
            replicas=held.num_replicas,
            wanted=replicas,
            reason=error.description or str(error),
        )


def _differs(held: StreamInfo, wanted: StreamConfig) -> bool:
    """Whether one of the settings that koord cares about is not as wanted (storage cannot be changed later)."""
    have = held.config
    pairs = (
        (have.subjects, wanted.subjects),
        (have.max_msgs_per_subject, wanted.max_msgs_per_subject),
        (have.max_bytes or -1, wanted.max_bytes or -1),
        (have.max_msgs or -1, wanted.max_msgs or -1),
        (have.max_age or 0, wanted.max_age or 0),
        (bool(have.allow_msg_ttl), bool(wanted.allow_msg_ttl)),
        (bool(have.allow_direct), bool(wanted.allow_direct)),
    )
    return any(have != want for have, want in pairs)


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
