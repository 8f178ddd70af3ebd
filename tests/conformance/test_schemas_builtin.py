"""Schemas of built-in kinds: types, and fields that are not known."""

from typing import Any

import pytest

from tests.conformance.client import Client
from tests.conformance.rig import config_map, pod


@pytest.mark.since("1.37", "words")
async def test_built_in_kinds_are_typed(client: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"

    def container(**fields: Any) -> dict[str, Any]:
        return {"containers": [{"name": "a", "image": "i", **fields}]}

    for spec, why in (
        (
            container(ports=[{"containerPort": "80"}]),
            "json: cannot unmarshal string into Go struct field "
            "ContainerPort.spec.containers.ports.containerPort of type int32",
        ),
        ({"containers": "x"}, "json: cannot unmarshal string into Go struct field PodSpec.spec.containers of type "),
        ("x", "json: cannot unmarshal string into Go struct field Pod.spec of type v1.PodSpec"),
        (
            container(resources={"requests": {"cpu": "lots"}}),
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            {**container(), "hostNetwork": "true"},
            "json: cannot unmarshal string into Go struct field PodSpec.spec.hostNetwork of type bool",
        ),
        (
            {**container(), "activeDeadlineSeconds": 1.5},
            "json: cannot unmarshal number 1.5 into Go struct field PodSpec.spec.activeDeadlineSeconds of type int64",
        ),
        (
            container(livenessProbe={"httpGet": {"port": True}}),
            "json: cannot unmarshal bool into Go struct field "
            "HTTPGetAction.spec.containers.livenessProbe.ProbeHandler.httpGet.port of type int32",
        ),
    ):
        answer = await client.post(path, {**pod("p"), "spec": spec})
        assert (answer.status, answer.reason) == (400, "BadRequest"), answer.body
        assert answer.message.startswith(f'Pod in version "v1" cannot be handled as a Pod: {why}'), answer.message
    assert (await client.get(path)).body["items"] == []


@pytest.mark.since("1.25", "fieldValidation")
async def test_built_in_kinds_and_unknown_fields(client: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    body = b'{"metadata":{"name":"c","labels":{"a":"b","a":"c"}},"data":{"a":"1"},"foo":1}'
    problems = {'duplicate field "metadata.labels.a"', 'unknown field "foo"'}
    strict = await client.post(path, body, fieldValidation="Strict")
    assert strict.status == 400
    assert set(strict.message.rpartition("strict decoding error: ")[2].split(", ")) == problems
    made = await client.post(path, body)
    assert made.status == 201 and "foo" not in made.body and made.body["metadata"]["labels"] == {"a": "c"}
    assert len(made.warnings) == 2
    wrong_type = await client.post(path, {**config_map("d"), "data": {"a": 1}})
    assert wrong_type.message.endswith(
        "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"
    )
    patched = await client.patch(f"{path}/c", {"data": {"a": 1}})
    assert (patched.status, patched.body["details"]["causes"][0]["field"]) == (422, "patch")
    unknown = await client.patch(f"{path}/c", {"bar": 1}, fieldValidation="Strict")
    assert unknown.status == 422 and unknown.message.endswith('strict decoding error: unknown field "bar"')
    nulls = await client.patch(f"{path}/c", {"data": None, "metadata": {"labels": None}})
    assert "data" not in nulls.body and "labels" not in nulls.body["metadata"]
