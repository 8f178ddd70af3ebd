"""The schedulers that share the pods: who lives, whose a unit is, and what changes when one comes or goes."""

from collections.abc import Callable

from koord.bus.presence import Presence
from koord.runtime.host import Host
from koord.scheduler import metrics
from koord.scheduler.binds import Binds
from koord.scheduler.queueing.queue import SchedulingQueue, Unit
from koord.scheduler.sharing import Share, shared_by


class Replicas:
    """One replica's view of all of them. It decides which units of the ``queue`` are this one's; ``kick`` wakes the
    loop when that changed."""

    def __init__(self, host: Host, queue: SchedulingQueue, binds: Binds, kick: Callable[[], None]) -> None:
        self._log = host.log
        self._queue = queue
        self._binds = binds
        self._kick = kick
        self.share = Share(host.incarnation)
        self._presence = Presence(
            host.bus, "scheduler", host.incarnation, on_change=self._on_change, is_dead=host.life.is_dead
        )
        queue.mine = self._is_mine

    async def start(self) -> None:
        """Say that this one lives, and hear of the others."""
        await self._presence.start()

    async def stop(self) -> None:
        """Say that it goes: the others take its share."""
        await self._presence.stop()

    @property
    def members(self) -> tuple[str, ...]:
        """All live replicas."""
        return self._presence.members

    def on_alone(self, scheduler: str) -> None:
        """Only this scheduler may bind (empty: all)."""
        if self.share.set_alone(scheduler):
            came = self._queue.reassign()
            if scheduler:
                self._log.warning("only one scheduler may bind", scheduler=scheduler, units_taken_over=came)
            self._kick()

    def _on_change(self) -> None:
        members = self._presence.members
        self.share.set_members(members)
        metrics.replicas.set(len(members))
        came = self._queue.reassign()
        self._log.info("the schedulers that share the pods changed", replicas=len(members), units_taken_over=came)
        self._kick()

    def _is_mine(self, unit: Unit) -> bool:
        """Whoever holds room for a part of a gang group goes on with it."""
        if unit.group:
            return self.share.mine(unit.key) or self._binds.holds(unit.group)
        if self.share.replicas == 1:
            return self.share.mine(unit.key)
        pod = next(iter(unit.pods.values()), None)
        key = unit.key
        if pod is not None:
            key = shared_by(key, pod.ref.namespace, pod.class_.template.spec)
        return self.share.mine(key)
