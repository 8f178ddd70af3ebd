"""The webhook on Bindings as the API server calls it: registered, replaced, renewed, withdrawn; whom it never stops."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from koord.gateway.access import AccessError, ApiAccess
from koord.gateway.api import Api
from koord.gateway.webhookserver import NAME, WebhookServer, check_reachable, withdraw_leftover
from koord.runtime.ending import end
from tests.gateway.conftest import Kube, until
from tests.gateway.foreignbed import Bed, opened

PATH = f"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{NAME}"

Make = Callable[..., Any]


@pytest.fixture
async def bed(kube: Kube, redis_url: str, cluster: str) -> AsyncIterator[Bed]:
    async with opened(kube, redis_url, cluster) as bed:
        for node in ("n1", "n2"):
            if await kube.get(f"/api/v1/nodes/{node}") is None:
                await kube.node(node)
        yield bed
        await kube.api.call("delete", PATH)


@pytest.fixture
async def make(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Make]:
    """Servers that take the tests' own Bindings for those of somebody else: the API server has but one user."""

    async def user(_: WebhookServer) -> str:
        return "system:serviceaccount:koord-system:koord-gateway"

    monkeypatch.setattr(WebhookServer, "_user", user)
    # A busy machine is no koord that is away.
    monkeypatch.setattr("koord.gateway.webhookserver._TIMEOUT_S", 30)
    monkeypatch.setattr("koord.gateway.foreign.ANSWER_S", 25.0)
    async with AsyncExitStack() as stack:

        async def made(required: bool, *spared: str) -> WebhookServer:
            server = WebhookServer(bed.kube.api, bed.foreign, "127.0.0.1", 0, required=required, spared=spared)
            await server.start()
            stack.push_async_callback(server.stop)
            return server

        yield made


async def bind(kube: Kube, pod: dict[str, Any], node: str) -> tuple[int, str]:
    name = pod["metadata"]["name"]
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
    path = f"/api/v1/namespaces/{kube.namespace}/pods/{name}/binding"
    answer = await kube.api.once("bind", path, json.dumps(body).encode())
    return answer.status, json.loads(answer.body).get("message", "")


async def registered(kube: Kube) -> dict[str, Any]:
    found = await kube.get(PATH)
    return {} if found is None else {hook["name"]: hook for hook in found["webhooks"]}


async def test_bindings_of_others_are_held_or_refused(bed: Bed, make: Make) -> None:
    server = await make(True)
    await server.register()
    pods = [await bed.kube.pod(f"theirs-{number}") for number in range(3)]
    assert [(await bind(bed.kube, pod, "n1"))[0] for pod in pods[:2]] == [201, 201]
    assert await bed.cpu("n1") == (0, 2000)
    status, message = await bind(bed.kube, pods[2], "n1")
    assert status == 409
    assert "node n1 has not the room (cpu: 1000 needed, 0 left)" in message


async def test_required_it_stops_nobody_in_spared_namespaces(bed: Bed, make: Make) -> None:
    """Koord's own pods, and what makes nodes ready, are bound by another scheduler while koord is away."""
    server = await make(True, bed.kube.namespace, "kube-system")
    await server.register()
    hooks = await registered(bed.kube)
    assert {name: hook["failurePolicy"] for name, hook in hooks.items()} == {
        "foreign-bindings.koord.sh": "Fail",
        "spared-bindings.koord.sh": "Ignore",
    }
    first, second, third = [await bed.kube.pod(name) for name in ("first", "second", "third")]
    assert (await bind(bed.kube, first, "n1"))[0] == 201
    assert await bed.cpu("n1") == (0, 1000), "asked about all the same"
    bed.foreign.lead(None)
    assert (await bind(bed.kube, second, "n1"))[0] == 201, "not judged"
    await server.stop()
    assert (await bind(bed.kube, third, "n1"))[0] == 201, "nobody answers"


async def test_required_nothing_is_bound_without_an_answer(bed: Bed, make: Make) -> None:
    server = await make(True, "kube-system")
    await server.register()
    await server.stop()
    status, message = await bind(bed.kube, await bed.kube.pod("theirs"), "n1")
    assert status == 500
    assert "foreign-bindings.koord.sh" in message
    await withdraw_leftover(bed.kube.api)
    assert (await bind(bed.kube, await bed.kube.pod("again"), "n1"))[0] == 201, "a gateway that only observes frees it"


async def test_claimed_nobody_waits_for_a_koord_that_is_away(bed: Bed, make: Make) -> None:
    server = await make(False, "kube-system")
    await server.register()
    assert {hook["failurePolicy"] for hook in (await registered(bed.kube)).values()} == {"Ignore"}
    await server.stop()
    assert (await bind(bed.kube, await bed.kube.pod("theirs"), "n1"))[0] == 201


async def test_who_follows_is_asked_and_not_withdrawn_by_who_went(bed: Bed, make: Make) -> None:
    first, second = await make(True), await make(True)
    await first.register()
    await second.register()
    await first.withdraw()
    [hook] = (await registered(bed.kube)).values()
    assert hook["clientConfig"]["url"] == second.url
    assert (await bind(bed.kube, await bed.kube.pod("theirs"), "n1"))[0] == 201
    await second.withdraw()
    assert await registered(bed.kube) == {}
    await second.withdraw()


async def test_a_registration_that_somebody_deleted_comes_again(
    bed: Bed, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("koord.gateway.webhookserver.AGAIN_S", 0.05)
    server = await make(True)
    keeping = asyncio.create_task(server.keep_registered())
    try:
        await until(lambda: registered(bed.kube), "it is registered")
        await bed.kube.api.call("delete", PATH)
        await until(lambda: registered(bed.kube), "it is registered again")
    finally:
        await end(keeping)


async def test_another_certificate_is_trusted_before_it_is_used(
    bed: Bed, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("koord.gateway.webhookserver._LEARNED_S", 0.0)
    monkeypatch.setattr("koord.gateway.webhookserver.AGAIN_S", 0.05)
    server = await make(True)
    await server.register()
    [before] = (await registered(bed.kube)).values()
    await server.renew_certificate()
    [both] = (await registered(bed.kube)).values()
    assert len(both["clientConfig"]["caBundle"]) > 1.9 * len(before["clientConfig"]["caBundle"])
    assert (await bind(bed.kube, await bed.kube.pod("one"), "n1"))[0] == 201
    await server.register()
    [after] = (await registered(bed.kube)).values()
    assert after["clientConfig"]["caBundle"] not in (
        before["clientConfig"]["caBundle"],
        both["clientConfig"]["caBundle"],
    )
    assert (await bind(bed.kube, await bed.kube.pod("two"), "n1"))[0] == 201


async def test_an_address_that_means_another_machine_is_refused(access: ApiAccess, api: Api) -> None:
    check_reachable("127.0.0.1", access)
    access.host = "203.0.113.7"
    check_reachable("203.0.113.9", access)
    with pytest.raises(AccessError, match=r"gateway\.webhook_host: localhost is not this process"):
        check_reachable("localhost", access)
