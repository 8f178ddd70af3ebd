"""The suite's own ground: both servers answer, and what a test is given is there."""

from tests.conformance.client import Client
from tests.conformance.rig import Kubectl


async def test_the_server_is_up_and_says_what_it_is(client: Client) -> None:
    for path in ("/healthz", "/readyz", "/livez", "/healthz/ping"):
        answer = await client.request("GET", path, headers={"Accept": "*/*"})
        assert (answer.status, answer.body) == (200, "ok")
    version = await client.get("/version")
    assert version.status == 200
    assert {"major", "minor", "gitVersion", "platform"} <= version.body.keys()


async def test_a_test_has_a_namespace_and_a_node(client: Client, namespace: str, node: str) -> None:
    assert (await client.get(f"/api/v1/namespaces/{namespace}")).body["status"]["phase"] == "Active"
    assert (await client.get(f"/api/v1/nodes/{node}")).body["status"]["capacity"]["cpu"] == "8"


async def test_watches_arrive_line_by_line(client: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/secrets"
    version = (await client.get(path)).body["metadata"]["resourceVersion"]
    async with client.watch(path, resourceVersion=version) as watch:
        assert (await client.post(path, {"metadata": {"name": "a"}, "data": {"x": "YQ=="}})).status == 201
        event = await watch.next()
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "a")


def test_kubectl_is_in_the_tests_namespace(kubectl: Kubectl, namespace: str) -> None:
    kubectl("create", "configmap", "a", "--from-literal=x=1")
    assert kubectl("get", "configmap", "a", "-o", "jsonpath={.metadata.namespace}").stdout == namespace
