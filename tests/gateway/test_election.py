"""The Lease on a real API server: one leader, taken over in time, given up in time."""

import asyncio
import time
from pathlib import Path

import pytest

from koord.gateway.api import Api
from koord.gateway.election import LeaseElection
from koord.gateway.kubeconfig import load_access
from koord.gateway.leanclient import LeanClient
from koord.kube.resources import LEASES
from tests.gateway.conftest import ApiProcess, Kube, until


def election(api: Api, kube: Kube, name: str, duration_s: float = 2.0) -> LeaseElection:
    return LeaseElection(api, name, namespace=kube.namespace, duration_s=duration_s, renew_s=0.3)


async def holder(kube: Kube) -> str:
    lease = await kube.get(LEASES.path(kube.namespace, "koord-gateway"))
    assert lease is not None
    return str(lease["spec"]["holderIdentity"])


async def test_one_leads_and_the_other_takes_over_when_it_is_released(api: Api, kube: Kube) -> None:
    first, second = election(api, kube, "a"), election(api, kube, "b")
    await asyncio.wait_for(first.acquire(), 60)
    waiting = asyncio.create_task(second.acquire())
    done, _ = await asyncio.wait([waiting], timeout=2.5)  # longer than the Lease lasts unrenewed
    assert (not done, first.lost.is_set(), await holder(kube)) == (True, False, "a")
    await first.release()
    await asyncio.wait_for(waiting, 1.5)
    assert await holder(kube) == "b"
    lease = await kube.get(LEASES.path(kube.namespace, "koord-gateway"))
    assert lease is not None and lease["spec"]["leaseTransitions"] == 1
    await second.release()


async def test_a_leader_that_dies_is_followed_within_the_lease(api: Api, kube: Kube) -> None:
    first, second = election(api, kube, "a"), election(api, kube, "b")
    await first.acquire()
    waiting = asyncio.create_task(second.acquire())
    assert first._keeper is not None
    first._keeper.cancel()  # as SIGKILL does: no renewal, no release
    begun = time.monotonic()
    await asyncio.wait_for(waiting, 60)
    assert time.monotonic() - begun < 3.0
    await second.release()


async def test_who_can_prove_that_the_leader_died_takes_over_at_once(api: Api, kube: Kube) -> None:
    dead: set[str] = set()
    told: list[bool] = []
    first = election(api, kube, "a", duration_s=600.0)
    second = LeaseElection(
        api,
        "b",
        namespace=kube.namespace,
        duration_s=600.0,
        renew_s=0.3,
        is_dead=dead.__contains__,
        on_standby=lambda: told.append(True),
    )
    await first.acquire()
    waiting = asyncio.create_task(second.acquire())
    await until(lambda: bool(told), "it stands by")
    assert first._keeper is not None
    first._keeper.cancel()
    assert not waiting.done() and await holder(kube) == "a"
    dead.add("a")
    await asyncio.wait_for(waiting, 60)  # the Lease itself would last ten minutes
    assert await holder(kube) == "b"
    held = [second.held]
    await second.release()
    assert [*held, second.held] == [True, False]


async def test_a_leader_that_slept_through_its_lease_knows_at_once(api: Api, kube: Kube) -> None:
    made = election(api, kube, "a")
    held = [made.held]
    await made.acquire()
    held.append(made.held)
    made._renewed -= 2.0  # as after a sleep: nothing ran, not even the task that renews
    held.append(made.held)
    assert held == [False, True, False]
    assert made.lost.is_set(), "also for whoever waits for the end"
    await made.release()


async def test_a_missing_namespace_is_made(api: Api, kube: Kube) -> None:
    made = LeaseElection(api, "a", namespace=f"{kube.namespace}-x", duration_s=2.0, renew_s=0.3)
    await asyncio.wait_for(made.acquire(), 60)
    await made.release()


async def test_a_leader_whose_lease_was_taken_gives_up(api: Api, kube: Kube) -> None:
    first = election(api, kube, "a")
    await first.acquire()
    path = LEASES.path(kube.namespace, "koord-gateway")
    await kube.call("patch", path, {"spec": {"holderIdentity": "thief"}}, "application/merge-patch+json")
    await asyncio.wait_for(first.lost.wait(), 2)
    await first.release()
    assert await holder(kube) == "thief"


@pytest.fixture
def own_api(tmp_path: Path) -> "ApiProcess":
    return ApiProcess(tmp_path)


async def test_without_the_api_server_the_role_is_given_up_before_it_can_be_taken(own_api: ApiProcess) -> None:
    await asyncio.to_thread(own_api.start)
    access = await load_access(own_api.kubeconfig)
    client = LeanClient(access, connections=1, timeout_s=1.0)
    made = LeaseElection(Api(client, access), "a", duration_s=2.0, renew_s=0.3)
    try:
        await asyncio.wait_for(made.acquire(), 60)
        own_api.kill()
        begun = time.monotonic()
        await asyncio.wait_for(made.lost.wait(), 60)
        assert time.monotonic() - begun < 2.0
    finally:
        own_api.kill()
        await client.close()
