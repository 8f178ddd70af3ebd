"""Pods with claims on devices, by kubectl and through every service: claims are made of templates, given, and freed."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.conftest import MANIFESTS, Up

POD = """
apiVersion: v1
kind: Pod
metadata: {name: NAME, namespace: default}
spec:
  schedulerName: koord-scheduler
  terminationGracePeriodSeconds: 1
  resourceClaims: [{name: gpu, resourceClaimTemplateName: large-gpu}]
  containers:
    - {name: main, image: pause, resources: {requests: {cpu: 100m}, claims: [{name: gpu}]}}
"""


def named(up: Up, prefix: str) -> list[dict[str, Any]]:
    return [one for one in up.objects("pods", "-n", "default") if one["metadata"]["name"].startswith(prefix)]


def condition(pod: dict[str, Any]) -> str:
    found = [one for one in pod["status"].get("conditions", []) if one["type"] == "PodScheduled"]
    return str(found[0].get("message", "")) if found else ""


@pytest.mark.slow
def test_claims_of_a_template(own_up: Callable[..., Up]) -> None:
    up = own_up("--nodes", "2")
    up.kubectl("apply", "-f", str(MANIFESTS / "devices.yaml"))

    def placed() -> list[dict[str, Any]]:
        pods = [pod for pod in named(up, "render-") if pod["spec"].get("nodeName")]
        return pods if len(pods) == 2 else []

    pods = up.wait(placed, "both pods of the job have their nodes")
    assert {pod["spec"]["nodeName"] for pod in pods} == {"node-00001"}
    claims = {claim["metadata"]["name"]: claim for claim in up.objects("resourceclaims", "-n", "default")}
    given = []
    for pod in pods:
        [made] = pod["status"]["resourceClaimStatuses"]
        status = claims[made["resourceClaimName"]]["status"]
        [result] = status["allocation"]["devices"]["results"]
        assert (result["driver"], result["pool"]) == ("gpu.example.com", "node-00001")
        assert status["allocation"]["devices"]["config"][0]["source"] == "FromClass"
        assert [user["uid"] for user in status["reservedFor"]] == [pod["metadata"]["uid"]]
        given.append(result["device"])
    assert sorted(given) == ["gpu-0", "gpu-1"]
    # The next one waits, is told why, and has the device of whoever goes first. A scheduler dies meanwhile.
    up.kubectl("apply", "-f", "-", stdin=POD.replace("NAME", "next"))
    text = "0/2 nodes are available: 2 cannot allocate all claims."
    up.wait(lambda: condition(named(up, "next")[0]).startswith(text), "it is told that there is none left")
    up.kill("scheduler")
    up.kubectl("delete", "job", "render", "-n", "default")
    up.wait(lambda: named(up, "next")[0]["spec"].get("nodeName") == "node-00001", "it has one", 120)
    up.kubectl("delete", "pod", "next", "-n", "default")
    up.wait(lambda: not up.objects("resourceclaims", "-n", "default"), "no claim is left")
