"""DefaultPreemption, node by node and pod by pod (spec 10 section 3.15)."""

from collections import Counter
from dataclasses import dataclass

from tests.reference.scheduler.filters import named_nodes
from tests.reference.scheduler.objects import Node, Pod, World
from tests.reference.scheduler.placing import refusals
from tests.reference.scheduler.rules import Rules
from tests.reference.scheduler.selecting import labels_match

HELPLESS = "Preemption is not helpful for scheduling"
NO_VICTIMS = "No preemption victims found for incoming pod"


@dataclass
class Budget:
    """A disruption budget of a namespace."""

    namespace: str
    labels: dict[str, str]
    allowed: int


@dataclass
class Candidate:
    """Who goes, most important first, and how many of them no budget has room for."""

    victims: list[Pod]
    violating: int

    @property
    def cost(self) -> tuple[int, int, int, int]:
        """Less is better; nobody of these pods has started, so their ages decide nothing."""
        priorities = [priority(pod) for pod in self.victims]
        return self.violating, max(priorities), sum(one + 2**31 for one in priorities), len(priorities)


def priority(pod: Pod) -> int:
    """A pod's priority."""
    found: int = pod.spec.get("priority", 0)
    return found


def candidates(pod: Pod, world: World, rules: Rules, budgets: list[Budget]) -> tuple[dict[str, Candidate], str]:
    """Every node on which the pod fits when some go, and what is said if there is none."""
    names = named_nodes(pod, rules) if "NodeAffinity" in rules.plugins else None
    found: dict[str, Candidate] = {}
    texts: Counter[str] = Counter()
    for node in world.nodes.values():
        reasons = refusals(pod, node, world, rules)
        if (names is not None and node.name not in names) or not all(helps for _, _, helps in reasons):
            texts[HELPLESS] += 1
        else:
            one = on(pod, node, world, rules, budgets)
            if isinstance(one, Candidate):
                found[node.name] = one
            else:
                texts.update(one)
    told = ", ".join(sorted(f"{count} {text}" for text, count in texts.items()))
    return found, f"preemption: 0/{len(world.nodes)} nodes are available: {told}."


def on(pod: Pod, node: Node, world: World, rules: Rules, budgets: list[Budget]) -> Candidate | list[str]:
    """Take all lower pods away, then give back whom the pod can do with."""
    lower = sorted(
        (one for one in world.on(node) if priority(one) < priority(pod)), key=lambda p: (-priority(p), p.uid)
    )
    if not lower:
        return [NO_VICTIMS]
    breaking = beyond(lower, budgets)
    for one in lower:
        world.take(one)
    try:
        reasons = refusals(pod, node, world, rules)
        if reasons:
            return [text for _, text, _ in reasons]
        for one in [*breaking, *(one for one in lower if one not in breaking)]:
            world.put(one, node.name)
            if refusals(pod, node, world, rules):
                world.take(one)
        victims = [one for one in lower if not one.node]
    finally:
        for one in lower:
            if not one.node:
                world.put(one, node.name)
    if not victims:
        return [NO_VICTIMS]
    return Candidate(victims, sum(one in breaking for one in victims))


def beyond(pods: list[Pod], budgets: list[Budget]) -> list[Pod]:
    """Those for whom some budget has nothing left, when they go in this order."""
    left = [budget.allowed for budget in budgets]
    found = []
    for pod in pods:
        mine = [
            number
            for number, budget in enumerate(budgets)
            if budget.namespace == pod.namespace and labels_match({"matchLabels": budget.labels}, pod.labels)
        ]
        for number in mine:
            left[number] -= 1
        if any(left[number] < 0 for number in mine):
            found.append(pod)
    return found
