"""ValidatingAdmissionPolicies: what they are held against, what follows, in which words they refuse."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.conformance.client import MERGE, Client, until
from tests.conformance.rig import config_map, unique
from tests.conformance.test_schemas import causes

API = "/apis/admissionregistration.k8s.io/v1"
POLICIES, BINDINGS = f"{API}/validatingadmissionpolicies", f"{API}/validatingadmissionpolicybindings"
INVALID, NEEDED = "FieldValueInvalid", "FieldValueRequired"
RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}


def policy(name: str, *validations: dict[str, Any], **spec: Any) -> dict[str, Any]:
    body = {"matchConstraints": {"resourceRules": [RULE]}, "validations": list(validations), **spec}
    return {"metadata": {"name": name}, "spec": body}


def binding(name: str, policy_name: str, namespace: str, **spec: Any) -> dict[str, Any]:
    """A binding for what is in one namespace."""
    only = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    match = {"namespaceSelector": only, **spec.pop("matchResources", {})}
    body = {"policyName": policy_name, "validationActions": ["Deny"], "matchResources": match, **spec}
    return {"metadata": {"name": name}, "spec": body}


class Policies:
    """Makes policies for one namespace that are deleted at the end."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self.path = f"/api/v1/namespaces/{namespace}/configmaps"
        self.namespace = namespace
        self.names: list[str] = []

    async def install(self, *validations: dict[str, Any], bound: dict[str, Any] | None = None, **spec: Any) -> str:
        """A policy that is in force, and its name: a config map `probe` of the namespace is refused by it."""
        name = unique("p")
        self.names.append(name)
        probe = {"expression": "!has(object.metadata.name) || object.metadata.name != 'probe'", "message": name}
        made = await self._client.post(POLICIES, policy(name, probe, *validations, **spec))
        assert made.status == 201, made.body
        made = await self._client.post(BINDINGS, binding(name, name, self.namespace, **(bound or {})))
        assert made.status == 201, made.body

        async def in_force() -> bool:
            answer = await self._client.post(f"{self.path}?dryRun=All", config_map("probe", probe="1"))
            return name in answer.message or any(name in text for text in answer.warnings)

        await until(in_force)
        return name

    async def remove(self) -> None:
        for name in self.names:
            await self._client.delete(f"{BINDINGS}/{name}")
            await self._client.delete(f"{POLICIES}/{name}")


@pytest.fixture
async def policies(client: Client, namespace: str) -> AsyncIterator[Policies]:
    made = Policies(client, namespace)
    yield made
    await made.remove()


def refusal(name: str, why: str) -> str:
    return f"ValidatingAdmissionPolicy '{name}' with binding '{name}' denied request: {why}"


def has_no(key: str, **more: Any) -> dict[str, Any]:
    return {"expression": f"!('{key}' in variables.data)", **more}


@pytest.mark.since("1.30", "ValidatingAdmissionPolicies")
async def test_what_is_refused_and_how(client: Client, policies: Policies) -> None:
    name = await policies.install(
        has_no("plain"),
        has_no("said", messageExpression="'it says ' + variables.data.said", message="not this"),
        has_no("unsaid", messageExpression="string(object.nope)", message=" fallback "),
        has_no("forbidden", reason="Forbidden", message="f"),
        has_no("large", reason="RequestEntityTooLarge", message="l"),
        {"expression": "variables.count < 3", "message": "too many"},
        {"expression": "!('error' in variables.data) || object.data.nokey == 'q'"},
        {"expression": "!('broken' in variables.data) || variables.broken"},
        {
            "expression": "!('space' in variables.data) || has(namespaceObject.metadata.labels.nope)",
            "message": "no label",
        },
        {"expression": "!('who' in variables.data) || request.userInfo.username == ''", "message": "somebody"},
        variables=[
            {"name": "data", "expression": "has(object.data) ? object.data : {}"},
            {"name": "count", "expression": "size(variables.data)"},
            {"name": "broken", "expression": "object.nope.deeper"},
        ],
        matchConditions=[{"name": "writes", "expression": "request.operation != 'DELETE'"}],
    )
    cases = [
        ("plain", 422, "Invalid", "failed expression: !('plain' in variables.data)"),
        ("said", 422, "Invalid", "it says 1"),
        ("unsaid", 422, "Invalid", "fallback"),
        ("forbidden", 403, "Forbidden", "f"),
        ("large", 413, "RequestEntityTooLarge", "l"),
        (
            "error",
            422,
            "Invalid",
            "expression '!('error' in variables.data) || object.data.nokey == 'q'' resulted in error: "
            "no such key: nokey",
        ),
        (
            "broken",
            422,
            "Invalid",
            "expression '!('broken' in variables.data) || variables.broken' resulted in error: "
            'composited variable "broken" fails to evaluate: no such key: nope',
        ),
        ("space", 422, "Invalid", "no label"),
        ("who", 422, "Invalid", "somebody"),
    ]
    for key, status, reason, why in cases:
        refused = await client.post(f"{policies.path}?dryRun=All", config_map("m", **{key: "1"}))
        told = refusal(name, why)
        assert (refused.status, refused.reason) == (status, reason), refused.body
        assert refused.message == f'configmaps "m" is forbidden: {told}'
        assert refused.body["details"] == {"name": "m", "kind": "configmaps", "causes": [{"message": told}]}
    many = await client.post(f"{policies.path}?dryRun=All", config_map("m", a="1", b="2", c="3"))
    assert many.message.endswith("denied request: too many")
    assert (await client.post(policies.path, config_map("m", a="1"))).status == 201
    refused = await client.patch(f"{policies.path}/m", {"data": {"plain": "1"}}, MERGE)
    assert (refused.status, refused.reason) == (422, "Invalid")
    assert (await client.delete(f"{policies.path}/m")).status == 200


@pytest.mark.since("1.30", "ValidatingAdmissionPolicies")
async def test_old_objects_and_deletions(client: Client, policies: Policies) -> None:
    name = await policies.install(
        {"expression": "request.operation != 'UPDATE' || object.data.a >= oldObject.data.a", "message": "a falls"},
        {"expression": "request.operation != 'DELETE' || oldObject.data.a != '2'", "message": "a stays"},
    )
    assert (await client.post(policies.path, config_map("m", a="1"))).status == 201
    assert (await client.patch(f"{policies.path}/m", {"data": {"a": "2"}}, MERGE)).status == 200
    refused = await client.patch(f"{policies.path}/m", {"data": {"a": "1"}}, MERGE)
    assert refused.message == f'configmaps "m" is forbidden: {refusal(name, "a falls")}'
    refused = await client.delete(f"{policies.path}/m")
    # What follows from a deletion is told of the object that was, which is `null` in the others.
    assert refused.status == 422 and "denied request:" in refused.message
    assert (await client.get(f"{policies.path}/m")).status == 200


@pytest.mark.since("1.30", "ValidatingAdmissionPolicies")
async def test_warnings_and_policies_that_pass_over_errors(client: Client, policies: Policies) -> None:
    name = await policies.install(
        {"expression": "!has(object.data.w)", "message": "w is old"},
        {"expression": "object.nope == 1"},
        failurePolicy="Ignore",
        bound={"validationActions": ["Warn", "Audit"]},
    )
    answer = await client.post(f"{policies.path}?dryRun=All", config_map("m", w="1"))
    assert answer.status == 201
    told = f"Validation failed for ValidatingAdmissionPolicy '{name}' with binding '{name}': w is old"
    assert answer.warnings == [f'299 - "{told}"']
    assert (await client.post(f"{policies.path}?dryRun=All", config_map("m", v="1"))).warnings == []


@pytest.mark.since("1.30", "ValidatingAdmissionPolicies")
async def test_who_is_meant(client: Client, policies: Policies) -> None:
    """By rules, names, selectors of the policy and of its binding, and conditions."""
    never = {"expression": "has(object.metadata.labels) && 'ok' in object.metadata.labels", "message": "no"}
    match = {
        "resourceRules": [RULE],
        "excludeResourceRules": [{**RULE, "resourceNames": ["excluded"]}],
        "objectSelector": {"matchExpressions": [{"key": "free", "operator": "DoesNotExist"}]},
    }
    bound = {"objectSelector": {"matchExpressions": [{"key": "loose", "operator": "DoesNotExist"}]}}
    await policies.install(
        never,
        matchConstraints=match,
        matchConditions=[{"name": "c", "expression": "!has(object.data) || !has(object.data.skip)"}],
        bound={"matchResources": bound},
    )

    async def status(name: str, labels: dict[str, str] | None = None, **data: str) -> int:
        body = config_map(name, **data)
        body["metadata"]["labels"] = labels or {}
        return (await client.post(f"{policies.path}?dryRun=All", body)).status

    assert await status("m") == 422
    assert await status("excluded") == 201
    assert await status("m", {"ok": "1"}) == 201
    assert await status("m", {"free": "1"}) == 201
    assert await status("m", {"loose": "1"}) == 201
    assert await status("m", skip="1") == 201
    other = f"/api/v1/namespaces/{policies.namespace}/secrets?dryRun=All"
    assert (await client.post(other, {"metadata": {"name": "m"}})).status == 201
    assert (await client.post("/api/v1/namespaces/default/configmaps?dryRun=All", config_map("m"))).status == 201


@pytest.mark.since("1.34", "words")
async def test_policies_that_may_not_be_stored(client: Client) -> None:
    none = "validations or auditAnnotations must contain at least one item"
    cases: list[tuple[dict[str, Any], set[tuple[str, str, str]]]] = [
        (
            {"validations": []},
            {(NEEDED, f"spec.{field}", f"Required value: {none}") for field in ("validations", "auditAnnotations")},
        ),
        ({"matchConstraints": None}, {(NEEDED, "spec.matchConstraints", "Required value")}),
        (
            {"matchConstraints": {}, "failurePolicy": "X"},
            {
                (NEEDED, "spec.matchConstraints.resourceRules", "Required value"),
                (
                    "FieldValueNotSupported",
                    "spec.failurePolicy",
                    'Unsupported value: "X": supported values: "Fail", "Ignore"',
                ),
            },
        ),
        (
            {
                "validations": [
                    {"expression": " "},
                    {"expression": "object.x"},
                    {"expression": "true", "message": "a\nb"},
                    {"expression": "true", "messageExpression": "1"},
                    {"expression": "params.x == 1"},
                ]
            },
            {
                (NEEDED, "spec.validations[0].expression", "Required value: expression is not specified"),
                (
                    INVALID,
                    "spec.validations[1].expression",
                    'Invalid value: "object.x": must evaluate to bool but got dyn',
                ),
                (INVALID, "spec.validations[2].message", 'Invalid value: "a\\nb": must not contain line breaks'),
                (
                    INVALID,
                    "spec.validations[3].messageExpression",
                    'Invalid value: "1": must evaluate to string but got int',
                ),
                (
                    INVALID,
                    "spec.validations[4].expression",
                    'Invalid value: "params.x == 1": compilation failed: ERROR: <input>:1:1: undeclared reference to '
                    "'params' (in container '')\n | params.x == 1\n | ^",
                ),
            },
        ),
        (
            {
                "variables": [
                    {"name": "1x", "expression": "1"},
                    {"name": "a", "expression": ""},
                    {"name": "n", "expression": "1"},
                    {"name": "m", "expression": "variables.later"},
                ],
                "validations": [{"expression": "variables.n > 'a'"}],
            },
            {
                (INVALID, "spec.variables[0].name", 'Invalid value: "1x": must be a valid CEL identifier'),
                (NEEDED, "spec.variables[1].expression", "Required value: expression is not specified"),
                (
                    INVALID,
                    "spec.variables[3].expression",
                    'Invalid value: "variables.later": compilation failed: ERROR: <input>:1:10: undefined field '
                    "'later'\n | variables.later\n | .........^",
                ),
                (
                    INVALID,
                    "spec.validations[0].expression",
                    "Invalid value: \"variables.n > 'a'\": compilation failed: ERROR: <input>:1:13: found no matching "
                    "overload for '_>_' applied to '(int, string)'\n | variables.n > 'a'\n | ............^",
                ),
            },
        ),
        (
            {"auditAnnotations": [{"key": "", "valueExpression": "1"}], "validations": []},
            {
                (
                    INVALID,
                    "spec.auditAnnotations[0].valueExpression",
                    'Invalid value: "1": must evaluate to one of [string null_type] but got int',
                )
            },
        ),
    ]
    for spec, wanted in cases:
        body = policy(unique("p"), {"expression": "true"}, **spec)
        refused = await client.post(f"{POLICIES}?dryRun=All", body)
        assert refused.status == 422, (spec, refused.body)
        told = causes(refused.body)
        assert {entry for entry in told if not entry[1].endswith(".key")} == wanted, spec


@pytest.mark.since("1.35", "words")
async def test_bindings_that_may_not_be_stored(client: Client) -> None:
    both = (
        "must not contain both Deny and Warn (repeating the same validation failure information in the API response "
        "and headers serves no purpose)"
    )
    for spec, cause in (
        ({"policyName": ""}, (NEEDED, "spec.policyName", "Required value")),
        ({"validationActions": []}, (NEEDED, "spec.validationActions", "Required value")),
        (
            {"validationActions": ["Deny", "Warn"]},
            (INVALID, "spec.validationActions", f'Invalid value: ["Deny","Warn"]: {both}'),
        ),
        (
            {"validationActions": ["Deny", "Deny"]},
            ("FieldValueDuplicate", "spec.validationActions[1]", 'Duplicate value: "Deny"'),
        ),
        (
            {"validationActions": ["No"]},
            (
                "FieldValueNotSupported",
                "spec.validationActions[0]",
                'Unsupported value: "No": supported values: "Audit", "Deny", "Warn"',
            ),
        ),
    ):
        body = {"metadata": {"name": unique("b")}, "spec": {"policyName": "p", "validationActions": ["Deny"], **spec}}
        refused = await client.post(f"{BINDINGS}?dryRun=All", body)
        assert refused.status == 422 and causes(refused.body) == {cause}, refused.body


@pytest.mark.since("1.30", "ValidatingAdmissionPolicies")
async def test_what_is_left_out_of_policies_and_bindings(client: Client) -> None:
    made = (await client.post(f"{POLICIES}?dryRun=All", policy(unique("p"), {"expression": "true"}))).body["spec"]
    assert made["failurePolicy"] == "Fail"
    assert made["matchConstraints"] == {
        "resourceRules": [{**RULE, "scope": "*"}],
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
    }
    made = (await client.post(f"{BINDINGS}?dryRun=All", binding(unique("b"), "p", "default"))).body["spec"]
    assert made["matchResources"]["matchPolicy"] == "Equivalent" and made["matchResources"]["objectSelector"] == {}
