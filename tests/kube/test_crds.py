"""The custom resource definitions: complete, structural, and true to what koord reads."""

import re
from typing import Any

import msgspec
import pytest

from koord.kube import crds, groups, queues, quotas
from koord.kube.quantity import parse
from koord.kube.resources import (
    ALL,
    ELASTIC_QUOTAS,
    NODE_RESOURCE_TOPOLOGIES,
    POD_GROUPS,
    QUEUE_UNITS,
    QUEUES,
    Resource,
)

LOADED = {definition["metadata"]["name"]: definition for definition in crds.load()}
CUSTOM = [resource for resource in ALL if f"{resource.plural}.{resource.group}" in LOADED]


def definition(resource: Resource) -> dict[str, Any]:
    return LOADED[f"{resource.plural}.{resource.group}"]


def test_every_custom_resource_has_one() -> None:
    builtin = {
        "",
        "batch",
        "policy",
        "coordination.k8s.io",
        "scheduling.k8s.io",
        "storage.k8s.io",
        "resource.k8s.io",
        "apiextensions.k8s.io",
    }
    assert {resource.kind for resource in CUSTOM} == {
        resource.kind for resource in ALL if resource.group not in builtin
    }
    assert len(LOADED) == len(CUSTOM)


@pytest.mark.parametrize("resource", CUSTOM, ids=lambda resource: resource.kind)
def test_names_and_versions_are_those_koord_asks_for(resource: Resource) -> None:
    spec = definition(resource)["spec"]
    assert (spec["group"], spec["names"]["plural"], spec["names"]["kind"]) == (
        resource.group,
        resource.plural,
        resource.kind,
    )
    assert spec["scope"] == ("Namespaced" if resource.namespaced else "Cluster")
    [version] = [version for version in spec["versions"] if version["name"] == resource.version]
    assert version["served"]
    assert version["storage"]
    has_status = "status" in version.get("subresources", {})
    assert has_status is (resource not in (ELASTIC_QUOTAS, POD_GROUPS, NODE_RESOURCE_TOPOLOGIES))


def check(schema: dict[str, Any], path: str) -> None:
    """The rules of a structural schema that hand-written ones break most."""
    open_ended = schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields")
    assert "type" in schema or open_ended, path
    assert not {"$ref", "definitions", "uniqueItems"} & schema.keys(), path
    if schema.get("type") == "array":
        assert "items" in schema, path
        keys = schema.get("x-kubernetes-list-map-keys", [])
        for key in keys:
            item = schema["items"]
            assert key in item.get("required", []) or "default" in item["properties"][key], f"{path}: {key}"
        check(schema["items"], f"{path}[]")
    for name, inner in schema.get("properties", {}).items():
        check(inner, f"{path}.{name}")
    assert not ("properties" in schema and "additionalProperties" in schema), path
    if "additionalProperties" in schema:
        check(schema["additionalProperties"], f"{path}{{}}")


@pytest.mark.parametrize("resource", CUSTOM, ids=lambda resource: resource.kind)
def test_schemas_are_structural(resource: Resource) -> None:
    for version in definition(resource)["spec"]["versions"]:
        check(version["schema"]["openAPIV3Schema"], resource.kind)


def properties(resource: Resource, part: str) -> dict[str, Any]:
    schema = definition(resource)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"][part]
    return dict(schema["properties"])


@pytest.mark.parametrize(
    ("resource", "part", "view"),
    [
        (QUEUES, "spec", queues.QueueSpec),
        (QUEUES, "status", queues.QueueStatus),
        (QUEUE_UNITS, "spec", queues.QueueUnitSpec),
        (QUEUE_UNITS, "status", queues.QueueUnitStatus),
        (ELASTIC_QUOTAS, "spec", quotas.ElasticQuotaSpec),
        (ELASTIC_QUOTAS, "status", quotas.ElasticQuotaStatus),
        (POD_GROUPS, "spec", groups.PodGroupSpec),
        (POD_GROUPS, "status", groups.PodGroupStatus),
    ],
)
def test_schema_and_view_know_the_same_fields(resource: Resource, part: str, view: type[msgspec.Struct]) -> None:
    """A field in the view alone would be pruned by the API server."""
    assert set(properties(resource, part)) == {field.encode_name for field in msgspec.structs.fields(view)}


def test_nested_fields_of_a_queue_unit() -> None:
    status = properties(QUEUE_UNITS, "status")
    for name, view in (("admissions", queues.Admission), ("admissionChecks", queues.AdmissionCheckState)):
        assert set(status[name]["items"]["properties"]) == {field.encode_name for field in msgspec.structs.fields(view)}
    pod_set = properties(QUEUE_UNITS, "spec")["podSet"]
    assert set(pod_set["items"]["properties"]) == {field.encode_name for field in msgspec.structs.fields(queues.PodSet)}
    assert (status["admissions"]["maxItems"], status["admissionChecks"]["maxItems"]) == (32, 8)
    assert (status["conditions"]["maxItems"], pod_set["maxItems"]) == (8, 18)


def test_printer_columns_of_a_queue_unit() -> None:
    spec = definition(QUEUE_UNITS)["spec"]
    columns = [(column["name"], column["jsonPath"]) for column in spec["versions"][0]["additionalPrinterColumns"]]
    assert columns == [
        ("Phase", ".status.phase"),
        ("Priority", ".spec.priority"),
        ("Admissions", ".status.admissions"),
        ("JobType", ".spec.consumerRef.kind"),
    ]
    assert spec["names"]["shortNames"] == ["qu", "qus"]


def test_the_pattern_of_quantities_accepts_quantities() -> None:
    pattern = properties(ELASTIC_QUOTAS, "spec")["max"]["additionalProperties"]["pattern"]
    for text in ("1", "500m", "1.5Gi", "1e3", "-1", ".5", "+2k"):
        assert re.search(pattern, text), text
        parse(text)
    for text in ("", "x", "1Gb", "1 ", "four"):
        assert not re.search(pattern, text), text
