"""Jobs of all kinds on the embedded store, with fake kubelets, stand-in operators and a scheduler of ten lines."""

import argparse
import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from koord.localcluster import components
from koord.localcluster.api.controllers.running import Controllers
from koord.localcluster.api.inprocess import InProcessApi
from koord.localcluster.api.server import ApiServer
from koord.localcluster.clusterapi import ApiError, Object
from koord.localcluster.components import Components, OperatorOptions, Options
from koord.localcluster.httpapi import HttpClusterApi
from koord.localcluster.kubelets.options import KubeletOptions
from tests.localcluster.embedded import scheduler, until, with_crds
from tests.localcluster.operators.manifests import batch_job, kubeflow_job, ray_job, template

RESOURCES = {
    "Job": "jobs.batch",
    "TFJob": "tfjobs.kubeflow.org",
    "PyTorchJob": "pytorchjobs.kubeflow.org",
    "RayJob": "rayjobs.ray.io",
}
FAST = Options(
    kubelets=KubeletOptions(nodes=4, cpu="1000", pods="1000", start_s=0.0, stop_s=0.0, run_s=0.02),
    operators=OperatorOptions(job_backoff_s=0.02),
)


@asynccontextmanager
async def running(api: InProcessApi, options: Options = FAST) -> AsyncIterator[Components]:
    controllers = Controllers(api._cluster)
    controllers.start()
    started = await components.start(api, options)
    try:
        yield started
        for part in (started.fleet, started.runner):
            assert part is None or not any(task.done() for task in part.tasks), "a task died"
    finally:
        await started.stop()
        await controllers.stop()


def quick(**more: Any) -> Object:
    return {"template": template("Never", seconds=0.02), "replicas": 1, **more}


def four_kinds(prefix: str, **options: Any) -> list[Object]:
    """One small job of each kind; `suspend=True` puts each kind's own switch on."""
    suspend = options.get("suspend", False)
    policy = {"suspend": True} if suspend else {}
    spec = {"suspend": True} if suspend else {}
    ray = ray_job(
        f"{prefix}-ray",
        shutdownAfterJobFinishes=True,
        groups=[{"groupName": "w", "replicas": 1, "template": template()}],
        **spec,
    )
    ray["metadata"]["annotations"] = {"koord.sh/fake-run-seconds": "0.02"}
    jobs = [
        batch_job(f"{prefix}-batch", of=template("Never", seconds=0.02), parallelism=2, completions=3, **spec),
        kubeflow_job("TFJob", {"Chief": quick(), "Worker": quick(replicas=2)}, f"{prefix}-tf", **policy),
        kubeflow_job("PyTorchJob", {"Master": quick(), "Worker": quick()}, f"{prefix}-torch", **policy),
        ray,
    ]
    for job in jobs:
        del job["metadata"]["uid"]
    return jobs


def outcome(job: Object) -> str:
    status = job.get("status") or {}
    if job["kind"] == "RayJob":
        return str(status.get("jobDeploymentStatus", ""))
    true = [c["type"] for c in status.get("conditions", []) if c["status"] == "True"]
    return str(true[-1]) if true else ""


async def outcomes(api: InProcessApi) -> dict[str, str]:
    found = {}
    for resource in RESOURCES.values():
        for job in (await api.list(resource))[0]:
            found[job["metadata"]["name"]] = outcome(job)
    return found


async def pods(api: InProcessApi) -> list[Object]:
    return (await api.list("pods"))[0]


DONE = {"Complete", "Succeeded"}


async def test_all_kinds_run_to_their_end() -> None:
    api = with_crds()
    async with running(api), scheduler(api, 4):
        for job in four_kinds("a"):
            await api.create(RESOURCES[job["kind"]], "default", job)

        async def all_done() -> bool:
            found = await outcomes(api)
            return len(found) == 4 and set(found.values()) <= DONE

        await until(all_done)

        async def ray_pods_gone() -> bool:
            return not any("ray.io/cluster" in pod["metadata"]["labels"] for pod in await pods(api))

        await until(ray_pods_gone)
        for pod in await pods(api):
            assert pod["metadata"]["ownerReferences"][0]["controller"] is True
            assert pod["status"]["phase"] == "Succeeded"


async def test_all_kinds_run_to_their_end_over_http(tmp_path: Path) -> None:
    api = with_crds()
    server = ApiServer(api._cluster, tmp_path)
    ready = await server.start()
    headers = {"Authorization": f"Bearer {ready.token}"}
    tls = ssl.create_default_context(cafile=ready.ca)
    try:
        async with HttpClusterApi(ready.url, tls=tls, headers=headers) as http, scheduler(api, 4):
            started = await components.start(http, FAST)
            for job in four_kinds("h"):
                await http.create(RESOURCES[job["kind"]], "default", job)

            async def all_done() -> bool:
                found = await outcomes(api)
                return len(found) == 4 and set(found.values()) <= DONE

            await until(all_done)
            await started.stop()
    finally:
        await server.stop()


async def test_suspended_jobs_wait_run_when_resumed_and_stop_when_suspended_again() -> None:
    api = with_crds()
    async with running(api), scheduler(api, 4):
        jobs = four_kinds("s", suspend=True)
        for job in jobs:
            for path in ("template", "tfReplicaSpecs", "pytorchReplicaSpecs", "rayClusterSpec"):
                lengthen(job["spec"].get(path))
            await api.create(RESOURCES[job["kind"]], "default", job)

        async def all_suspended() -> bool:
            found = await outcomes(api)
            return len(found) == 4 and set(found.values()) == {"Suspended"}

        await until(all_suspended)
        assert await pods(api) == []
        await switch(api, jobs, suspend=False)

        async def all_running() -> bool:
            phases = [pod["status"]["phase"] for pod in await pods(api)]
            return len(phases) >= 2 + 3 + 2 + 3 and set(phases) <= {"Running", "Succeeded"}

        await until(all_running)
        await switch(api, jobs, suspend=True)

        async def none_left() -> bool:
            return not [p for p in await pods(api) if p["status"]["phase"] == "Running"]

        await until(none_left)


def lengthen(value: Any) -> None:
    """Make every template in a spec run until it is deleted."""
    if isinstance(value, dict):
        if "annotations" in value and "koord.sh/fake-run-seconds" in value["annotations"]:
            value["annotations"]["koord.sh/fake-run-seconds"] = "600"
        for item in value.values():
            lengthen(item)


async def switch(api: InProcessApi, jobs: list[Object], *, suspend: bool) -> None:
    for job in jobs:
        kubeflow = job["apiVersion"] == "kubeflow.org/v1"
        change = {"spec": {"runPolicy": {"suspend": suspend}} if kubeflow else {"suspend": suspend}}
        await api.patch(RESOURCES[job["kind"]], "default", job["metadata"]["name"], change)


async def test_a_restart_in_the_middle_loses_and_repeats_nothing() -> None:
    api = with_crds()
    names = [f"r{i}" for i in range(5)]
    async with scheduler(api, 4):
        async with running(api):
            for name in names:
                for job in four_kinds(name):
                    await api.create(RESOURCES[job["kind"]], "default", job)
        for _ in range(4):
            async with running(api):
                await asyncio.sleep(0.03)
        async with running(api):

            async def all_done() -> bool:
                found = await outcomes(api)
                return len(found) == 20 and set(found.values()) <= DONE

            await until(all_done, 240)
            batch = [pod for pod in await pods(api) if pod["metadata"]["ownerReferences"][0]["kind"] == "Job"]
            for name in names:
                mine = [p for p in batch if p["metadata"]["labels"]["job-name"] == f"{name}-batch"]
                assert len(mine) == 3, "three completions, no pod twice"


async def test_pods_of_a_deleted_job_go() -> None:
    api = with_crds()
    async with running(api), scheduler(api, 4):
        jobs = four_kinds("d")
        for job in jobs:
            lengthen(job["spec"])
            await api.create(RESOURCES[job["kind"]], "default", job)

        async def running_pods() -> bool:
            return len([p for p in await pods(api) if p["status"]["phase"] == "Running"]) >= 9

        await until(running_pods)
        for job in jobs:
            resource, name = RESOURCES[job["kind"]], job["metadata"]["name"]
            await api.delete(resource, "default", name, propagation_policy="Background")

        async def none_left() -> bool:
            return await pods(api) == []

        await until(none_left)


async def test_pods_of_a_job_deleted_while_nobody_looked_go() -> None:
    api = with_crds()
    job = batch_job("gone", parallelism=3)
    del job["metadata"]["uid"]
    async with running(api):
        await api.create("jobs.batch", "default", job)

        async def three() -> bool:
            return len(await pods(api)) == 3

        await until(three)
    await api.delete("jobs.batch", "default", "gone", propagation_policy="Background")
    async with running(api):

        async def none_left() -> bool:
            return await pods(api) == []

        await until(none_left)


async def test_a_deleted_pod_is_replaced() -> None:
    api = with_crds()
    async with running(api), scheduler(api, 4):
        job = kubeflow_job("PyTorchJob", {"Master": quick(), "Worker": quick()}, "p")
        del job["metadata"]["uid"]
        lengthen(job["spec"])
        await api.create("pytorchjobs.kubeflow.org", "default", job)

        async def both_run() -> dict[str, str]:
            found = {p["metadata"]["name"]: p for p in await pods(api) if p["status"]["phase"] == "Running"}
            return {name: pod["metadata"]["uid"] for name, pod in found.items()} if len(found) == 2 else {}

        before = await until(both_run)
        await api.delete("pods", "default", "p-worker-0")

        async def another() -> bool:
            after = await both_run()
            return bool(after) and after["p-worker-0"] != before["p-worker-0"]

        await until(another)


async def test_a_malformed_job_becomes_an_event_and_nothing_else() -> None:
    api = with_crds()
    bad: list[Object] = [
        kubeflow_job("TFJob", {"Worker": quick(replicas=-2)}, "bad-tf"),
        kubeflow_job("PyTorchJob", {"Helper": quick()}, "bad-torch"),
        ray_job("bad-ray", groups=[{"groupName": "g", "replicas": "many", "template": template()}]),
    ]
    async with running(api), scheduler(api, 4):
        for job in bad:
            del job["metadata"]["uid"]
            await api.create(RESOURCES[job["kind"]], "default", job)
        for job in four_kinds("good"):
            await api.create(RESOURCES[job["kind"]], "default", job)

        async def told() -> list[Object]:
            events = (await api.list("events"))[0]
            about = [e for e in events if e["involvedObject"]["name"].startswith("bad-")]
            return about if len(about) == 3 else []

        events = await until(told)
        assert {event["reason"] for event in events} == {"InvalidJob"}
        messages = sorted(event["message"] for event in events)
        assert messages == [
            "PyTorchJob bad-torch: spec.pytorchReplicaSpecs.Helper: is no role of a PyTorchJob: Master, Worker",
            "RayJob bad-ray: spec.rayClusterSpec.workerGroupSpecs[0].replicas: "
            "must be a whole number, at least 0, got 'many'",
            "TFJob bad-tf: spec.tfReplicaSpecs.Worker.replicas: must be a whole number, at least 0, got -2",
        ]

        async def the_good_are_done() -> bool:
            found = await outcomes(api)
            return all(found[name] in DONE for name in found if name.startswith("good"))

        await until(the_good_are_done)
        for job in bad:
            stored = await api.get(RESOURCES[job["kind"]], "default", job["metadata"]["name"])
            assert not stored.get("status")


async def test_a_refused_pod_becomes_an_event_and_is_tried_again() -> None:
    api = with_crds()
    body: Object = {"containers": [{"name": "Not A Name", "image": "i"}]}
    job = kubeflow_job("TFJob", {"Worker": {"template": {"spec": body}}}, "refused")
    del job["metadata"]["uid"]
    async with running(api), scheduler(api, 4):
        await api.create("tfjobs.kubeflow.org", "default", job)

        async def told() -> list[Object]:
            return [e for e in (await api.list("events"))[0] if e["reason"] == "FailedCreate"]

        event = (await until(told))[0]
        assert "refused-worker-0" in event["message"] and "spec.containers[0].name" in event["message"]
        body["containers"][0]["name"] = "fine"
        await api.patch(
            "tfjobs.kubeflow.org",
            "default",
            "refused",
            {"spec": {"tfReplicaSpecs": {"Worker": {"template": {"spec": body}}}}},
        )

        async def done() -> bool:
            return (await outcomes(api))["refused"] == "Succeeded"

        await until(done)


async def test_many_jobs_finish_with_exactly_their_pods() -> None:
    api = with_crds()
    async with running(api) as started, scheduler(api, 4):
        for i in range(40):
            for job in four_kinds(f"m{i}"):
                await api.create(RESOURCES[job["kind"]], "default", job)

        async def all_done() -> bool:
            found = await outcomes(api)
            return len(found) == 160 and set(found.values()) <= DONE

        await until(all_done, 240)
        assert started.counts()["pods_created"] == 40 * (3 + 3 + 2 + 3)


async def test_a_defect_of_ours_is_reported_to_who_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    api = with_crds()
    started = await components.start(api, FAST)
    try:
        waiting = asyncio.create_task(started.failed())
        assert started.runner is not None

        async def broken(record: object) -> None:
            raise ZeroDivisionError("a defect")

        monkeypatch.setattr(started.runner, "_reconcile", broken)
        job = batch_job("x")
        del job["metadata"]["uid"]
        await api.create("jobs.batch", "default", job)
        async with asyncio.timeout(60):
            with pytest.raises(ZeroDivisionError, match="a defect"):
                await waiting
    finally:
        await started.stop()


def test_options_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    flags = argparse.Namespace(nodes=7)
    assert components.parse_options(flags, []).kubelets == KubeletOptions(nodes=7)
    assert components.parse_options(flags, ["--gpu-nodes", "2"]).kubelets == KubeletOptions(nodes=7, gpu_nodes=2)
    with pytest.raises(SystemExit):
        components.parse_options(flags, ["--gpu-nodes", "8"])
    assert "gpu_nodes: 8 is more than nodes (7)" in capsys.readouterr().err
    parsed = components.parse_options(flags, ["--components", '{"kubelets": {"cpu": "4"}, "operators": null}'])
    assert parsed == Options(kubelets=KubeletOptions(nodes=7, cpu="4"), operators=None)
    for bad, complaint in (
        ('{"kubelets": {"cpu": "lots"}}', "cpu"),
        ('{"operators": {"kinds": ["Job", "SparkApplication"]}}', "SparkApplication"),
        ('{"kublets": {}}', "kublets"),
        ("[]", "object"),
        ("{", "truncated"),
    ):
        with pytest.raises(SystemExit) as caught:
            components.parse_options(flags, ["--components", bad])
        assert caught.value.code == 2
        assert complaint in capsys.readouterr().err
    with pytest.raises(SystemExit):
        components.parse_options(flags, ["--nonsense"])


async def test_a_name_taken_by_a_foreign_pod_is_told() -> None:
    api = with_crds()
    foreign: Object = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "j-worker-0", "namespace": "default"}}
    await api.create("pods", "default", {**foreign, "spec": template()["spec"]})
    job = kubeflow_job("TFJob", {"Worker": quick()}, "j")
    del job["metadata"]["uid"]
    async with running(api):
        await api.create("tfjobs.kubeflow.org", "default", job)

        async def told() -> list[Object]:
            return [e for e in (await api.list("events"))[0] if e["reason"] == "FailedCreate"]

        assert "already exists" in (await until(told))[0]["message"]
        await api.delete("pods", "default", "j-worker-0")

        async def ours() -> bool:
            try:
                pod = await api.get("pods", "default", "j-worker-0")
            except ApiError:
                return False
            return bool(pod["metadata"].get("ownerReferences"))

        await until(ours)
