"""Configurations of admission webhooks: their defaults, rules and match conditions."""

from typing import Any

import pytest

from tests.conformance.client import JSON_PATCH, Client
from tests.conformance.rig import config_map, unique
from tests.conformance.webhooks import (
    API,
    Review,
    WebhookServer,
    config,
    configuration,
    installed,
    rule,
)


async def test_a_configuration_gets_its_defaults(client: Client, namespace: str, webhooks: WebhookServer) -> None:
    service = {"service": {"name": "s", "namespace": "n"}}
    hook = {
        "name": "a.koord.sh",
        "clientConfig": service,
        "rules": [rule("never", group="never.koord.sh")],
        "sideEffects": "NoneOnDryRun",
        "admissionReviewVersions": ["v1"],
    }
    for kind in ("mutating", "validating"):
        path, name = f"{API}/{kind}webhookconfigurations", unique("w")
        made = await client.post(path, configuration(kind, name, [hook]))
        try:
            expected = {
                **hook,
                "clientConfig": {"service": {"name": "s", "namespace": "n", "port": 443}},
                "rules": [{**rule("never", group="never.koord.sh"), "scope": "*"}],
                "failurePolicy": "Fail",
                "matchPolicy": "Equivalent",
                "namespaceSelector": {},
                "objectSelector": {},
                "timeoutSeconds": 10,
            }
            if kind == "mutating":
                expected["reinvocationPolicy"] = "Never"
            assert (made.status, made.body["webhooks"]) == (201, [expected])
            assert made.body["metadata"]["generation"] == 1
            labelled_ = await client.patch(f"{path}/{name}", {"metadata": {"labels": {"a": "b"}}})
            assert labelled_.body["metadata"]["generation"] == 1
            operation = {"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 5}
            changed = await client.patch(f"{path}/{name}", [operation], JSON_PATCH)
            assert changed.body["metadata"]["generation"] == 2
            table = await client.request(
                "GET", f"{path}/{name}", headers={"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
            )
            assert [column["name"] for column in table.body["columnDefinitions"]] == ["Name", "Webhooks", "Age"]
            assert table.body["rows"][0]["cells"][:2] == [name, 1]
        finally:
            await client.delete(f"{path}/{name}")


NAMES = "should be a domain with at least three segments separated by dots"
BAD_CONFIGURATIONS: dict[str, tuple[list[Review], list[str]]] = {
    "names": (
        [config(name=""), config(name="a.b"), config(), config()],
        [
            "webhooks[0].name: Required value",
            f'webhooks[1].name: Invalid value: "a.b": {NAMES}',
            'webhooks[3].name: Duplicate value: "a.koord.sh"',
        ],
    ),
    "side effects": (
        [config(sideEffects=None), config(name="b.koord.sh", sideEffects="Some")],
        [
            "webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun",
            'webhooks[1].sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"',
        ],
    ),
    "review versions": (
        [config(admissionReviewVersions=None), config(name="b.koord.sh", admissionReviewVersions=["v2"])],
        [
            "webhooks[0].admissionReviewVersions: Required value: must specify one of v1, v1beta1",
            'webhooks[1].admissionReviewVersions: Invalid value: ["v2"]: must include at least one of v1, v1beta1',
        ],
    ),
    "timeouts": (
        [config(timeoutSeconds=0), config(name="b.koord.sh", timeoutSeconds=31)],
        [
            f"webhooks[{i}].timeoutSeconds: Invalid value: {value}: the timeout value must be between 1 and 30 seconds"
            for i, value in enumerate((0, 31))
        ],
    ),
    "policies": (
        [config(failurePolicy="x", matchPolicy="y", reinvocationPolicy="z")],
        [
            'webhooks[0].failurePolicy: Unsupported value: "x": supported values: "Fail", "Ignore"',
            'webhooks[0].matchPolicy: Unsupported value: "y": supported values: "Equivalent", "Exact"',
            'webhooks[0].reinvocationPolicy: Unsupported value: "z": supported values: "IfNeeded", "Never"',
        ],
    ),
    "empty rule": (
        [config(rules=[{}])],
        [f"webhooks[0].rules[0].{field}: Required value" for field in ("operations", "apiGroups", "apiVersions")]
        + ["webhooks[0].rules[0].resources: Required value"],
    ),
    "wildcards": (
        [config(rules=[{**rule("*"), "operations": ["*", "x"], "resources": ["*", "pods"], "scope": "q"}])],
        [
            'webhooks[0].rules[0].operations: Invalid value: ["*","x"]:'
            " if '*' is present, must not specify other operations",
            'webhooks[0].rules[0].operations[1]: Unsupported value: "x":'
            ' supported values: "*", "CONNECT", "CREATE", "DELETE", "UPDATE"',
            'webhooks[0].rules[0].resources: Invalid value: ["*","pods"]:'
            " if '*' is present, must not specify other resources without subresources",
            'webhooks[0].rules[0].scope: Unsupported value: "q": supported values: "*", "Cluster", "Namespaced"',
        ],
    ),
    "sub-resources": (
        [config(rules=[{**rule("x"), "resources": ["pods/*", "pods/status"]}])],
        [
            'webhooks[0].rules[0].resources[1]: Invalid value: "pods/status":'
            " if 'pods/*' is present, must not specify pods/status"
        ],
    ),
    "nowhere": (
        [config(clientConfig={})],
        ["webhooks[0].clientConfig: Required value: exactly one of url or service is required"],
    ),
    "not safe": (
        [config(clientConfig={"url": "http://a/b"})],
        [
            'webhooks[0].clientConfig.url: Invalid value: "http":'
            " 'https' is the only allowed URL scheme; desired format: https://host[/path]"
        ],
    ),
    "too much of a url": (
        [config(clientConfig={"url": "https://u:p@a/b?c=d#f"})],
        [
            'webhooks[0].clientConfig.url: Invalid value: "u:p": user information is not permitted in the URL',
            'webhooks[0].clientConfig.url: Invalid value: "f": fragments are not permitted in the URL',
            'webhooks[0].clientConfig.url: Invalid value: "c=d": query parameters are not permitted in the URL',
        ],
    ),
    "service": (
        [config(clientConfig={"service": {"port": 70000, "path": "x//y"}})],
        [
            "webhooks[0].clientConfig.service.name: Required value",
            "webhooks[0].clientConfig.service.namespace: Required value",
            "webhooks[0].clientConfig.service.port: Invalid value: 70000:"
            " port is not valid: must be between 1 and 65535, inclusive",
            "webhooks[0].clientConfig.service.path: Invalid value: \"x//y\": must start with a '/'",
            'webhooks[0].clientConfig.service.path: Invalid value: "x//y": segment[0] may not be empty',
            'webhooks[0].clientConfig.service.path: Invalid value: "x//y": segment[1] may not be empty',
        ],
    ),
    "selector": (
        [config(objectSelector={"matchExpressions": [{"key": "x", "operator": "In"}, {"key": "y", "operator": "Gt"}]})],
        [
            "webhooks[0].objectSelector.matchExpressions[0].values:"
            " Required value: must be specified when `operator` is 'In' or 'NotIn'",
            "webhooks[0].objectSelector.matchExpressions[1].operator:"
            ' Invalid value: "Gt": not a valid selector operator',
        ],
    ),
}


@pytest.mark.parametrize("case", BAD_CONFIGURATIONS)
@pytest.mark.since("1.34", "words: values as JSON", only=("review versions", "wildcards", "service"))
async def test_bad_configurations_are_refused_with_every_broken_rule(client: Client, case: str) -> None:
    hooks, broken = BAD_CONFIGURATIONS[case]
    name = unique("w")
    refused = await client.post(f"{API}/mutatingwebhookconfigurations", configuration("mutating", name, hooks))
    text_ = broken[0] if len(broken) == 1 else f"[{', '.join(broken)}]"
    kind = "MutatingWebhookConfiguration.admissionregistration.k8s.io"
    assert (refused.status, refused.message) == (422, f'{kind} "{name}" is invalid: {text_}')
    assert [f"{cause['field']}: {cause['message']}" for cause in refused.body["details"]["causes"]] == broken


async def test_a_configuration_of_the_wrong_types_cannot_be_read(client: Client) -> None:
    body = configuration("mutating", unique("w"), [config(timeoutSeconds="5")])
    refused = await client.post(f"{API}/mutatingwebhookconfigurations", body)
    assert (refused.status, refused.reason) == (400, "BadRequest")
    assert "timeoutSeconds" in refused.message


HOLDS = [
    "true",
    "request.operation == 'CREATE' && request.resource.resource == 'configmaps'",
    "request.userInfo.username != 'somebody else'",
    "'system:authenticated' in request.userInfo.groups",
    "request.userInfo.groups.exists(g, g.startsWith('system:'))",
    "!request.userInfo.groups.all(g, g.endsWith('x'))",
    "has(object.data) && !has(object.immutable)",
    "object.data.a == '1' && object.data['b'] == '2' && size(object.data) == 2",
    "object.data.exists_one(k, k == 'a')",
    "oldObject == null",
    "object.nope == 1 || true",
    "object.metadata.name in ['m', 'n']",
    "['x', 'y'].filter(v, v > 'x') == ['y']",
    "[1, 2, 3].map(v, v * 2) == [2, 4, 6]",
    "-7 / 2 == -3 && -7 % 3 == -1 && 7 - 2 * 3 == 1 && 1.5 + 1.5 == 3.0",
    "object.data.a.contains('1') ? 'a' + 'b' == 'ab' : false",
    "r'\\d' == '\\\\d' && \"\\u0041\" == 'A' && {'k': 1}['k'] == 1 && !(1 > 2) && 'é'.size() == 1",
]
HOLDS_NOT = [
    "false",
    "request.operation == 'DELETE'",
    "has(request.subResource)",
    "object.nope == 1 && false",
    "object.metadata.name.startsWith('x')",
    "1 == 2 || 'a' == 'b'",
]
FAILS = ["object.nope == 1", "object.data['zz'] == ''", "object.data.a > 1", "[1][5] == 1", "1 / 0 == 1"]


@pytest.mark.since("1.28", "match conditions")
async def test_match_conditions(client: Client, namespace: str, webhooks: WebhookServer) -> None:
    """Asked if all hold. One that cannot be evaluated is a failure, unless another one does not hold."""

    def hook(number: int, *expressions: str, **more: Any) -> Review:
        conditions = [{"name": f"c{i}", "expression": text} for i, text in enumerate(expressions)]
        return webhooks.webhook(
            f"c{number}.koord.sh",
            f"/{number}",
            rule("configmaps"),
            namespace=namespace,
            matchConditions=conditions,
            **more,
        )

    cases = [
        *((True, (text_,)) for text_ in HOLDS),
        *((False, (text_,)) for text_ in HOLDS_NOT),
        (False, ("true", "false")),
        *((False, (text_, "false")) for text_ in FAILS),
        (True, ("true", "1 < 2")),
    ]
    hooks = [hook(i, *expressions) for i, (_, expressions) in enumerate(cases)]
    ignored = [hook(100 + i, text_, failurePolicy="Ignore") for i, text_ in enumerate(FAILS)]
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    async with installed(client, webhooks, namespace, "validating", *hooks, *ignored):
        assert (await client.post(path, config_map("m", a="1", b="2"))).status == 201
        for i, (holds, expressions) in enumerate(cases):
            assert len(webhooks.seen[f"/{i}"]) == holds, expressions
        assert not any(webhooks.seen[f"/{100 + i}"] for i in range(len(FAILS)))
    async with installed(client, webhooks, namespace, "mutating", hook(0, "object.nope == 1", "true")):
        refused = await client.post(path, config_map("n", a="1"))
        assert (refused.status, refused.reason) == (403, "Forbidden")
        error = "expression 'object.nope == 1' resulted in error: no such key: nope"
        assert refused.message == f'configmaps "n" is forbidden: {error}'


@pytest.mark.parametrize(
    "expression",
    ["1 +", "nope == 1", "object.metadata.name", "'a' + 'b'", "size(object) ==", "has(object)", "[1].all(x)"],
)
@pytest.mark.since("1.28", "match conditions")
async def test_match_conditions_that_do_not_compile(client: Client, expression: str) -> None:
    hook = config(matchConditions=[{"name": "c", "expression": expression}])
    refused = await client.post(f"{API}/mutatingwebhookconfigurations", configuration("mutating", unique("w"), [hook]))
    assert refused.status == 422
    (cause,) = refused.body["details"]["causes"]
    assert cause["field"] == "webhooks[0].matchConditions[0].expression"
    assert f'Invalid value: "{expression}": ' in cause["message"]
