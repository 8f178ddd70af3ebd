"""Real load through the service: NodeMetrics from the bus, hot nodes, hints, host ports, what is set aside."""

import time
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from koord.kube.meta import now_rfc3339
from koord.kube.resources import NODE_METRICS
from koord.scheduler.plugins.hint import HINT
from koord.scheduler.queueing.queue import QueueSettings
from koord.scheduler.settings import SchedulerSettings
from tests.scheduler.outside import Outside, outside, scheduler, until

FAST = SchedulerSettings(queue=QueueSettings(initial_backoff_s=0.1, max_backoff_s=0.3))


async def report(world: Outside, node: str, cpu: str, *, type_: Any = "MODIFIED") -> None:
    body = {
        "metadata": {"name": node, "uid": f"uid-{node}"},
        "status": {
            "updateTime": now_rfc3339(time.time()),
            "nodeMetric": {"nodeUsage": {"resources": {"cpu": cpu, "memory": "1Gi"}}},
        },
    }
    await world.publisher.publish(NODE_METRICS, type_, "", node, world.version(), msgspec.json.encode(body))


async def test_hot_nodes_are_left_alone(nats_url: str, redis_url: str, cluster: str) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        for name, cpu in (("hot", "3500m"), ("warm", "1500m"), ("cold", "100m")):
            await world.node(name)
            await report(world, name, cpu, type_="ADDED")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, FAST):
            await world.pod("p0", cpu="500m")
            await until(lambda: world.node_of("p0") == "cold", "the coldest node is chosen")

            await world.pod("p1", annotations={HINT: '{"nodeNames":["hot"]}'})
            await until(lambda: world.told("p1"), "hot nodes refuse")
            assert world.told("p1")[0].startswith(
                "0/3 nodes are available: 1 node(s) cpu usage exceed threshold, "
                "2 node(s) didn't satisfy plugin(s) [SchedulingHint]."
            )
            await report(world, "hot", "a lot")
            await until(lambda: world.told("hot", "InvalidNodeMetric"), "told")
            assert world.told("hot", "InvalidNodeMetric")[0].startswith(
                'NodeMetric hot: status: nodeMetric.nodeUsage.resources[cpu]: quantity "a lot"'
            )
            await report(world, "hot", "200m")
            await until(lambda: world.node_of("p1") == "hot", "woken by a report")


COOL_DOWN = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 1
profiles:
- schedulerName: koord-scheduler
  plugins:
    multiPoint: {enabled: [{name: LoadAwareScheduling}]}
  pluginConfig:
  - name: LoadAwareScheduling
    args: {evictionCoolDownSeconds: 1000000}
"""


def _tried(world: Outside, name: str) -> bool:
    return bool(world.told(name) or world.node_of(name))


async def test_a_node_that_evicted_a_best_effort_pod_gets_no_other_for_a_while(
    nats_url: str, redis_url: str, cluster: str, tmp_path: Path
) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text(COOL_DOWN)
    best_effort = {"koordinator.sh/qosClass": "BE"}
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n")
        await report(world, "n", "100m", type_="ADDED")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, SchedulerSettings(config=str(file))):
            await world.pod("evicted", cpu="100m", labels=best_effort)
            await until(lambda: world.node_of("evicted") == "n", "there is room")
            body = world.pods["default/evicted"]
            body["status"].setdefault("conditions", []).append(
                {
                    "type": "DisruptionTarget",
                    "status": "True",
                    "reason": "EvictionByEvictionAPI",
                    "lastTransitionTime": now_rfc3339(time.time()),
                }
            )
            await world.show(body)
            # The scheduler may not have seen it yet: pods come until one is refused.
            count, last = 0, "p0"
            while not world.told(last):
                last = f"p{count}"
                count += 1
                await world.pod(last, cpu="10m", labels=best_effort)
                await until(partial(_tried, world, last), "it is tried")
            text = "0/1 nodes are available: 1 node(s) evicted best-effort pods a moment ago."
            assert world.told(last)[0].startswith(text)
            await world.pod("other", cpu="10m", labels={"koordinator.sh/qosClass": "LS"})
            await until(lambda: world.node_of("other") == "n", "others go on")


async def test_host_ports_and_what_is_set_aside(nats_url: str, redis_url: str, cluster: str) -> None:
    ports: dict[str, Any] = {"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 8080}]}]}
    async with outside(nats_url, redis_url, cluster) as world:
        reserved = {"node.koordinator.sh/reservation": '{"resources":{"cpu":"3"}}'}
        await world.node("a", annotations=reserved)
        await world.node("b", annotations=reserved)
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, FAST):
            for name in ("p0", "p1"):
                await world.pod(name, **ports)
            await until(lambda: {world.node_of(name) for name in ("p0", "p1")} == {"a", "b"}, "a node each")
            await world.pod("p2", **ports)
            await until(lambda: world.told("p2"), "no port is free")
            text = "0/2 nodes are available: 2 node(s) didn't have free ports for the requested pod ports."
            assert world.told("p2")[0].startswith(text)
            await world.pod("large", cpu="1500m")
            await until(lambda: world.told("large"), "three of four cpus are set aside")
            assert world.told("large")[0].startswith("0/2 nodes are available: 2 Insufficient cpu.")
            gone = "p0" if world.node_of("p0") == "a" else "p1"
            await world.delete(gone)
            await until(lambda: world.node_of("p2") == "a", "woken by a port that is free")
