"""The last values of a stream, for readers that come late."""

from koord.bus.connection import Bus
from koord.bus.lastvalues import LastValues
from koord.bus.streams import ensure_streams
from koord.contracts.codec import ContractError, encode
from koord.contracts.quota import QuotaRuntime
from tests.bus.conftest import until


async def test_a_late_reader_gets_the_last_value_of_each_subject_and_follows(bus: Bus) -> None:
    await ensure_streams(bus)
    subjects = bus.subjects
    for version in (1, 2):
        for tree in ("", "gpu"):
            await bus.publish_acked(subjects.quota_runtime(tree), encode(QuotaRuntime(tree, version, [])))
    seen: list[tuple[str, int]] = []
    bad: list[ContractError] = []
    values = LastValues(
        bus,
        subjects.quota_stream,
        subjects.quota_runtime_all,
        QuotaRuntime,
        lambda value: seen.append((value.tree, value.version)),
        bad.append,
    )
    values.start()
    await until(lambda: sorted(seen) == [("", 2), ("gpu", 2)], what=str(seen))
    await bus.publish_acked(subjects.quota_runtime("gpu"), b"no message pack at all")
    await until(lambda: bad, what="told")
    await bus.publish_acked(subjects.quota_runtime("gpu"), encode(QuotaRuntime("gpu", 3, [])))
    await until(lambda: ("gpu", 3) in seen, what=str(seen))
    await values.close()


async def test_values_come_live_while_the_stream_has_no_leader(bus: Bus) -> None:
    """An older reader does not hear them, and reads the same from the stream later."""
    await ensure_streams(bus)
    subjects = bus.subjects
    seen: list[tuple[str, int]] = []
    bad: list[ContractError] = []
    values = LastValues(
        bus,
        subjects.quota_stream,
        subjects.quota_runtime_all,
        QuotaRuntime,
        lambda value: seen.append((value.tree, value.version)),
        bad.append,
    )
    values.start()
    subject = subjects.quota_runtime("gpu")
    await bus.publish(subjects.live_of(subject), encode(QuotaRuntime("gpu", 2, [])))
    await until(lambda: seen == [("gpu", 2)], what=str(seen))
    await bus.publish(subjects.live_of(subject), b"no message pack at all")
    await until(lambda: bad, what="told")
    await bus.publish_acked(subject, encode(QuotaRuntime("gpu", 3, [])))
    await until(lambda: seen == [("gpu", 2), ("gpu", 3)], what=str(seen))
    await values.close()
