"""Kinds that third-party plugins read: the gateway carries them when its settings name them."""

import asyncio
import json
import signal
from typing import Any

import pytest

from koord.bus.connection import Bus
from koord.bus.statecache import StateCache
from koord.bus.streams import ensure_streams
from koord.gateway.settings import GatewaySettings
from koord.kube.meta import PartialObject
from koord.kube.resources import CRDS, PODS, Resource
from koord.ledger.client import Ledger
from tests.gateway.conftest import ApiProcess, Kube, until
from tests.gateway.test_service import GatewayProcess

WIDGETS = Resource("gateway.example.com", "v1", "widgets", "Widget", namespaced=False)


async def test_a_kind_of_somebody_elses(
    nats_url: str, redis_url: str, cluster: str, api_process: ApiProcess, kube: Kube
) -> None:
    named = {"group": WIDGETS.group, "version": "v1", "plural": "widgets", "kind": "Widget", "namespaced": False}
    environment = {
        "KOORD_NATS__URL": nats_url,
        "KOORD_REDIS__URL": redis_url,
        "KOORD_CLUSTER": cluster,
        "KOORD_KUBECONFIG": api_process.kubeconfig,
        "KOORD_GATEWAY__LEASE_NAMESPACE": kube.namespace,
        "KOORD_GATEWAY__ALSO_WATCH": json.dumps([named]),
    }
    async with (
        await Bus.connect(nats_url, cluster, "test") as bus,
        await Ledger.connect(redis_url, cluster, "r") as ledger,
    ):
        await ensure_streams(bus)
        epoch = await ledger.lead("reconciler")
        await ledger.begin(epoch)
        await ledger.open(epoch)
        cache = StateCache(bus, WIDGETS, PartialObject)
        await cache.start()
        gateway = GatewayProcess(environment)
        try:
            # The CRD is not there yet: complete, and empty.
            await asyncio.wait_for(cache.synced(), 60)
            assert not cache.items
            names = {"plural": "widgets", "kind": "Widget"}
            version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
            spec = {"group": WIDGETS.group, "scope": "Cluster", "names": names, "versions": [version]}
            head = {"apiVersion": CRDS.api_version, "kind": CRDS.kind}
            assert await post(kube, CRDS, {**head, "metadata": {"name": "widgets.gateway.example.com"}, "spec": spec})
            body = {"apiVersion": WIDGETS.api_version, "kind": "Widget", "metadata": {"name": "one"}}
            await until(lambda: post(kube, WIDGETS, body), "the kind is served")
            await until(lambda: "one" in cache.items, "the object is carried", 90)
        finally:
            assert gateway.end(signal.SIGTERM) == 0
            await cache.close()


async def post(kube: Kube, resource: Resource, body: dict[str, Any]) -> bool:
    """A CRD that is new may take a moment."""
    answer = await kube.api.call("create", resource.path(), json.dumps(body).encode())
    return answer.status in (201, 409)


@pytest.mark.parametrize(
    ("resource", "says"),
    [
        (PODS, "also_watch[0]: pods. is watched already"),
        (Resource("x.example.com", "v1", "", "X"), "also_watch[0].plural: must not be empty"),
        (Resource("X example", "v1", "xs", "X"), "group, version and plural are DNS names"),
    ],
)
def test_what_cannot_be_watched(resource: Resource, says: str) -> None:
    with pytest.raises(ValueError) as caught:
        GatewaySettings(also_watch=(resource,))
    assert says in str(caught.value)
