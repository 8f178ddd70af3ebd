"""Pods among pods through the service: namespaces and Services from the bus, pods that others placed, waking."""

import msgspec

from koord.kube.resources import NAMESPACES, SERVICES
from koord.scheduler.plugins.topologyspread.constraints import HOSTNAME, ZONE
from koord.scheduler.queueing.queue import QueueSettings
from koord.scheduler.settings import SchedulerSettings
from tests.scheduler.outside import Outside, outside, scheduler, until

FAST = SchedulerSettings(queue=QueueSettings(initial_backoff_s=0.1, max_backoff_s=0.3))
WEB = {"matchLabels": {"app": "web"}}


async def _nodes(world: Outside) -> None:
    for number in range(4):
        name = f"n{number}"
        await world.node(name, labels={HOSTNAME: name, ZONE: f"z{number % 2}"})


def _far(**term: object) -> dict[str, object]:
    required = [{"topologyKey": HOSTNAME, "labelSelector": WEB, **term}]
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


async def test_anti_affinity_across_namespaces(nats_url: str, redis_url: str, cluster: str) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        await _nodes(world)
        for name, team in (("red", "r"), ("blue", "b")):
            body = msgspec.json.encode({"metadata": {"name": name, "labels": {"team": team}}})
            await world.publisher.publish(NAMESPACES, "ADDED", "", name, world.version(), body)
        await world.pod("there", namespace="red", labels={"app": "web"}, nodeName="n0")
        await world.pod("harmless", namespace="blue", labels={"app": "web"}, nodeName="n1")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, FAST):
            apart = _far(namespaceSelector={"matchLabels": {"team": "r"}})
            for number in range(4):
                # An index of its own makes no class of its own.
                labels = {"app": "web", "index": str(number)}
                await world.pod(f"p{number}", namespace="red", labels=labels, affinity=apart)
            await until(lambda: sum(key.startswith("uid-red-p") for key in world.bound) == 3, "three hosts")
            assert {node for uid, node in world.bound.items() if uid.startswith("uid-red-p")} == {"n1", "n2", "n3"}
            left = next(f"p{n}" for n in range(4) if world.node_of(f"p{n}", "red") is None)
            # Those that come next are kept off by the terms of those that run: n0 has only a pod without any.
            text = "0/4 nodes are available: 4 node(s) didn't match pod anti-affinity rules."
            await until(lambda: world.told(left), "told")
            assert world.told(left)[0].startswith(text)
            await world.delete("there", "red")
            await until(lambda: world.node_of(left, "red") == "n0", "woken by the one that stood in the way")


async def test_spread_over_zones_required_and_by_default(nats_url: str, redis_url: str, cluster: str) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        await _nodes(world)
        service = {"metadata": {"name": "web", "namespace": "default"}, "spec": {"selector": {"app": "api"}}}
        body = msgspec.json.encode(service)
        await world.publisher.publish(SERVICES, "ADDED", "default", "web", world.version(), body)
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, FAST):
            only = {ZONE: "z0"}
            even = [{"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": WEB,
                     "nodeAffinityPolicy": "Ignore"}]  # fmt: skip
            for number in range(2):
                await world.pod(f"p{number}", labels={"app": "web"}, topologySpreadConstraints=even, nodeSelector=only)
            await until(lambda: len(world.bound) == 1, "one in the zone")
            left = next(f"p{n}" for n in range(2) if world.node_of(f"p{n}") is None)
            await until(lambda: world.told(left), "told")
            assert world.told(left)[0].startswith(
                "0/4 nodes are available: 2 node(s) didn't match Pod's node affinity/selector, "
                "2 node(s) didn't match pod topology spread constraints."
            )
            await world.pod("elsewhere", labels={"app": "web"}, nodeSelector={ZONE: "z1"})
            await until(lambda: world.node_of(left) is not None, "woken by one that counts in the other zone")
            for number in range(4):
                await world.pod(f"s{number}", labels={"app": "api"})
            await until(lambda: all(world.node_of(f"s{n}") for n in range(4)), "bound")
            assert {world.node_of(f"s{n}") for n in range(4)} == {"n0", "n1", "n2", "n3"}


async def test_replicas_do_not_put_pods_together_that_repel_each_other(
    nats_url: str, redis_url: str, cluster: str
) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        for number in range(24):
            await world.node(f"n{number}", labels={HOSTNAME: f"n{number}"})
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, FAST) as one, scheduler(nats_url, redis_url, cluster, FAST):
            await until(lambda: one._replicas.share.replicas == 2, "they know of each other")
            for number in range(24):
                await world.pod(f"p{number}", labels={"app": "web"}, affinity=_far())
            await until(lambda: len(world.bound) == 24, "all bound")
            assert len(set(world.bound.values())) == 24


async def test_replicas_do_not_give_a_host_port_away_twice(nats_url: str, redis_url: str, cluster: str) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        for number in range(12):
            await world.node(f"n{number}")
        await world.listed()
        async with (
            scheduler(nats_url, redis_url, cluster, FAST) as one,
            scheduler(nats_url, redis_url, cluster, FAST) as two,
        ):
            await until(
                lambda: one._replicas.share.replicas == two._replicas.share.replicas == 2, "they know of each other"
            )
            for service in (one, two):  # each believes that all pods are its own, as for moments when one comes
                service._replicas.share.set_members([])
            for number in range(12):
                containers = [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]
                await world.pod(f"p{number}", namespace=f"ns{number % 3}", containers=containers)
            await until(lambda: len(world.bound) == 12, "all bound")
            assert len(set(world.bound.values())) == 12
