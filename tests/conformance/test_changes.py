"""What an update of a built-in object may not change, what it may, and what is filled in again when it is gone."""

from typing import Any

import pytest

from tests.conformance.client import JSON_PATCH, MERGE, Client
from tests.conformance.rig import pod

APPS, RBAC = "/apis/apps/v1", "/apis/rbac.authorization.k8s.io/v1"
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "x"}]}}
WORKLOAD = {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}
RULE = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
ROLE = {"kind": "Role", "name": "r", "apiGroup": "rbac.authorization.k8s.io"}
USER = {"kind": "User", "name": "u"}
SLICE = {"addressType": "IPv4", "endpoints": [{"addresses": ["10.1.2.3"]}], "ports": [{"port": 80}]}
CONTAINERS = [{"name": "a", "image": "x"}]
JOB = {"suspend": True, "template": {"spec": {"restartPolicy": "Never", "containers": CONTAINERS}}}


async def made(client: Client, path: str, body: dict[str, Any]) -> str:
    answer = await client.post(path, {"metadata": {"name": "x"}, **body})
    assert answer.status == 201, answer.body
    return f"{path}/x"


def fields(answer: Any) -> list[str]:
    assert answer.status == 422, answer.body
    return sorted(cause["field"] for cause in answer.body["details"]["causes"])


@pytest.mark.parametrize(
    ("where", "body", "patch", "expected"),
    [
        ("/api/v1 secrets", {"type": "a/b"}, {"type": "c/d"}, ["type"]),
        (
            f"{APPS} deployments",
            {"spec": {**WORKLOAD, "paused": True}},
            {"spec": {"selector": {"matchLabels": {"c": "d"}}}},
            ["spec.selector", "spec.template.metadata.labels"],
        ),
        (
            f"{APPS} replicasets",
            {"spec": WORKLOAD},
            {"spec": {"selector": {"matchLabels": {"a": "x"}}}},
            ["spec.selector", "spec.template.metadata.labels"],
        ),
        (
            f"{APPS} replicasets",
            {"spec": WORKLOAD},
            {"spec": {"template": {"metadata": {"labels": {"a": "x"}}}}},
            ["spec.template.metadata.labels"],
        ),
        (
            f"{APPS} statefulsets",
            {"spec": {**WORKLOAD, "serviceName": "s"}},
            {"spec": {"serviceName": "t"}},
            ["spec.serviceName"],
        ),
        (
            f"{APPS} deployments",
            {"spec": {**WORKLOAD, "paused": True}},
            {"spec": {"strategy": {"rollingUpdate": {"maxSurge": -1}}}},
            ["spec.strategy.rollingUpdate.maxSurge"],
        ),
        (f"{RBAC} roles", {"rules": [RULE]}, {"rules": [{**RULE, "verbs": []}]}, ["rules[0].verbs"]),
        (
            f"{RBAC} rolebindings",
            {"roleRef": ROLE, "subjects": [USER]},
            {"subjects": [{"kind": "Robot"}]},
            ["subjects[0].kind", "subjects[0].name"],
        ),
        (f"{RBAC} rolebindings", {"roleRef": ROLE}, {"roleRef": {"name": "other"}}, ["roleRef"]),
        (
            "/apis/networking.k8s.io/v1 networkpolicies",
            {"spec": {"podSelector": {}}},
            {"spec": {"policyTypes": ["a b"]}},
            ["spec.policyTypes[0]"],
        ),
        (
            "/apis/batch/v1 cronjobs",
            {"spec": {"suspend": True, "schedule": "* * * * *", "jobTemplate": {"spec": JOB}}},
            {"spec": {"schedule": "never"}},
            ["spec.schedule"],
        ),
    ],
)
async def test_what_may_not_change(
    client: Client, namespace: str, where: str, body: dict[str, Any], patch: dict[str, Any], expected: list[str]
) -> None:
    group, plural = where.split(" ")
    path = await made(client, f"{group}/namespaces/{namespace}/{plural}", body)
    refused = await client.patch(path, patch)
    assert fields(refused) == expected
    assert (await client.patch(path, {"metadata": {"labels": {"still": "there"}}})).status == 200


@pytest.mark.parametrize(
    ("plural", "body", "expected"),
    [
        ("roles", {"rules": [{}]}, ["rules[0].apiGroups", "rules[0].resources", "rules[0].verbs"]),
        ("rolebindings", {"roleRef": {**ROLE, "kind": "x"}}, ["roleRef.kind"]),
        ("rolebindings", {"roleRef": {"kind": "Role"}}, ["roleRef.name"]),
    ],
)
async def test_roles_that_say_nothing(
    client: Client, namespace: str, plural: str, body: dict[str, Any], expected: list[str]
) -> None:
    path = f"{RBAC}/namespaces/{namespace}/{plural}"
    assert fields(await client.post(path, {"metadata": {"name": "x"}, **body})) == expected


async def test_an_event_stays_in_its_namespace(client: Client, namespace: str) -> None:
    involved = {"kind": "Pod", "name": "p", "namespace": namespace}
    path = await made(client, f"/api/v1/namespaces/{namespace}/events", {"involvedObject": involved})
    gone = [{"op": "remove", "path": "/involvedObject/namespace"}]
    assert fields(await client.patch(path, gone, JSON_PATCH)) == ["involvedObject.namespace"]


async def test_how_long_a_toleration_holds_may_change(client: Client, namespace: str) -> None:
    toleration = {"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    path = f"/api/v1/namespaces/{namespace}/pods"
    created = (await client.post(path, pod("x", tolerations=[toleration]))).body
    longer = [{**one, "tolerationSeconds": 5} if one["key"] == "k" else one for one in created["spec"]["tolerations"]]
    assert (await client.patch(f"{path}/x", {"spec": {"tolerations": longer}})).status == 200
    assert (await client.patch(f"{path}/x", {"spec": {"tolerations": longer[1:]}})).status == 422


async def test_what_is_taken_away_comes_again(client: Client, namespace: str) -> None:
    here = f"namespaces/{namespace}"
    policy = await made(client, f"/apis/networking.k8s.io/v1/{here}/networkpolicies", {"spec": {"podSelector": {}}})
    assert (await client.patch(policy, {"spec": {"policyTypes": []}})).body["spec"]["policyTypes"] == ["Ingress"]
    secret = await made(client, f"/api/v1/{here}/secrets", {})
    assert (await client.patch(secret, {"type": ""})).body["type"] == "Opaque"
    lease = await made(client, f"/apis/coordination.k8s.io/v1/{here}/leases", {"spec": {"holderIdentity": "me"}})
    assert (await client.patch(lease, {"spec": None})).body["spec"] == {}
    sets = await made(client, f"{APPS}/{here}/replicasets", {"spec": WORKLOAD})
    assert "replicas" in (await client.patch(f"{sets}/status", {"status": None}, MERGE)).body["status"]


async def test_metadata_that_may_change(client: Client, namespace: str) -> None:
    path = await made(client, f"/api/v1/namespaces/{namespace}/configmaps", {})
    patched = await client.patch(path, {"metadata": {"generateName": "g-", "selfLink": "x"}})
    assert patched.body["metadata"]["generateName"] == "g-"
    assert "selfLink" not in (await client.get(path)).body["metadata"]


async def test_slices_count_their_changes(client: Client, namespace: str) -> None:
    path = await made(client, f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices", SLICE)
    patches: list[tuple[dict[str, Any], int]] = [
        ({"ports": [{"port": 81}]}, 2),
        ({"metadata": {"labels": {"a": "b"}}}, 3),
        ({"metadata": {"labels": {"a": "b"}}}, 3),
    ]
    for patch, generation in patches:
        assert (await client.patch(path, patch)).body["metadata"]["generation"] == generation
