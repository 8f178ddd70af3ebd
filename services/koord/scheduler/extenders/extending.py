"""The extenders of one scheduler, put together: who is asked, the stage before planning, who binds."""

from collections.abc import Sequence

from koord.bus.decisions import DecisionPublisher
from koord.runtime.host import Host
from koord.scheduler.binds import Binds
from koord.scheduler.config.extenders import ExtenderConfig
from koord.scheduler.driver import Driver
from koord.scheduler.engine.placement import Engine, PodInfo
from koord.scheduler.extenders.asking import Extenders
from koord.scheduler.extenders.binder import ExtenderBinder
from koord.scheduler.extenders.client import ExtenderClient
from koord.scheduler.extenders.objects import Objects
from koord.scheduler.extenders.stage import ExtenderStage
from koord.scheduler.extenders.victims import ExtenderVictims
from koord.scheduler.preempting import Preempting


class Extending:
    """Puts itself into ``driver``, ``binds`` and ``preempting``. ConfigError: the TLS of an extender is of no use."""

    def __init__(
        self,
        configs: Sequence[ExtenderConfig],
        host: Host,
        engine: Engine,
        driver: Driver,
        binds: Binds,
        preempting: Preempting,
        publisher: DecisionPublisher,
        *,
        at_once: int,
    ) -> None:
        extenders = Extenders([ExtenderClient(config, host.spans) for config in configs], host.log)
        self._extenders = extenders
        self._objects = Objects(host.bus, nodes=extenders.reads_nodes)
        self._stage = ExtenderStage(
            extenders, self._objects, engine, host.spans, host.log, kick=driver.kick, at_once=at_once
        )
        self._victims = ExtenderVictims(
            extenders, self._objects, engine, host.spans, host.log, let_go=preempting.let_go
        )
        preempting.outside = self._victims
        self._binder = ExtenderBinder(extenders, publisher, host.log, refused=binds.refused_outside, left=binds.publish)
        driver.stage = self._stage
        binds.outside = self._binder

    def chooses(self, pod: PodInfo) -> bool:
        """Whether an extender has a say in where the pod goes."""
        return self._extenders.chooses(pod.class_)

    async def start(self) -> None:
        """Begin to read what extenders want to be shown."""
        await self._objects.start()

    async def synced(self) -> None:
        """Wait until it is known."""
        await self._objects.synced()

    async def close(self) -> None:
        """Nobody is asked any more."""
        await self._stage.close()
        await self._binder.close()
        await self._victims.close()
        await self._extenders.close()
        await self._objects.close()
