"""A koord that starts on an API server is ready at once: the first one ever, and one that follows another.

``koord up`` has a new NATS and a new ledger each time, so the second one cannot know what the first has left under way.
Both are told that the server works ten minutes on a request: whoever waits for that is not ready in time.
"""

from pathlib import Path

import pytest
import yaml

from koord.cli.local import LocalCluster, LocalOptions
from koord.gateway.ledgerlease import LEASE
from koord.gateway.settling import SETTLED
from koord.ledger.client import Ledger
from tests.conformance.client import Client, until

LEDGER = f"/apis/coordination.k8s.io/v1/namespaces/koord-system/leases/{LEASE}"


@pytest.mark.parametrize("noted", [True, False], ids=["after another", "no Lease"])
async def test_the_ledger_opens_at_once(client: Client, namespace: str, tmp_path: Path, noted: bool) -> None:
    waits = {"schedulerName": "nobody", "containers": [{"name": "main", "image": "registry.example/x:1"}]}
    pods = f"/api/v1/namespaces/{namespace}/pods"
    assert (await client.post(pods, {"metadata": {"name": "waits"}, "spec": waits})).status == 201
    if noted:
        note = {"metadata": {"name": LEASE, "annotations": {"koord.sh/decisions-stream": "2026-01-01T00:00:00Z"}}}
        await client.post("/api/v1/namespaces", {"metadata": {"name": "koord-system"}})
        if (await client.patch(LEDGER, note)).status == 404:
            assert (await client.post(LEDGER.rpartition("/")[0], note)).status == 201
    else:
        await client.delete(LEDGER)
    config = tmp_path / "koord.yaml"
    # The stream is young; only its age is less than these ten minutes.
    config.write_text(yaml.safe_dump({"gateway": {"api_timeout_s": 600}, "reconciler": {"binding_s": 600}}))
    options = LocalOptions(
        kubeconfig=str(client.server.kubeconfig), nodes=0, config=config, services=("gateway", "reconciler")
    )
    lines: list[str] = []
    async with LocalCluster(options, sink=lines.append) as cluster:
        async with await Ledger.connect(cluster.file().redis, options.cluster, "looks") as ledger:

            async def is_open() -> bool:
                return (await ledger.status()).open

            await until(is_open)
        shown = await client.get(f"{pods}/waits")
        assert SETTLED in shown.body["metadata"]["annotations"]
