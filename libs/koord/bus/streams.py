"""The streams and buckets of one cluster, made or brought up to date by whichever service starts first.

The state stream's metadata holds its *epoch*, a random name for its life: a store that was lost and made anew has
another one, and everything derived from the old one must be rebuilt (see :mod:`koord.bus.statecache`).
"""

import secrets

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
# A decision nobody executes for a day is void: its preconditions have long changed.
DECISION_AGE_S = 86400.0


class StreamLimits(msgspec.Struct, frozen=True):
    """What the streams may hold (-1: no bound of koord's own), and whether they live on disk.

    Decisions are bounded by their number: a bound in bytes is reserved on the server's disk when the stream is made.
    """

    state_bytes: int = -1
    decisions: int = 200_000
    memory: bool = False


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
            num_replicas=1,
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
            num_replicas=1,
        ),
        StreamConfig(
            name=subjects.quota_stream,
            description="Runtime quotas, last message per tree",
            subjects=[subjects.quota_runtime_all],
            retention=RetentionPolicy.LIMITS,
            max_msgs_per_subject=1,
            storage=storage,
            allow_direct=True,
            num_replicas=1,
        ),
        StreamConfig(
            name=f"KV_{subjects.leases_bucket}",
            description="Leader leases; they only elect",
            subjects=[f"$KV.{subjects.leases_bucket}.>"],
            retention=RetentionPolicy.LIMITS,
            max_msgs_per_subject=1,
            max_age=LEASE_TTL_S,
            discard=DiscardPolicy.NEW,
            storage=storage,
            allow_direct=True,
            allow_rollup_hdrs=True,
            deny_delete=True,
            num_replicas=1,
        ),
    ]


async def ensure_streams(bus: Bus, limits: StreamLimits | None = None) -> None:
    """Make or update every stream; idempotent, safe when several services do it at once, repeated after reconnects.

    Raises BusUnavailable when JetStream does not answer and BusError when it refuses a configuration.
    """
    limits = limits or StreamLimits()

    async def ensure() -> None:
        for config in configs(bus, limits):
            await _ensure(bus, config)

    await ensure()
    bus.on_prepare("streams", ensure)


async def state_epoch(bus: Bus) -> str:
    """The epoch of the state stream. BusUnavailable when it does not answer or does not exist."""
    return (await state_life(bus))[0]


async def state_life(bus: Bus) -> tuple[str, int]:
    """The state stream's epoch and the sequence of its last message. BusUnavailable as :func:`state_epoch`."""
    name = bus.subjects.state_stream
    try:
        info = await bus.js.stream_info(name)
    except (nats.errors.Error, TimeoutError) as error:
        raise BusUnavailable(f"stream {name}: {_text(error)}") from error
    return (info.config.metadata or {}).get(EPOCH, ""), info.state.last_seq


async def _ensure(bus: Bus, wanted: StreamConfig) -> None:
    assert wanted.name is not None
    try:
        try:
            held = await bus.js.stream_info(wanted.name)
        except nats.js.errors.NotFoundError:
            try:
                await bus.js.add_stream(wanted)
                return
            except nats.js.errors.BadRequestError:
                held = await bus.js.stream_info(wanted.name)  # another service was faster
        if _differs(held, wanted):
            metadata = {**(wanted.metadata or {}), **(held.config.metadata or {})}
            await bus.js.update_stream(wanted.evolve(metadata=metadata))
    except nats.js.errors.ServiceUnavailableError as error:
        raise BusUnavailable(f"stream {wanted.name}: JetStream is not available") from error
    except nats.js.errors.APIError as error:
        raise BusError(f"stream {wanted.name}: {error.description or error} (error {error.err_code})") from error
    except (nats.errors.Error, TimeoutError) as error:
        raise BusUnavailable(f"stream {wanted.name}: {_text(error)}") from error


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
