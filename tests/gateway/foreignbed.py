"""A ledger with two nodes, and a gateway that the API server asks about the Bindings of others."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from koord.accounting.takes import pod_takes
from koord.gateway.advancing import Advancer
from koord.gateway.foreign import ForeignBindings
from koord.ledger.client import Ledger
from koord.ledger.model import ClaimAnswer, ClaimRequest, Member, NodeSeen
from tests.gateway.conftest import Kube


class Bed:
    """Nodes of 2 (n1) and of 8 cpu (n2) in an open ledger, and a gateway that is asked about Bindings."""

    def __init__(self, kube: Kube, redis_url: str, asking: Ledger, koord: Ledger, observer: Ledger, epoch: int) -> None:
        self.redis_url = redis_url
        self.kube = kube
        self.asking = asking
        self.koord = koord
        self.observer = observer
        self.epoch = epoch
        self.foreign = ForeignBindings(kube.api, asking)

    async def lead(self, incarnation: str = "g") -> None:
        """Another gateway leads, which remembers nothing."""
        asking = await Ledger.connect(self.redis_url, self.asking.cluster, incarnation)
        await self.asking.close()
        self.asking = asking
        self.foreign = ForeignBindings(self.kube.api, asking)
        self.foreign.lead(Advancer(asking, await asking.lead("gateway")))

    async def ask(self, pod: dict[str, Any], node: str, required: bool = False, **request: Any) -> dict[str, Any]:
        """The answer to the API server's question about one Binding."""
        name, namespace = pod["metadata"]["name"], self.kube.namespace
        binding = {"metadata": {"name": name, "namespace": namespace}, "target": {"kind": "Node", "name": node}}
        asked = {"uid": "r-1", "name": name, "namespace": namespace, "object": binding, **request}
        body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked})
        review = json.loads(await self.foreign.answer(body.encode(), required=required))
        assert (review["kind"], review["response"]["uid"]) == ("AdmissionReview", "r-1")
        response: dict[str, Any] = review["response"]
        return response

    async def cpu(self, node: str) -> tuple[int, int]:
        """Milli-cpu used and held."""
        item = (await self.koord.items(f"node/{node}"))[f"node/{node}"]
        return item.used.get("cpu", 0), item.held.get("cpu", 0)

    async def take(self, pod: dict[str, Any], node: str, cpu: int = 1000, **claim: Any) -> ClaimAnswer:
        """Claim room for a pod of koord's."""
        takes = pod_takes({"cpu": cpu}, node, (), unit_owned=True)
        member = Member(pod["metadata"]["uid"], self.kube.namespace, pod["metadata"]["name"], node, takes)
        claim_id = f"{self.koord.incarnation}-{member.uid}"
        [answer] = await self.koord.claim([ClaimRequest(claim_id, (member,), **claim)])
        return answer


@asynccontextmanager
async def opened(kube: Kube, redis_url: str, cluster: str) -> AsyncIterator[Bed]:
    ledgers = [await Ledger.connect(redis_url, cluster, name, lease_s=3600.0) for name in ("g", "s", "r")]
    asking, koord, observer = ledgers
    epoch = await observer.lead("reconciler")
    rooms = [NodeSeen(f"node/{name}", {"cpu": cpu, "pods": 110}, "1") for name, cpu in (("n1", 2000), ("n2", 8000))]
    await observer.observe(rooms, role_epoch=epoch)
    await observer.open(epoch)
    for ledger in ledgers:
        await ledger.status()
    made = Bed(kube, redis_url, asking, koord, observer, epoch)
    made.foreign.lead(Advancer(asking, await asking.lead("gateway")))
    yield made
    await made.foreign.close()
    for ledger in (made.asking, koord, observer):
        await ledger.close()
