"""The service with claims that wait for a node: written, bound by a volume controller, then the pod is bound."""

import contextlib
import copy
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec

from koord.bus.connection import Bus
from koord.bus.decisions import Delivery
from koord.bus.questions import ask
from koord.contracts.asks import ExplainPod, PodExplanation
from koord.contracts.decisions import Patch
from koord.contracts.results import Result
from koord.kube.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, Resource
from koord.ledger.client import Ledger
from koord.scheduler.queueing.queue import QueueSettings
from koord.scheduler.settings import SchedulerSettings
from tests.scheduler.outside import Outside, scheduler, until
from tests.scheduler.volumes.objects import HOST, KINDS, Object, claim, local, storage_class, using, volume

FAST = SchedulerSettings(queue=QueueSettings(initial_backoff_s=0.1, max_backoff_s=0.3))
SELECTED = "volume.kubernetes.io/selected-node"
STORAGE = {one.token: one for one in (PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS)}


class StorageOutside(Outside):
    """With storage objects, and a volume controller that binds what is written (``work`` says whether it does)."""

    def __init__(self, bus: Bus, ledger: Ledger) -> None:
        super().__init__(bus, ledger)
        self.objects: dict[tuple[str, str], Object] = {}
        self.writes: list[Patch] = []
        self.provision: Callable[[str, str], bool] = lambda claim, node: True
        self.before_write: Callable[[Patch], bool] = lambda patch: True

    async def tell(self, kind: str, body: Object) -> None:
        await self.show_object(KINDS[kind], copy.deepcopy(body))

    def object(self, resource: Resource, key: str) -> Object:
        return self.objects[resource.token, key]

    async def show_object(self, resource: Resource, body: Object) -> None:
        meta = body["metadata"]
        namespace = meta.get("namespace", "")
        key = f"{namespace}/{meta['name']}" if namespace else meta["name"]
        type_: Any = "MODIFIED" if (resource.token, key) in self.objects else "ADDED"
        version = meta["resourceVersion"] = self.version()
        meta.setdefault("uid", f"uid-{resource.plural}-{meta['name']}")
        self.objects[resource.token, key] = body
        await self.publisher.publish(resource, type_, namespace, meta["name"], version, msgspec.json.encode(body))

    async def _execute(self, delivery: Delivery) -> None:
        decision = delivery.decision
        if not isinstance(decision, Patch) or decision.target.resource not in STORAGE:
            await super()._execute(delivery)
            return
        delivery.ack()
        self.writes.append(decision)
        trace = delivery.trace
        assert trace is not None, "every decision carries a trace"
        if not self.before_write(decision):
            return
        target = decision.target
        key = f"{target.namespace}/{target.name}" if target.namespace else target.name
        body = self.objects[target.resource, key]
        if target.uid != body["metadata"]["uid"] or target.resource_version != body["metadata"]["resourceVersion"]:
            self._consumer.answer("scheduler", Result(decision.id, "conflict", "resourceVersion"), trace.traceparent)
            return
        changed = copy.deepcopy(body)
        merge(changed, msgspec.json.decode(decision.body))
        await self.show_object(STORAGE[target.resource], changed)
        self._consumer.answer("scheduler", Result(decision.id, "done"), trace.traceparent)
        await self.control(target.resource, changed)

    async def control(self, token: str, body: Object) -> None:
        """As the volume controller and a provisioner do."""
        if token == PERSISTENT_VOLUMES.token:
            ref = body["spec"]["claimRef"]
            await self._finish(body, self.object(PERSISTENT_VOLUME_CLAIMS, f"{ref['namespace']}/{ref['name']}"))
            return
        name, node = body["metadata"]["name"], body["metadata"]["annotations"][SELECTED]
        if self.provision(name, node):
            made = volume(f"made-{name}", class_=body["spec"]["storageClassName"], on={HOST: [node]}, given=body)
            await self._finish(made, body)
        else:
            failed = copy.deepcopy(body)
            del failed["metadata"]["annotations"][SELECTED]
            await self.show_object(PERSISTENT_VOLUME_CLAIMS, failed)

    async def _finish(self, held: Object, data: Object) -> None:
        held = copy.deepcopy(held)
        held["status"]["phase"] = "Bound"
        await self.show_object(PERSISTENT_VOLUMES, held)
        done = copy.deepcopy(data)
        done["spec"]["volumeName"] = held["metadata"]["name"]
        done["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = "yes"
        done["status"]["phase"] = "Bound"
        await self.show_object(PERSISTENT_VOLUME_CLAIMS, done)

    async def claiming_pod(self, name: str, *claims: str, **more: Any) -> str:
        return await self.pod(name, volumes=using(*claims)["volumes"], **more)


def merge(into: Object, patch: Object) -> None:
    """A JSON merge patch."""
    for key, value in patch.items():
        if isinstance(value, dict):
            merge(into.setdefault(key, {}), value)
        elif value is None:
            into.pop(key, None)
        else:
            into[key] = value


@contextlib.asynccontextmanager
async def storage(nats_url: str, redis_url: str, cluster: str) -> AsyncIterator[StorageOutside]:
    async with (
        await Bus.connect(nats_url, cluster, "outside") as bus,
        await Ledger.connect(redis_url, cluster, "outside") as ledger,
    ):
        world = StorageOutside(bus, ledger)
        await world.start()
        try:
            for name in ("a", "b"):
                await world.node(name, labels={HOST: name})
            await world.tell("class", storage_class())
            await world.tell("class", storage_class("made", provisioner="x.io"))
            await world.listed()
            yield world
        finally:
            await world.stop()


async def test_volumes_come_before_their_pods(nats_url: str, redis_url: str, cluster: str) -> None:
    async with storage(nats_url, redis_url, cluster) as world, scheduler(nats_url, redis_url, cluster, FAST):
        await world.claiming_pod("early", "data")
        await until(lambda: world.told("early"), "told")
        assert world.told("early")[0].startswith('0/2 nodes are available: persistentvolumeclaim "data" not found.')
        # A volume that exists, one that is made, and both in one pod.
        await world.tell("volume", local("on-b", "b"))
        await world.tell("claim", claim("data"))
        await until(lambda: world.node_of("early"), "bound")
        assert world.node_of("early") == "b"
        assert world.object(PERSISTENT_VOLUMES, "on-b")["spec"]["claimRef"]["name"] == "data"
        await world.tell("claim", claim("fresh", class_="made"))
        await world.tell("claim", claim("more"))
        await world.tell("volume", local("on-a", "a"))
        await world.claiming_pod("both", "fresh", "more")
        await until(lambda: world.node_of("both"), "bound")
        assert world.node_of("both") == "a"
        assert world.object(PERSISTENT_VOLUME_CLAIMS, "default/fresh")["metadata"]["annotations"][SELECTED] == "a"
        # Bound claims need no writes.
        count = len(world.writes)
        await world.claiming_pod("again", "fresh", "more")
        await until(lambda: world.node_of("again"), "bound")
        assert (world.node_of("again"), len(world.writes)) == ("a", count)


async def test_what_fails_is_tried_again(nats_url: str, redis_url: str, cluster: str) -> None:
    async with storage(nats_url, redis_url, cluster) as world, scheduler(nats_url, redis_url, cluster, FAST):
        tries: list[str] = []

        def provision(name: str, node: str) -> bool:
            tries.append(node)
            return len(tries) > 2

        world.provision = provision
        await world.tell("claim", claim("data", class_="made"))
        await world.claiming_pod("p", "data")
        await until(lambda: world.node_of("p"), "bound")
        assert len(tries) == 3
        text = 'running PreBind plugin "VolumeBinding": provisioning failed for PVC "data"'
        assert text in world.told("p")
        # Somebody else is faster: the volume that was chosen is not as it was.
        world.provision = lambda name, node: True
        await world.tell("volume", local("one", "a"))
        await world.tell("volume", local("two", "b"))

        def taken(patch: Patch) -> bool:
            body = world.object(PERSISTENT_VOLUMES, patch.target.name)
            if patch is world.writes[first]:
                body["metadata"]["resourceVersion"] = world.version()
            return True

        first = len(world.writes)
        world.before_write = taken
        await world.tell("claim", claim("fought"))
        await world.claiming_pod("q", "fought")
        await until(lambda: len(world.told("q")), "told")
        assert world.told("q")[0] == 'running PreBind plugin "VolumeBinding": conflict: resourceVersion'
        await world.show_object(PERSISTENT_VOLUMES, world.object(PERSISTENT_VOLUMES, world.writes[first].target.name))
        await until(lambda: world.node_of("q"), "bound")


async def test_a_pod_that_goes_while_it_waits(nats_url: str, redis_url: str, cluster: str) -> None:
    async with storage(nats_url, redis_url, cluster) as world, scheduler(nats_url, redis_url, cluster, FAST):
        world.before_write = lambda patch: False  # the gateway is slow
        await world.tell("volume", local("only", "a"))
        await world.tell("claim", claim("c1"))
        await world.tell("claim", claim("c2"))
        await world.claiming_pod("first", "c1")
        await until(lambda: world.writes, "written")
        await world.claiming_pod("second", "c2")
        await until(lambda: world.told("second"), "the volume is promised to another")
        assert "didn't find available persistent volumes to bind" in world.told("second")[0]
        items = await world.ledger.items("node/")
        assert items["node/a"].held["pods"] == 1
        world.before_write = lambda patch: True
        await world.delete("first")
        await until(lambda: world.node_of("second") == "a", "bound")


CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - schedulerName: koord-scheduler
    pluginConfig:
      - name: VolumeBinding
        args:
          bindTimeoutSeconds: 1
"""


async def test_time_is_up(nats_url: str, redis_url: str, cluster: str, tmp_path: Path) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text(CONFIG)
    settings = SchedulerSettings(config=str(file))
    async with storage(nats_url, redis_url, cluster) as world, scheduler(nats_url, redis_url, cluster, settings):
        world.before_write = lambda patch: False
        await world.tell("volume", local("one", "a"))
        await world.tell("claim", claim("data"))
        await world.claiming_pod("p", "data")
        await until(lambda: world.told("p"), "told")
        assert world.told("p") == ['running PreBind plugin "VolumeBinding": not done in time']
        world.before_write = lambda patch: True
        await until(lambda: world.node_of("p") == "a", "bound")


async def test_a_gang_waits_for_all_its_volumes(nats_url: str, redis_url: str, cluster: str) -> None:
    async with storage(nats_url, redis_url, cluster) as world, scheduler(nats_url, redis_url, cluster, FAST):
        slow: list[Patch] = []

        def hold(patch: Patch) -> bool:
            if patch.target.name == "c1" and not slow:
                slow.append(patch)
                return False
            return True

        world.before_write = hold
        for name in ("c0", "c1", "c2"):
            await world.tell("claim", claim(name, class_="made"))
        await world.pod_group("gang", 3)
        for number in range(3):
            await world.claiming_pod(f"m{number}", f"c{number}", labels={"pod-group.scheduling.sigs.k8s.io": "gang"})
        await until(lambda: len(world.writes) == 3, "written")
        await until(
            lambda: world.object(PERSISTENT_VOLUME_CLAIMS, "default/c2")["spec"].get("volumeName"),
            "the others are there",
        )
        assert not world.binds
        explained = await ask(world.bus, "scheduler", "explain", ExplainPod("default", "m0"), PodExplanation)
        assert explained.state == "planned"
        assert explained.message == "room is held until VolumeBinding has in the API what the pods need"
        # The last one is written after all.
        [late] = slow
        body = copy.deepcopy(world.object(PERSISTENT_VOLUME_CLAIMS, "default/c1"))
        merge(body, msgspec.json.decode(late.body))
        await world.show_object(PERSISTENT_VOLUME_CLAIMS, body)
        await world.control(PERSISTENT_VOLUME_CLAIMS.token, body)
        await until(lambda: len(world.bound) == 3, "bound")
        assert len(world.binds) == 1


async def test_replicas_do_not_give_a_claim_for_one_pod_to_two(nats_url: str, redis_url: str, cluster: str) -> None:
    async with storage(nats_url, redis_url, cluster) as world:
        for number in range(6):
            data = claim(f"data{number}", modes=("ReadWriteOncePod",), volume=f"pv{number}", bound=True)
            await world.tell("volume", volume(f"pv{number}", modes=("ReadWriteOncePod",), given=data))
            await world.tell("claim", data)
        async with (
            scheduler(nats_url, redis_url, cluster, FAST) as one,
            scheduler(nats_url, redis_url, cluster, FAST) as two,
        ):
            await until(
                lambda: one._replicas.share.replicas == two._replicas.share.replicas == 2, "they know of each other"
            )
            # For a moment each has the pods of every other one: as when their views differ.
            one._replicas.share.mine = lambda key: True  # type: ignore[method-assign]
            two._replicas.share.mine = lambda key: True  # type: ignore[method-assign]
            for number in range(6):
                for twin in "ab":
                    await world.claiming_pod(f"{twin}{number}", f"data{number}", cpu="100m", memory="1Mi")
            await until(lambda: len(world.bound) == 6, "one of each two bound")
            bound = {name for number in range(6) for name in (f"a{number}", f"b{number}") if world.node_of(name)}
            assert {name[1:] for name in bound} == {str(number) for number in range(6)} and len(bound) == 6
            left = [name for number in range(6) for name in (f"a{number}", f"b{number}") if name not in bound]
            await until(lambda: all(world.told(name) for name in left), "the others are told")
            assert len(world.bound) == 6
