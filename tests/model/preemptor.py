"""A thin preemptor, until koord has one: it nominates by the ledger, shows it at the pod, and evicts the victims."""

import itertools
import json

from koord.accounting.takes import budget_item, pod_takes
from koord.bus.decisions import DecisionPublisher
from koord.bus.errors import BusError
from koord.contracts.decisions import Evict, ObjectRef, Patch
from koord.kube.resources import NODES, PODS
from koord.ledger.model import LedgerUnavailable, Member
from koord.ledger.nominations import NominateRequest, Victim
from koord.telemetry.context import TraceContext
from tests.model.apiserver import ApiServer
from tests.model.calls import SteppedLedger, Surroundings
from tests.model.objects import BUDGET, NAMESPACE, QUOTA_NAME, Object, allocatable_cpu, cpu_of, live
from tests.model.stepping import Actor


class Preemptor:
    """One life. Between any two of its steps it may die, and leave room nominated and victims locked."""

    def __init__(self, around: Surroundings, actor: Actor, ledger: SteppedLedger) -> None:
        self.actor = actor
        self.ledger = ledger
        self._publisher = DecisionPublisher(around.bus(actor), "scheduler")
        self._numbers = itertools.count(1)
        self._busy: set[str] = set()

    def preempt(self, pod: Object, node: str, victims: list[Object]) -> None:
        """Make room for this pod on that node."""
        uid = pod["metadata"]["uid"]
        if uid not in self._busy:
            self._busy.add(uid)
            self.actor.run(self._preempt(pod, node, victims))

    async def _preempt(self, pod: Object, node: str, victims: list[Object]) -> None:
        meta = pod["metadata"]
        uid, namespace, name = meta["uid"], meta["namespace"], meta["name"]
        takes = pod_takes({"cpu": cpu_of(pod), "pods": 1}, node, (), unit_owned=True)
        member = Member(uid, namespace, name, node, takes)
        budget = (budget_item(NAMESPACE, BUDGET),)
        budgets = [budget if QUOTA_NAME in victim["metadata"].get("labels", {}) else () for victim in victims]
        locked = tuple(
            Victim(victim["metadata"]["uid"], budget) for victim, budget in zip(victims, budgets, strict=True)
        )
        priority = pod["spec"]["priority"]
        request = NominateRequest(self._id(), (member,), priority, victims=locked)
        try:
            [answer] = await self.ledger.nominate([request])
            if answer.status == "ok":
                await self._show(pod, node)
                for victim in victims:
                    gone = victim["metadata"]
                    target = ObjectRef(PODS.token, gone["namespace"], gone["name"], gone["uid"])
                    await self._publisher.publish(Evict(self._id(), target, "preempted"), TraceContext.new())
        except (LedgerUnavailable, BusError):
            return
        finally:
            self._busy.discard(uid)

    def give_up(self, pod: Object) -> None:
        """Wait for room there no longer."""
        uid = pod["metadata"]["uid"]
        if uid not in self._busy:
            self._busy.add(uid)
            self.actor.run(self._give_up(pod))

    async def _give_up(self, pod: Object) -> None:
        try:
            await self._show(pod, None)
        except BusError:
            return
        finally:
            self._busy.discard(pod["metadata"]["uid"])

    async def _show(self, pod: Object, node: str | None) -> None:
        meta = pod["metadata"]
        target = ObjectRef(PODS.token, meta["namespace"], meta["name"], meta["uid"])
        body = json.dumps({"status": {"nominatedNodeName": node}}).encode()
        await self._publisher.publish(Patch(self._id(), target, body, subresource="status"), TraceContext.new())

    def _id(self) -> str:
        return f"{self.actor.name}-{next(self._numbers)}"


def to_preempt(api: ApiServer) -> list[tuple[Object, str, list[Object]]]:
    """Pods that wait and are worth more than others, each with a node and the fewest of lower priority there."""
    pods = [pod for pod in api.objects(PODS).values() if live(pod)]
    nodes = {name: allocatable_cpu(node) for name, node in sorted(api.objects(NODES).items())}
    found = []
    for pod in pods:
        if not nominated_to(pod) and not pod["spec"].get("nodeName") and pod["spec"].get("priority"):
            for node, room in nodes.items():
                here = [one for one in pods if one["spec"].get("nodeName") == node]
                lower = [one for one in here if one["spec"].get("priority", 0) < pod["spec"]["priority"]]
                short = cpu_of(pod) + sum(map(cpu_of, here)) - room
                victims: list[Object] = []
                while short > 0 and lower:
                    victims.append(lower.pop())
                    short -= cpu_of(victims[-1])
                if short <= 0:
                    found.append((pod, node, victims))
                    break
    return found


def nominated_to(pod: Object) -> str:
    """The node on which room is kept for a pod that waits."""
    return "" if pod["spec"].get("nodeName") else pod["status"].get("nominatedNodeName") or ""
