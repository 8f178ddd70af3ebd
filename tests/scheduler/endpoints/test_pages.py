"""What a scheduler shows of itself over HTTP, by a running service (spec 10 section 2.11)."""

import msgspec

from koord.contracts.codec import encode
from koord.contracts.quota import QuotaRuntime, QuotaState
from koord.kube.resources import NODE_RESOURCE_TOPOLOGIES
from koord.runtime.pages import ANY, Asked, Page, Pages, json_page
from koord.scheduler.endpoints.configured import configured
from koord.scheduler.endpoints.nodes import node
from koord.scheduler.engine.cluster import NodeInfo
from koord.scheduler.settings import PluginSettings, SchedulerSettings
from tests.scheduler.clusters import Bed
from tests.scheduler.endpoints.asking import SETTINGS, site
from tests.scheduler.numa.machines import LSR, B, topology, zones
from tests.scheduler.outside import outside, until

GANG = "gang.scheduling.koordinator.sh"


async def test_nodes_are_shown_as_they_count(nats_url: str, redis_url: str, cluster: str) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n0", cpu="4", memory="16Gi", more={"example.com/gpu": "2"}, labels={"zone": "a"})
        term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}}
        await world.pod(
            "lonely",
            cpu="1500m",
            memory="1Gi",
            affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
            containers=[
                {
                    "name": "main",
                    "ports": [{"containerPort": 80, "hostPort": 8080}],
                    "resources": {"requests": {"cpu": "1500m", "memory": "1Gi", "example.com/gpu": "1"}},
                }
            ],
        )
        await world.listed()
        async with site(nats_url, redis_url, cluster) as pages:
            await until(lambda: world.node_of("lonely") == "n0", "bound")
            shown = await pages.json("/apis/v1/nodes/n0")
            assert shown["allocatable"] == {
                "MilliCPU": 4000,
                "Memory": 16 << 30,
                "EphemeralStorage": 0,
                "AllowedPodNumber": 110,
                "ScalarResources": {"example.com/gpu": 2},
            }
            assert shown["requested"] == {
                "MilliCPU": 1500,
                "Memory": 1 << 30,
                "EphemeralStorage": 0,
                "AllowedPodNumber": 1,
                "ScalarResources": {"example.com/gpu": 1},
            }
            assert shown["remaining"]["MilliCPU"] == 2500
            assert shown["remaining"]["AllowedPodNumber"] == 109
            assert shown["nonZeroRequested"]["MilliCPU"] == 1500
            assert [pod["metadata"]["name"] for pod in shown["pods"]] == ["lonely"]
            assert shown["podsWithAffinity"] == shown["podsWithRequiredAntiAffinity"] == ["default/lonely"]
            assert shown["usedPorts"] == {"0.0.0.0": [{"Protocol": "TCP", "Port": 8080}]}
            assert shown["node"]["metadata"]["labels"] == {"zone": "a"}
            assert shown["podCount"] == 1
            assert shown["generation"] > 0
            assert await pages.json("/apis/v1/nodes/none", 404) == {"message": "cannot find node none"}
            services = await pages.json("/apis/v1/__services__")
            assert list(services) == ["GET"]
            assert services["GET"] == sorted(services["GET"])
            assert set(services["GET"]) >= {
                "/apis/v1/__services__",
                "/apis/v1/nodes/{node}",
                "/apis/v1/pods/{namespace}/{name}/explain",
                "/apis/v1/plugins/Coscheduling/gang/{namespace}/{name}",
                "/apis/v1/plugins/Coscheduling/gangs",
                "/apis/v1/plugins/ElasticQuota/quotas",
                "/apis/v1/plugins/ElasticQuota/quotas/{name}",
                "/apis/v1/plugins/NodeNUMAResource/nodes/{node}",
            }
            assert (await pages.ask("/apis/v1/nodes/n0", "POST"))[0] == 405
            assert (await pages.ask("/apis/v1/nodes"))[0] == 404


async def test_plugins_show_what_they_keep(nats_url: str, redis_url: str, cluster: str) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n0", cpu="16", memory="32Gi")
        await world.node("bare")
        room = {"cpu": "8", "memory": "16Gi"}
        body = msgspec.json.encode(topology("n0", B, zones(room, room)))
        await world.publisher.publish(NODE_RESOURCE_TOPOLOGIES, "ADDED", "", "n0", world.version(), body)
        await world.quota("team", {"cpu": "10"})
        await world.pod("bound", cpu="4", memory="1Gi", labels={**LSR, "quota.scheduling.koordinator.sh/name": "team"})
        marks = {f"{GANG}/name": "g", f"{GANG}/min-available": "3"}
        await world.pod("member", annotations=marks)
        await world.listed()
        async with site(nats_url, redis_url, cluster) as pages:
            await until(lambda: world.node_of("bound") == "n0", "bound")
            plugins = "/apis/v1/plugins"
            cpus = await pages.json(f"{plugins}/NodeNUMAResource/nodes/n0")
            assert {key: cpus["cpuTopology"][key] for key in ("numCPUs", "numCores", "numNodes", "numSockets")} == {
                "numCPUs": 16,
                "numCores": 8,
                "numNodes": 2,
                "numSockets": 2,
            }
            [pod] = cpus["allocatedPods"]
            assert (pod["namespace"], pod["name"], pod["cpuset"]) == ("default", "bound", "0-1,8-9")
            assert sorted(cpus["allocatedCPUs"], key=int) == ["0", "1", "8", "9"]
            detail = cpus["cpuTopology"]["cpuDetails"]["12"]
            assert detail == {
                "cpuID": 12,
                "coreID": 65536,
                "nodeID": 1,
                "socketID": 1,
                "refCount": 0,
                "exclusivePolicy": "",
            }
            assert cpus["allocatedCPUs"]["8"]["refCount"] == 1
            assert cpus["availableCPUs"] == "2-7,10-15"
            assert cpus["numaNodeResources"][1] == {"node": 1, "resources": {"cpu": "8", "memory": "16Gi"}}
            assert "topology" in (await pages.json(f"{plugins}/NodeNUMAResource/nodes/bare", 500))["message"]
            assert (await pages.ask(f"{plugins}/NodeNUMAResource/nodes/none"))[0] == 500

            quota = await pages.json(f"{plugins}/ElasticQuota/quotas/team")
            assert (quota["max"], quota["runtime"]) == ({"cpu": "10"}, {"cpu": "10"})
            assert quota["used"] == {"cpu": "4", "memory": "1Gi"}
            assert (quota["sharedWeight"], quota["allowLentResource"], quota["request"]) == ({"cpu": "10"}, True, {})
            assert "podCache" not in quota
            asked = QuotaState("team", "koordinator-system", runtime={"cpu": 8000}, request={"cpu": 9000})
            await world.bus.publish_acked(world.bus.subjects.quota_runtime(""), encode(QuotaRuntime("", 1, [asked])))
            books = pages.service._world.quota
            assert books is not None
            await until(lambda: books.asked("team"), "runtimes are told")
            quota = await pages.json(f"{plugins}/ElasticQuota/quotas/team?includePods=true")
            assert quota["request"] == {"cpu": "9"}
            assert quota["runtime"] == {"cpu": "8"}
            assert quota["selfUsed"] == quota["used"]
            assert quota["podCache"] == {
                "default/bound": {"isAssigned": True, "resource": {"cpu": "4", "memory": "1Gi"}}
            }
            assert list(await pages.json(f"{plugins}/ElasticQuota/quotas")) == ["team"]
            assert await pages.json(f"{plugins}/ElasticQuota/quotas?tree=other") == {}
            assert await pages.json(f"{plugins}/ElasticQuota/quotas/no", 404) == {"message": "cannot find quota no"}

            await until(lambda: "default/g" in pages.service._world.book.gangs, "the gang is known")
            gang = await pages.json(f"{plugins}/Coscheduling/gang/default/g")
            assert gang["name"] == "default/g"
            assert (gang["minRequiredNumber"], gang["waitTime"]) == (3, 600 * 10**9)
            assert gang["children"] == gang["pendingChildren"] == {"default/member": {}}
            assert (gang["gangFrom"], gang["hasGangInit"]) == ("GangFromPodAnnotation", True)
            assert await pages.json(f"{plugins}/Coscheduling/gangs") == {"default/g": gang}
            assert gang["createTime"] == ""
            await world.pod_group("g", 3)
            world.groups["default/g"]["metadata"]["creationTimestamp"] = "2026-01-02T03:04:05Z"
            await world.pod_group("g", 3)
            groups = pages.service._intake.groups.items
            await until(
                lambda: "default/g" in groups and groups["default/g"].metadata.creation_timestamp,
                "the PodGroup is known",
            )
            shown = await pages.json(f"{plugins}/Coscheduling/gang/default/g")
            assert (shown["createTime"], shown["gangFrom"]) == ("2026-01-02T03:04:05Z", "GangFromPodGroupCrd")
            missing = await pages.json(f"{plugins}/Coscheduling/gang/default/no", 404)
            assert missing == {"message": "cannot find gang default/no"}


async def test_a_pod_says_why_it_waits(nats_url: str, redis_url: str, cluster: str) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n0", cpu="2")
        await world.listed()
        async with site(nats_url, redis_url, cluster) as pages:
            await world.pod("big", cpu="3")
            await until(lambda: world.told("big"), "told")
            path = "/apis/v1/pods/default/big/explain"
            found = await pages.json(path)
            assert found["reasons"] == [{"plugin": "NodeResourcesFit", "reason": "Insufficient cpu", "nodes": 1}]
            assert found["message"].startswith("0/1 nodes are available: 1 Insufficient cpu.")
            assert found["attempts"] >= 1
            assert found["nearest"] == [{"node": "n0", "reasons": ["Insufficient cpu"], "short": {"cpu": 1000}}]
            assert "NodeResourcesFit" in found["rejected_by"]
            assert {"AssignedPodDelete", "NodeAdd", "NodeUpdateNodeAllocatable"} <= set(found["wakes_on"])
            assert found["waiting_s"] > 0.0
            assert 0.0 <= found.get("backoff_s", 0.0) <= 0.3
            assert (await pages.json("/apis/v1/pods/default/no/explain", 404))["state"] == "unknown"


async def test_what_is_configured_is_shown(nats_url: str, redis_url: str, cluster: str) -> None:
    settings = msgspec.structs.replace(SETTINGS, batch=77)
    async with outside(nats_url, redis_url, cluster) as world:
        await world.listed()
        async with site(nats_url, redis_url, cluster, settings) as pages:
            shown = await pages.json("/configz")
            assert shown["scheduler"]["batch"] == 77
            assert shown["scheduler"]["queue"]["max_backoff_s"] == 0.3
            assert shown["scheduler"]["monitor"] == {"period_s": 10.0, "timeout_s": 30.0}
            [profile] = shown["profiles"]
            assert profile["schedulerName"] == "koord-scheduler"
            assert {"name": "TaintToleration", "weight": 3} in profile["plugins"]["score"]
            assert "NodeResourcesFit" in profile["plugins"]["filter"]


def test_settings_of_third_parties_are_not_shown() -> None:
    settings = SchedulerSettings(plugins=PluginSettings(extra={"Cheapest": {"token": "secret"}}))
    shown = configured(settings, ())
    assert shown["scheduler"]["plugins"]["extra"] == ["Cheapest"]
    assert "secret" not in str(shown)


async def test_who_stands_by_says_so(nats_url: str, redis_url: str, cluster: str) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n0")
        await world.listed()
        async with site(nats_url, redis_url, cluster) as pages:
            pages.service._replicas.on_alone("another")
            for path in ("/apis/v1/__services__", "/apis/v1/nodes/n0", "/apis/v1/plugins/Coscheduling/gangs"):
                assert await pages.json(path, 503) == {"message": "the instance is not leader"}
            pages.service._replicas.on_alone("")
            await pages.json("/apis/v1/nodes/n0")
            pages.service._complete = False
            assert await pages.json("/apis/v1/nodes/n0", 503) == {"message": "the state is not complete yet"}


async def test_pages_by_method_and_pattern() -> None:
    pages = Pages()

    def says(text: str) -> None:
        async def handler(asked: Asked) -> Page:
            return json_page({"text": text, "names": asked.names})

        method, pattern, _ = text.split(" ")
        pages.add(method, pattern, handler)

    says("GET /a/{x} 1")
    says(f"{ANY} /a/{{x}} 2")
    says("PUT /b 3")

    async def text(method: str, path: str) -> object:
        page = await pages.answer(method, path)
        return page if page is None or page.status != 200 else msgspec.json.decode(page.body)["text"].split(" ")[2]

    assert [await text(*asked) for asked in (("GET", "/a/1"), ("HEAD", "/a/1"), ("PUT", "/a/1"))] == ["1", "1", "2"]
    assert await text("PUT", "/b") == "3"
    assert await text("GET", "/a") is None
    assert await text("GET", "/a/1/2") is None
    assert await text("GET", "/a/") is None
    page = await pages.answer("GET", "/b")
    assert page is not None
    assert page.status == 405


def test_images_and_claims_of_a_node_are_shown() -> None:
    bed = Bed()
    bed.engine.set_node(NodeInfo("n0", {"cpu": 4000, "memory": 1 << 30, "pods": 10}, images={"b:1": 7, "a:1": 9}))
    for name, claims in (("p", ("data", "logs")), ("q", ("data",))):
        volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
        pod = bed.pod(name, {"volumes": volumes})
        bed.engine.count(pod.planned("n0", 0.0))
    shown = node(bed.engine, "n0")
    assert shown["imageStates"] == {"a:1": {"size": 9}, "b:1": {"size": 7}}
    assert shown["pvcRefCounts"] == {"default/data": 2, "default/logs": 1}
