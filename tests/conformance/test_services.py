"""Services: what is given out, what an update keeps, and what is refused. Nothing has to answer at an address."""

import ipaddress
from typing import Any

import pytest

from tests.conformance.client import MERGE, Client
from tests.conformance.rig import Kubectl

PORT = {"port": 80}


def service(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": [dict(PORT)], **spec}}


def path_of(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/services"


def plain(spec: dict[str, Any]) -> dict[str, Any]:
    """A spec with what was given out told by its kind alone."""
    shown: dict[str, Any] = {**spec}
    if "clusterIP" in spec and spec["clusterIP"] != "None":
        assert spec["clusterIPs"] == [str(ipaddress.IPv4Address(spec["clusterIP"]))]
        shown["clusterIP"] = shown.pop("clusterIPs") and "given"
    for port in spec.get("ports", ()):
        if "nodePort" in port:
            assert 30000 <= port["nodePort"] < 32768
    shown["ports"] = [{**port, "nodePort": "given"} if "nodePort" in port else port for port in spec.get("ports", ())]
    return shown


INSIDE = {"clusterIP": "given", "internalTrafficPolicy": "Cluster", "sessionAffinity": "None", "type": "ClusterIP"}
FAMILIES = {"ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"}
PLAIN_PORT = {"port": 80, "protocol": "TCP", "targetPort": 80}
GIVEN_PORT = {**PLAIN_PORT, "nodePort": "given"}


async def test_what_is_given_out(client: Client, namespace: str) -> None:
    path = path_of(namespace)
    made = await client.post(path, service("a"))
    assert made.status == 201, made.body
    assert plain(made.body["spec"]) == {**INSIDE, **FAMILIES, "ports": [PLAIN_PORT]}
    exposed = {**INSIDE, **FAMILIES, "type": "NodePort", "externalTrafficPolicy": "Cluster", "ports": [GIVEN_PORT]}
    assert plain((await client.post(path, service("b", type="NodePort"))).body["spec"]) == exposed
    balanced = (await client.post(path, service("c", type="LoadBalancer"))).body["spec"]
    assert plain(balanced) == {**exposed, "type": "LoadBalancer", "allocateLoadBalancerNodePorts": True}
    without = service("d", type="LoadBalancer", allocateLoadBalancerNodePorts=False)
    assert plain((await client.post(path, without)).body["spec"])["ports"] == [PLAIN_PORT]
    headless = (await client.post(path, service("e", clusterIP="None", selector={"a": "b"}))).body["spec"]
    assert (headless["clusterIPs"], headless["ipFamilies"]) == (["None"], ["IPv4"])
    unselected = (await client.post(path, service("f", clusterIP="None"))).body["spec"]
    assert (unselected["ipFamilies"], unselected["ipFamilyPolicy"]) == (["IPv4", "IPv6"], "RequireDualStack")
    named = (await client.post(path, service("g", type="ExternalName", externalName="a.b"))).body["spec"]
    assert not {"clusterIP", "clusterIPs", "internalTrafficPolicy", "ipFamilies"} & named.keys()
    local = (await client.post(path, service("h", type="LoadBalancer", externalTrafficPolicy="Local"))).body["spec"]
    assert 30000 <= local["healthCheckNodePort"] < 32768
    addresses = [item["spec"].get("clusterIP") for item in (await client.get(path)).body["items"]]
    given = [address for address in addresses if address not in (None, "None")]
    assert len(set(given)) == len(given) == 5


async def test_ports_of_one_number_share_their_node_port(client: Client, namespace: str) -> None:
    ports = [{"port": 53, "name": "a"}, {"port": 53, "name": "b", "protocol": "UDP"}, {"port": 54, "name": "c"}]
    made = (await client.post(path_of(namespace), service("a", type="NodePort", ports=ports))).body["spec"]["ports"]
    assert made[0]["nodePort"] == made[1]["nodePort"] != made[2]["nodePort"]


@pytest.mark.since("1.33", "words")
async def test_what_is_taken_or_out_of_range_is_refused(client: Client, namespace: str) -> None:
    path = path_of(namespace)
    first = (await client.post(path, service("a", type="NodePort"))).body["spec"]
    address, port = first["clusterIP"], first["ports"][0]["nodePort"]
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({"clusterIP": address}, "spec.clusterIPs", "provided IP is already allocated"),
        ({"clusterIP": "192.168.7.7"}, "spec.clusterIPs", "the provided network does not match the current range"),
        (
            {"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]},
            "spec.ports[0].nodePort",
            "already allocated",
        ),
        ({"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]}, "spec.ports[0].nodePort", "30000-32767"),
    ]
    for spec, field, words in cases:
        refused = await client.post(path, service("b", **spec))
        assert refused.status == 422, spec
        [cause] = refused.body["details"]["causes"]
        assert cause["field"] == field and words in cause["message"]
    assert (await client.delete(f"{path}/a")).status == 200
    again = await client.post(path, service("b", type="NodePort", clusterIP=address, ports=first["ports"]))
    assert again.status == 201, again.body
    assert again.body["spec"]["clusterIP"] == address


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"type": "Other"}, "spec.type"),
        ({"ports": [{"port": 80, "nodePort": 30090}]}, "spec.ports[0].nodePort"),
        ({"type": "ExternalName", "externalName": "a.b", "clusterIP": "10.96.7.5"}, "spec.clusterIPs"),
        ({"type": "ExternalName", "externalName": "A_b"}, "spec.externalName"),
        ({"type": "NodePort", "clusterIP": "None"}, "spec.clusterIPs[0]"),
        ({"ipFamilyPolicy": "RequireDualStack"}, "spec.ipFamilyPolicy"),
        ({"ipFamilies": ["IPv6"]}, "spec.ipFamilies[0]"),
        ({"ports": [{"port": 80, "name": "a"}, {"port": 80, "name": "b"}]}, "spec.ports[1]"),
        ({"ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "a"}]}, "spec.ports[1].name"),
        ({"ports": [{"port": 80, "name": "A_"}]}, "spec.ports[0].name"),
        ({"ports": [{"port": 80, "targetPort": "_http"}]}, "spec.ports[0].targetPort"),
        ({"ports": [{"port": 80, "targetPort": "80"}]}, "spec.ports[0].targetPort"),
        ({"ports": [{"port": 80, "targetPort": "a--b"}]}, "spec.ports[0].targetPort"),
        ({"sessionAffinity": "X"}, "spec.sessionAffinity"),
        ({"internalTrafficPolicy": "X"}, "spec.internalTrafficPolicy"),
        ({"externalTrafficPolicy": "Local"}, "spec.externalTrafficPolicy"),
        ({"externalIPs": ["x"]}, "spec.externalIPs[0]"),
        ({"selector": {"a": "_"}}, "spec.selector"),
        ({"clusterIP": "x"}, "spec.clusterIPs[0]"),
    ],
)
async def test_services_that_break_a_rule(client: Client, namespace: str, spec: dict[str, Any], field: str) -> None:
    refused = await client.post(path_of(namespace), service("a", **spec))
    assert (refused.status, refused.reason) == (422, "Invalid")
    assert [cause["field"] for cause in refused.body["details"]["causes"]] == [field]


async def test_an_update_keeps_what_was_given(client: Client, namespace: str) -> None:
    path = path_of(namespace)
    made = (await client.post(path, service("a", type="NodePort"))).body
    address, port = made["spec"]["clusterIP"], made["spec"]["ports"][0]["nodePort"]
    replaced = await client.put(f"{path}/a", service("a", type="NodePort"))
    assert replaced.status == 200, replaced.body
    assert replaced.body["spec"] == made["spec"]
    other_port = (await client.patch(f"{path}/a", {"spec": {"ports": [{"port": 81}]}}, MERGE)).body["spec"]
    assert (other_port["ports"][0]["port"], other_port["ports"][0]["nodePort"]) == (81, port)
    for gone in (None, ""):
        assert (await client.patch(f"{path}/a", {"spec": {"clusterIP": gone}}, MERGE)).body["spec"] == other_port
    refused = await client.patch(f"{path}/a", {"spec": {"clusterIP": "10.96.7.77"}}, MERGE)
    assert refused.status == 422 and "may not change once set" in refused.message
    balanced = (await client.patch(f"{path}/a", {"spec": {"type": "LoadBalancer"}}, MERGE)).body["spec"]
    assert (balanced["clusterIP"], balanced["ports"][0]["nodePort"]) == (address, port)
    inside = (await client.patch(f"{path}/a", {"spec": {"type": "ClusterIP"}}, MERGE)).body["spec"]
    assert inside["clusterIP"] == address and "nodePort" not in inside["ports"][0]
    assert not {"externalTrafficPolicy", "allocateLoadBalancerNodePorts"} & inside.keys()
    named = {"spec": {"type": "ExternalName", "externalName": "a.b"}}
    outside = (await client.patch(f"{path}/a", named, MERGE)).body["spec"]
    assert not {"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"} & outside.keys()
    back = (await client.patch(f"{path}/a", {"spec": {"type": "ClusterIP", "externalName": None}}, MERGE)).body["spec"]
    assert plain(back) == plain(inside)


async def test_a_dry_run_takes_nothing(client: Client, namespace: str) -> None:
    path = path_of(namespace)
    ports = [{"port": 80, "nodePort": 32123}]
    for _ in range(2):
        tried = await client.post(path, service("a", type="NodePort", ports=ports), dryRun="All")
        assert tried.status == 201 and tried.body["spec"]["clusterIP"]
    assert (await client.get(f"{path}/a")).status == 404


async def test_what_kubectl_shows(client: Client, namespace: str, kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "web", "--image=web", "--replicas=0")
    assert "exposed" in kubectl("expose", "deployment", "web", "--port=80", "--type=NodePort").stdout
    spec = (await client.get(f"{path_of(namespace)}/web")).body["spec"]
    address, port = spec["clusterIP"], spec["ports"][0]["nodePort"]
    row = kubectl("get", "service", "web", "-o", "wide", "--no-headers").stdout.split()
    assert row[:5] == ["web", "NodePort", address, "<none>", f"80:{port}/TCP"] and row[-1] == "app=web"
    described = kubectl("describe", "service", "web").stdout
    assert (
        f"IP:                       {address}" in described
        and f"NodePort:                 <unset>  {port}/TCP" in described
    )
    kubectl("create", "service", "clusterip", "inside", "--tcp=80:8080")
    assert kubectl("get", "service", "inside", "-o", "jsonpath={.spec.clusterIP}").stdout.count(".") == 3
    headless = kubectl("create", "service", "clusterip", "none", "--clusterip=None", "--tcp=80")
    assert "created" in headless.stdout


async def test_what_only_some_services_have_is_refused(client: Client, namespace: str) -> None:
    path = path_of(namespace)
    for spec, told in (
        ({"clusterIPs": ["10.96.0.77"]}, "must be empty when `clusterIP` is not specified"),
        ({"clusterIP": "10.96.0.80", "clusterIPs": ["10.96.0.81"]}, "first value must match `clusterIP`"),
        ({"loadBalancerClass": "a/b"}, "spec.loadBalancerClass: Forbidden: may only be used when `type` is"),
        ({"healthCheckNodePort": 30300}, "spec.healthCheckNodePort: Invalid value: 30300: may only be set when"),
    ):
        refused = await client.post(path, service("a", **spec))
        assert refused.status == 422 and told in refused.body["message"], refused.body
    local = {"type": "LoadBalancer", "externalTrafficPolicy": "Local"}
    first = (await client.post(path, service("first", **local))).body["spec"]["healthCheckNodePort"]
    for number, told in ((first, "already allocated"), (99, "not in the valid range")):
        refused = await client.post(path, service("second", **local, healthCheckNodePort=number))
        assert refused.status == 500 and told in refused.body["message"], refused.body
    # What was given out stays through an update that names it.
    kept = await client.patch(f"{path}/first", {"spec": {"healthCheckNodePort": first, "selector": {"a": "b"}}}, MERGE)
    assert kept.status == 200 and kept.body["spec"]["healthCheckNodePort"] == first, kept.body
