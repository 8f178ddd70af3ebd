"""The probe of a Binding's preconditions, and who may bind where there are none."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from koord.contracts.asks import BindingGuarantees, WhichGuarantees
from koord.gateway.access import ApiAccess
from koord.gateway.api import Api
from koord.gateway.guarantees import SEAT_S, Guarantees
from koord.gateway.leanclient import LeanClient
from koord.gateway.probing import NAME, NOBODY, ProbeFailed, probe, watch
from koord.kube.resources import PODS
from koord.runtime.ending import end
from tests.gateway.conftest import Kube, until
from tests.gateway.oldserver import OldServer


@pytest.fixture
async def client(access: ApiAccess) -> AsyncIterator[LeanClient]:
    made = LeanClient(access, connections=4, timeout_s=10)
    yield made
    await made.close()


def old_api(client: LeanClient, access: ApiAccess, *ignored: str) -> tuple[OldServer, Api]:
    server = OldServer(client, ignored)
    return server, Api(server, access, patience_s=10)  # type: ignore[arg-type]


# The probe ------------------------------------------------------------------------------------------------------------


async def test_the_embedded_server_honours_both_and_nothing_is_left(api: Api, kube: Kube) -> None:
    assert (await probe(api, kube.namespace))[0] == "honoured"
    assert await kube.get_pod(NAME) is None


@pytest.mark.parametrize(
    ("ignored", "what"), [(("uid", "resourceVersion"), "uid"), (("resourceVersion",), "resourceVersion")]
)
async def test_a_server_that_ignores_one_is_found_out(
    client: LeanClient, access: ApiAccess, kube: Kube, ignored: tuple[str, ...], what: str
) -> None:
    _, api = old_api(client, access, *ignored)
    assert await probe(api, kube.namespace) == ("ignored", f"a Binding with another {what} was accepted")
    assert await kube.get_pod(NAME) is None


async def test_what_refuses_everything_proves_nothing(api: Api, kube: Kube) -> None:
    with pytest.raises(ProbeFailed, match="create pod nowhere-at-all/"):
        await probe(api, "nowhere-at-all")


async def test_what_a_dead_gateway_left_is_swept(api: Api, kube: Kube) -> None:
    await kube.pod(NAME)
    with pytest.raises(ProbeFailed, match="already exists"):
        await probe(api, kube.namespace)
    assert await kube.get_pod(NAME) is None
    assert (await probe(api, kube.namespace))[0] == "honoured"


async def test_no_scheduler_is_named_and_every_binding_is_dry(
    client: LeanClient, access: ApiAccess, kube: Kube
) -> None:
    server, api = old_api(client, access)
    await probe(api, kube.namespace)
    bindings = [path for _, path in server.requests if "/binding" in path]
    assert len(bindings) == 3
    assert all(path.endswith("?dryRun=All") for path in bindings)
    assert [path for method, path in server.requests if method == "DELETE"] == [PODS.path(kube.namespace, NAME)]
    pods = [body["spec"]["schedulerName"] for body in server.pods]
    assert pods == [NOBODY]


async def test_another_version_is_tried_anew(
    client: LeanClient, access: ApiAccess, kube: Kube, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("koord.gateway.probing.VERSION_S", 0.02)
    server, api = old_api(client, access, "uid", "resourceVersion")
    server.version = "v1.22.17"
    guarantees = Guarantees()
    task = asyncio.create_task(watch(api, kube.namespace, guarantees))
    try:
        await until(guarantees.tried.is_set, "a verdict")
        assert (guarantees.preconditions, guarantees.server) == ("ignored", "v1.22.17")
        server.ignored, server.version = (), "v1.23.0"
        await until(lambda: guarantees.preconditions == "honoured", "the upgrade is found out")
        assert guarantees.server == "v1.23.0"
        creates = server.requests.count(("POST", PODS.path(kube.namespace)))
        asked = server.requests.count(("GET", "/version"))
        await until(lambda: server.requests.count(("GET", "/version")) > asked + 3, "it goes on asking")
        assert server.requests.count(("POST", PODS.path(kube.namespace))) == creates == 2, "the same server, once each"
    finally:
        await end(task)


async def test_without_a_verdict_one_scheduler_binds(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("koord.gateway.probing._PATIENCE_S", 0.1)
    guarantees = Guarantees()
    task = asyncio.create_task(watch(api, "nowhere-at-all", guarantees))
    try:
        await until(guarantees.tried.is_set, "it gives up waiting")
        assert guarantees.preconditions == "unknown"
        assert [guarantees.may_bind(name) for name in ("s1", "s2", "s1")] == [True, False, True]
    finally:
        await end(task)


# The seat -------------------------------------------------------------------------------------------------------------


def test_where_preconditions_hold_everybody_binds() -> None:
    guarantees = Guarantees.full()
    assert guarantees.outlive_s == 0
    assert all(guarantees.may_bind(name) for name in ("s1", "s2", ""))


def test_the_first_has_the_seat_until_it_is_not_heard() -> None:
    guarantees = Guarantees(7.0, preconditions="ignored")
    assert guarantees.outlive_s == 7.0
    assert guarantees.may_bind("s1", 100.0)
    assert not guarantees.may_bind("s2", 100.0 + SEAT_S)
    assert guarantees.may_bind("s1", 100.0 + SEAT_S)
    assert not guarantees.may_bind("s2", 101.0 + SEAT_S), "the refused has not freed the seat, nor is it heard for it"
    assert guarantees.may_bind("s2", 101.0 + 2 * SEAT_S)
    assert not guarantees.may_bind("s1", 101.0 + 2 * SEAT_S)
    assert "which is s2" in guarantees.refusal()


def test_a_seat_of_the_dead_is_free_at_once() -> None:
    dead: set[str] = set()
    guarantees = Guarantees(preconditions="unknown", is_dead=dead.__contains__)
    assert guarantees.may_bind("s1", 1.0)
    assert not guarantees.may_bind("s2", 1.1)
    dead.add("s1")
    assert guarantees.may_bind("s2", 1.2)


async def test_who_asks_is_heard_and_who_only_wants_to_know_is_not_seated() -> None:
    guarantees = Guarantees(preconditions="ignored")
    guarantees.server = "v1.22.17"
    assert await guarantees.answer(WhichGuarantees()) == BindingGuarantees("ignored", "v1.22.17")
    assert (await guarantees.answer(WhichGuarantees("s1"))).scheduler == "s1"
    assert (await guarantees.answer(WhichGuarantees("s2"))).scheduler == "s1"
    assert (await guarantees.answer(WhichGuarantees())).scheduler == "s1"
    guarantees.found("honoured", "v1.23.0", "tried")
    assert await guarantees.answer(WhichGuarantees("s2")) == BindingGuarantees("honoured", "v1.23.0")
