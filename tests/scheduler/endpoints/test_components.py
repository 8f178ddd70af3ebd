"""Pages that Kubernetes components have beside their metrics: health by check, pods' resources, profiles."""

import re
import tracemalloc
from pathlib import Path

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from koord.runtime.pages import Asked, Pages
from koord.runtime.readiness import Readiness
from koord.scheduler.endpoints import componentmetrics
from koord.scheduler.endpoints.componentmetrics import ComponentMetrics
from koord.scheduler.podview import PodView
from tests.scheduler.endpoints.asking import SETTINGS, site
from tests.scheduler.outside import outside, until


def pod(name: str, cpu: str, *, phase: str = "", node: str = "", limit: str = "", scheduler: str = "") -> PodView:
    resources = {"requests": {"cpu": cpu, "memory": "1Gi"}, "limits": {"cpu": limit} if limit else {}}
    body = {
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {
            "nodeName": node,
            "priority": 7,
            "schedulerName": scheduler,
            "containers": [{"name": "c", "resources": resources}],
        },
        "status": {"phase": phase},
    }
    return msgspec.json.decode(msgspec.json.encode(body), type=PodView)


async def asked(pages: Pages, path: str) -> str:
    page = await pages.answer("GET", path)
    assert page is not None
    assert page.status == 200
    return page.body.decode()


async def test_what_pods_ask_for() -> None:
    pages, ready, told = Pages(), Readiness(), [True]
    pods = {one.metadata.name: one for one in (pod("a", "1500m", node="n0", limit="2"), pod("b", "2", phase="Failed"))}
    ComponentMetrics(pages, ready, pods, lambda: told[0], "koord-scheduler")
    text = await asked(pages, "/metrics/resources")
    of = 'namespace="default",pod="a",node="n0",scheduler="koord-scheduler",priority="7"'
    assert [line for line in text.splitlines() if not line.startswith("#")] == [
        f'kube_pod_resource_request{{{of},resource="cpu",unit="cores"}} 1.5',
        f'kube_pod_resource_request{{{of},resource="memory",unit="bytes"}} 1073741824',
        f'kube_pod_resource_limit{{{of},resource="cpu",unit="cores"}} 2',
    ]
    pods["c"] = pod("c", "1")
    assert await asked(pages, "/metrics/resources") == text, "it is made every ten seconds at most"
    told[0] = False
    assert await asked(pages, "/metrics/resources") == ""


async def test_no_name_of_a_scheduler_adds_a_metric() -> None:
    # The API takes any text there; a line of its own would be a metric that a tenant makes up.
    pages, name = Pages(), 'x"} 1\nup{a="\\'
    ComponentMetrics(pages, Readiness(), {"a": pod("a", "1", scheduler=name)}, lambda: True, "s")
    text = await asked(pages, "/metrics/resources")
    [family] = [family for family in text_string_to_metric_families(text) if family.name.endswith("_request")]
    assert {sample.labels["scheduler"] for sample in family.samples} == {name}
    assert "\nup{" not in text


async def test_only_so_many_pods_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(componentmetrics, "MOST_PODS", 3)
    monkeypatch.setattr(componentmetrics, "AT_ONCE", 2)
    pages = Pages()
    pods = {f"p{number}": pod(f"p{number}", "1") for number in range(5)}
    ComponentMetrics(pages, Readiness(), pods, lambda: True, "s")
    text = await asked(pages, "/metrics/resources")
    assert len(re.findall("resource_request.*cpu", text)) == 3
    assert text.endswith("# 2 pods are left out\n")


async def test_health_by_check() -> None:
    pages, ready = Pages(), Readiness()
    ready.require("ledger")
    ready.check("bus", lambda: True)
    ComponentMetrics(pages, ready, {}, lambda: True, "s")
    text = await asked(pages, "/metrics/slis")
    assert 'kubernetes_healthcheck{name="ledger",type="readyz"} 0\n' in text
    assert 'kubernetes_healthcheck{name="bus",type="readyz"} 1\n' in text
    assert 'kubernetes_healthcheck{name="ping",type="healthz"} 1\n' in text
    ready.open("ledger")
    text = await asked(pages, "/metrics/slis")
    assert 'kubernetes_healthchecks_total{name="ledger",status="error",type="readyz"} 1\n' in text
    assert 'kubernetes_healthchecks_total{name="ledger",status="success",type="readyz"} 1\n' in text


async def test_profiles_of_a_running_scheduler(nats_url: str, redis_url: str, cluster: str) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n0")
        await world.listed()
        async with site(nats_url, redis_url, cluster) as pages:
            root = "/debug/pprof"
            status, index = await pages.ask(root)
            assert (status, index.count("\n")) == (200, 4)
            status, folded = await pages.ask(f"{root}/profile?seconds=0.2")
            assert status == 200
            stacks = [line.rsplit(" ", 1) for line in folded.splitlines()]
            assert sum(int(count) for _, count in stacks) > 0
            assert any(stack.startswith("MainThread;") for stack, _ in stacks)
            for bad in ("0", "-1", "nan", "1000", "soon"):
                assert (await pages.ask(f"{root}/profile?seconds={bad}"))[0] == 400, bad
            status, stacks_now = await pages.ask(f"{root}/goroutine")
            assert status == 200
            assert "task scheduler-loop" in stacks_now
            assert "thread MainThread" in stacks_now
            assert (await pages.ask(f"{root}/cmdline"))[0] == 200
            assert (await pages.ask(f"{root}/mutex"))[0] == 404
            if not tracemalloc.is_tracing():
                assert (await pages.ask(f"{root}/heap"))[0] == 409
                tracemalloc.start()
                try:
                    status, heap = await pages.ask(f"{root}/heap")
                finally:
                    tracemalloc.stop()
                assert status == 200
                assert heap.startswith("bytes traced: ")

            await world.pod("a")
            await until(lambda: world.node_of("a"), "bound")
            await until(lambda: pages.service._phases.leading, "it leads")
            text = (await pages.ask("/metrics/resources"))[1]
            assert 'pod="a"' in text
            assert (await pages.ask("/metrics/slis"))[0] == 200


async def test_without_profiling_there_are_no_profiles(
    nats_url: str, redis_url: str, cluster: str, tmp_path: Path
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nenableProfiling: false\n"
        "profiles: [{schedulerName: koord-scheduler}]\n"
    )
    async with outside(nats_url, redis_url, cluster) as world:
        await world.listed()
        settings = msgspec.structs.replace(SETTINGS, config=str(path), queue=type(SETTINGS.queue)())
        async with site(nats_url, redis_url, cluster, settings) as pages:
            assert (await pages.ask("/debug/pprof/goroutine"))[0] == 404
            assert (await pages.ask("/debug/flags/v", "PUT", "1"))[0] == 404


async def test_one_profile_at_a_time() -> None:
    from koord.scheduler.endpoints.profiling import Profiling

    profiling = Profiling(Pages())
    profiling._busy = True
    page = await profiling._profile(Asked("GET", {}, {"seconds": "1"}))
    assert page.status == 429
