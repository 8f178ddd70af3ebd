"""Server-side tables: the columns of custom and built-in kinds, and what their cells show."""

from typing import Any

import pytest

from tests.conformance.client import Client
from tests.conformance.definitions import COLUMNS, DEFINITIONS, definition
from tests.conformance.rig import Kubectl, config_map, pod
from tests.conformance.stored import path_of, placed, sent
from tests.conformance.test_schemas import define

TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
SPEC: dict[str, Any] = {
    "size": 3,
    "half": 1.5,
    "when": "2020-01-01T00:00:00Z",
    "list": ["a", "b"],
    "labels": {"x": "y"},
    "map": [{"name": "b", "value": "no"}, {"name": "a", "value": "yes"}],
}


async def table(client: Client, path: str, **params: Any) -> dict[str, Any]:
    answer = await client.request("GET", path, params=params or None, headers=TABLE)
    assert answer.status == 200 and answer.body["kind"] == "Table", answer.body
    body: dict[str, Any] = answer.body
    return body


async def test_printer_columns(client: Client, namespace: str, kubectl: Kubectl) -> None:
    body = definition(additionalPrinterColumns=COLUMNS)
    await define(client, body)
    group = body["spec"]["group"]
    path = f"/apis/{group}/v1/namespaces/{namespace}/things"
    for name, spec in (("full", SPEC), ("small", {"size": 1, "color": "green", "on": False})):
        one = {"apiVersion": f"{group}/v1", "kind": "Thing", "metadata": {"name": name}, "spec": spec}
        assert (await client.post(path, one)).status == 201
    found = await table(client, path)
    definitions = [(column["name"], column["type"], column["priority"]) for column in found["columnDefinitions"]]
    expected = [(column["name"], column["type"], column.get("priority", 0)) for column in COLUMNS]
    assert definitions == [("Name", "string", 0), *expected]
    assert found["columnDefinitions"][1]["description"] == "How big"
    full, small = ([*row["cells"]] for row in found["rows"])
    assert full[:4] == ["full", 3, "red", True]
    assert full[5:10] == ['["a","b"]', "a", '{"x":"y"}', "yes", 1.5]
    assert small == ["small", 1, "green", False, *[None] * 6, small[-1]]
    assert full[4].startswith(("6y", "7y", "8y", "9y")) and full[-1].endswith("s")
    assert found["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    whole = await table(client, path, includeObject="Object")
    assert whole["rows"][0]["object"]["spec"]["size"] == 3
    assert (await table(client, path, includeObject="None"))["rows"][0].get("object") is None

    shown = kubectl("get", f"things.{group}").stdout.splitlines()
    assert shown[0].split() == ["NAME", "SIZE", "ON", "WHEN", "LIST", "FIRST", "LABELS", "VALUE", "NUMBER", "AGE"]
    wide = kubectl("get", f"things.{group}", "-o", "wide").stdout.splitlines()
    assert wide[0].split()[2] == "COLOR" and wide[2].split()[:3] == ["small", "1", "green"]
    assert kubectl("get", "koordtest", "-o", "name").stdout.split()[0].endswith("/full")
    await client.delete(f"{DEFINITIONS}/{body['metadata']['name']}")


async def test_without_columns_there_are_name_and_age(client: Client, namespace: str) -> None:
    body = definition({"type": "object"})
    await define(client, body)
    found = await table(client, f"/apis/{body['spec']['group']}/v1/namespaces/{namespace}/things")
    assert [column["name"] for column in found["columnDefinitions"]] == ["Name", "Age"]
    await client.delete(f"{DEFINITIONS}/{body['metadata']['name']}")


# Name of the object in `sent.yaml`: names of all columns, and the cells up to the age.
BUILT_IN: dict[str, tuple[str, list[Any]]] = {
    "budget": ("Name|Min Available|Max Unavailable|Allowed Disruptions|Age", ["budget", "50%", "N/A"]),
    "configmap": ("Name|Data|Age", ["configmap", 2]),
    "secret": ("Name|Type|Data|Age", ["secret", "Opaque", 2]),
    "account": ("Name|Age", ["account"]),
    "service-headless": (
        "Name|Type|Cluster-IP|External-IP|Port(s)|Age|Selector",
        ["service-headless", "ClusterIP", "None", "<none>", "23456/TCP"],
    ),
    "service-external": (
        "Name|Type|Cluster-IP|External-IP|Port(s)|Age|Selector",
        ["service-external", "ExternalName", "<none>", "example.com", "<none>"],
    ),
    "job": (
        "Name|Status|Completions|Duration|Age|Containers|Images|Selector",
        ["job", "Suspended", "0/1"],
    ),
    "cronjob": (
        "Name|Schedule|Timezone|Suspend|Active|Last Schedule|Age|Containers|Images|Selector",
        ["cronjob", "* * * * *", "<none>", "True", 0, "<none>"],
    ),
    "deployment-recreate": (
        "Name|Ready|Up-to-date|Available|Age|Containers|Images|Selector",
        ["deployment-recreate", "0/0", 0, 0],
    ),
    "statefulset": ("Name|Ready|Age|Containers|Images", ["statefulset", "0/1"]),
    "replicaset": ("Name|Desired|Current|Ready|Age|Containers|Images|Selector", ["replicaset", 1]),
    "daemonset": (
        "Name|Desired|Current|Ready|Up-to-date|Available|Node Selector|Age|Containers|Images|Selector",
        ["daemonset"],
    ),
    "lease": ("Name|Holder|Age", ["lease", "me"]),
    "claim": (
        "Name|Status|Volume|Capacity|Access Modes|StorageClass|VolumeAttributesClass|Age|VolumeMode",
        ["claim", "Pending", "", "", "", "none", "<unset>"],
    ),
    "quota": ("Name|Request|Limit|Age", ["quota"]),
    "role": ("Name|Created At", ["role"]),
    "binding": ("Name|Role|Age|Users|Groups|ServiceAccounts", ["binding", "Role/role"]),
    "policy": ("Name|Pod-Selector|Age", ["policy", "<none>"]),
    "endpoints": ("Name|Endpoints|Age", ["endpoints", "10.1.2.3:80"]),
    "slice": ("Name|AddressType|Ports|Endpoints|Age", ["slice", "IPv4", "80", "10.1.2.3"]),
    "limits": ("Name|Created At", ["limits"]),
    "rc": ("Name|Desired|Current|Ready|Age|Containers|Images|Selector", ["rc", 0, 0, 0]),
    "template": ("Name|Containers|Images|Pod Labels", ["template", "a", "x", "a=b"]),
}


@pytest.mark.parametrize("name", sorted(BUILT_IN))
@pytest.mark.since("1.35", "columns", only=("account",))
@pytest.mark.since("1.34", "columns", only=("quota",))
@pytest.mark.since("1.30", "columns", only=("claim", "cronjob", "-job"))
async def test_built_in_columns(client: Client, namespace: str, name: str) -> None:
    obj = placed(sent()[name], namespace)
    assert (await client.post(path_of(obj, namespace), obj)).status == 201
    found = await table(client, f"{path_of(obj, namespace)}/{name}")
    names, cells = BUILT_IN[name]
    assert "|".join(column["name"] for column in found["columnDefinitions"]) == names
    if name == "job":  # suspended by its controller, where there is one
        assert found["rows"][0]["cells"][0] == "job"
    else:
        assert found["rows"][0]["cells"][: len(cells)] == cells


@pytest.mark.since("1.37", "columns of definitions")
async def test_pods_and_events(client: Client, namespace: str, kubectl: Kubectl) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    await client.post(path, pod("a"))
    names = "Name|Ready|Status|Restarts|Age|IP|Node|Nominated Node|Readiness Gates"
    found = await table(client, path)
    assert "|".join(column["name"] for column in found["columnDefinitions"]) == names
    cells = found["rows"][0]["cells"]
    assert [*cells[:4], *cells[5:]] == ["a", "0/1", "Pending", "0", "<none>", "<none>", "<none>", "<none>"]
    await client.post(f"/api/v1/namespaces/{namespace}/configmaps", config_map("c", a="1", b="2"))
    assert kubectl("get", "cm", "c", "--no-headers").stdout.split()[:2] == ["c", "2"]
    crds = await table(client, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", limit=1)
    assert [column["name"] for column in crds["columnDefinitions"]] == [
        *("Name", "Scope", "Versions", "Created At", "Group", "Kind", "ShortNames", "Established"),
    ]
    events = await table(client, f"/api/v1/namespaces/{namespace}/events")
    assert "|".join(column["name"] for column in events["columnDefinitions"]) == (
        "Last Seen|Type|Reason|Object|Subobject|Source|Message|First Seen|Count|Name"
    )
