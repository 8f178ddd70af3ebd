"""What `koord submit --wait` tells of a job: its end in words about the end, in a pipe each change as it comes."""

from importlib.resources import as_file, files
from typing import Any

from rich.console import Console

from koord.cli.commands.submit import _tell
from koord.cli.follow import Follower
from koord.localcluster.api.cluster import Cluster
from koord.localcluster.api.inprocess import InProcessApi
from koord.localcluster.api.server import load_crds
from koord.localcluster.httpapi import ResourcePath

JOBS, UNITS = "tfjobs.kubeflow.org", "queueunits.scheduling.x-k8s.io"


def _job(**status: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"tfReplicaSpecs": {}, "runPolicy": {}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "a", "namespace": "default"},
        "spec": spec,
        "status": status,
    }


def _condition(kind: str) -> dict[str, str]:
    return {"type": kind, "status": "True", "reason": kind, "message": f"TFJob a is {kind}."}


async def test_the_end_is_not_told_in_words_of_before() -> None:
    cluster = Cluster()
    with as_file(files("koord.kube") / "crds") as folder:
        load_crds(cluster, [folder])
    api = InProcessApi(cluster)
    await api.create(JOBS, "default", _job())
    reference = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "a", "namespace": "default"}
    unit = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "QueueUnit",
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {"consumerRef": reference},
    }
    await api.create(UNITS, "default", unit)
    follower = Follower(api)
    follower.add(ResourcePath("/apis/kubeflow.org/v1", "tfjobs", True, "TFJob"), "default", "a")

    async def after(resource: str, status: dict[str, Any]) -> tuple[str, str]:
        await api.patch(resource, "default", "a", {"status": status}, subresource="status")
        async for (row,) in follower.follow("running"):
            return row["stage"], row["message"]
        raise AssertionError

    assert await after(UNITS, {"phase": "Running", "message": "Running"}) == ("starting", "Running")
    assert await after(JOBS, {"conditions": [_condition("Failed")]}) == ("failed", "TFJob a is Failed.")


def test_in_a_pipe_a_line_comes_with_each_change() -> None:
    console, told = Console(width=40), dict[str, str]()
    waits = {"job": "ml/a", "stage": "waiting", "message": "limited quotaName:ml, limited resKey:cpu [ml]"}
    with console.capture() as captured:
        for row in (waits, waits, {**waits, "stage": "starting", "message": ""}):
            _tell(console, [row], told)
    assert captured.get() == "ml/a waiting: limited quotaName:ml, limited resKey:cpu [ml]\nml/a starting\n"
