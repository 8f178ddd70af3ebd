"""Limits are written whatever becomes of the hints beside them; ledger and bus are the real ones."""

import asyncio

from koord.bus.connection import Bus
from koord.bus.errors import BusUnavailable
from koord.kube.meta import ObjectMeta
from koord.kube.quotas import ElasticQuota, ElasticQuotaSpec
from koord.ledger.client import Ledger
from koord.ledger.model import LimitSet, NodeSeen
from koord.quota.keeper import Keeper, Rules
from koord.quota.limitwriter import LimitWriter
from koord.runtime.ending import end
from koord.telemetry.logs import get_logger
from tests.queue.harness import until


def quota(cpu: str) -> ElasticQuota:
    return ElasticQuota(
        metadata=ObjectMeta(name="a", namespace="quotas", uid="a"), spec=ElasticQuotaSpec(max={"cpu": cpu})
    )


class _Gone(Bus):
    """Disconnected, and its buffer full."""

    told = 0

    async def publish(self, subject: str, payload: bytes, headers: dict[str, str] | None = None) -> None:
        self.told += 1
        raise BusUnavailable(f"{subject}: outbound buffer limit exceeded")


async def test_a_hint_that_cannot_be_sent_does_not_end_the_service(nats_url: str, redis_url: str, cluster: str) -> None:
    keeper = Keeper(Rules(runtime=False))
    async with (
        await _Gone.connect(nats_url, cluster, "quota") as bus,
        await Ledger.connect(redis_url, cluster, "quota-1") as ledger,
    ):
        await ledger.open(await ledger.lead("reconciler"))
        writer = LimitWriter(keeper, bus, ledger, get_logger("test"))
        task = asyncio.create_task(writer.run(await ledger.lead("quota")))

        async def is_limit(milli: int) -> bool:
            assert not task.done(), task.exception()
            item = (await ledger.items("quota/a")).get("quota/a")
            return item is not None and item.limits.get("cpu") == milli

        try:
            for cpu in ("4", "6", "8"):  # each raise frees room, which is told
                keeper.put_quota(quota(cpu))
                keeper.fill(0.0)
                writer.wake()
                await until(lambda cpu=cpu: is_limit(1000 * int(cpu)), cpu)  # type: ignore[misc]
            assert isinstance(bus, _Gone) and bus.told
        finally:
            await end(task)


async def test_items_of_quotas_that_went_while_nobody_led_are_closed(
    nats_url: str, redis_url: str, cluster: str
) -> None:
    keeper = Keeper(Rules(runtime=False))
    async with (
        await Bus.connect(nats_url, cluster, "quota") as bus,
        await Ledger.connect(redis_url, cluster, "quota-1") as ledger,
    ):
        reconciler = await ledger.lead("reconciler")
        await ledger.open(reconciler)
        await ledger.observe([NodeSeen("node/gone", {"cpu": 1}, "1")], role_epoch=reconciler)
        first = await ledger.lead("quota")
        left = [LimitSet(f"{family}/{name}", {"cpu": 1}) for name in ("a", "gone") for family in ("quota", "admitted")]
        await ledger.observe(left, role="quota", role_epoch=first)
        keeper.put_quota(quota("4"))
        keeper.begin(0.0)
        writer = LimitWriter(keeper, bus, ledger, get_logger("test"))
        task = asyncio.create_task(writer.run(await ledger.lead("quota")))

        async def closed() -> bool:
            items = await ledger.items()
            there = {name for name, item in items.items() if item.open}
            return there == {"node/gone", "quota/a", "admitted/a", "guaranteed/a"}

        try:
            await until(closed, "what is left over is closed, and nothing else")
        finally:
            await end(task)
