"""One pod at a time: filter every node, score those that are left, take the best (spec 10 sections 3.3 and 5)."""

import hashlib
from collections import Counter
from dataclasses import dataclass, field

from tests.reference.scheduler.filters import FILTERS, named_nodes
from tests.reference.scheduler.objects import Node, Pod, World
from tests.reference.scheduler.rules import Rules
from tests.reference.scheduler.scores import SCORES, WHOLE
from tests.reference.scheduler.volumes import StorageWorld, volume_refusal


@dataclass
class Verdict:
    """The total of every feasible node, and the text for users if there is none."""

    totals: dict[str, int] = field(default_factory=dict)
    parts: dict[str, dict[str, int]] = field(default_factory=dict)
    text: str = ""
    counts: Counter[tuple[str, str, bool]] = field(default_factory=Counter)
    """How many nodes a plugin refuses for a reason, and whether taking pods away could help there."""


def tie(seed: str, name: str) -> int:
    """The order of equal nodes under a seed: 40 bits of a keyed hash of the name, the greatest wins."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8, key=seed.encode()).digest(), "big") >> 24


def judge(pod: Pod, world: World, rules: Rules) -> Verdict:
    """What a pod would get of each node now."""
    nodes = list(world.nodes.values())
    if not nodes:
        return Verdict(text="no nodes available to schedule pods")
    refusal = volume_refusal(pod, world) if isinstance(world, StorageWorld) else None
    if refusal is not None:
        return Verdict(text=f"0/{len(nodes)} nodes are available: {refusal}.")
    names = named_nodes(pod, rules) if "NodeAffinity" in rules.plugins else None
    if names is not None and not names:
        return Verdict(text=f"0/{len(nodes)} nodes are available: pod affinity terms conflict.")
    counts: Counter[tuple[str, str, bool]] = Counter()
    feasible: list[Node] = []
    for node in nodes:
        if names is not None and node.name not in names:
            counts["NodeAffinity", "node(s) didn't satisfy plugin(s) [NodeAffinity]", False] += 1
            continue
        reasons = refusals(pod, node, world, rules)
        counts.update(reasons)
        if not reasons:
            feasible.append(node)
    if not feasible:
        by_text: Counter[str] = Counter()
        for (_, text, _), count in counts.items():
            by_text[text] += count
        told = ", ".join(sorted(f"{count} {text}" for text, count in by_text.items()))
        return Verdict(text=f"0/{len(nodes)} nodes are available: {told}.", counts=counts)
    if names is not None and len(names) == 1:
        return Verdict(totals={feasible[0].name: 0})  # there is nothing to choose from, so nobody is asked
    parts = {name: scored(name, pod, feasible, world, rules) for name in rules.plugins if rules.weights.get(name, 1)}
    totals = {
        node.name: sum(rules.weights.get(name, 1) * part[node.name] for name, part in parts.items() if part)
        for node in feasible
    }
    return Verdict(totals, {name: part for name, part in parts.items() if part})


def refusals(pod: Pod, node: Node, world: World, rules: Rules) -> list[tuple[str, str, bool]]:
    """The first plugin that refuses the node, and its reasons."""
    for name in rules.plugins:
        if name in FILTERS and (reasons := FILTERS[name](pod, node, world, rules)):
            return [(name, text, resolvable) for text, resolvable in reasons]
    return []


def scored(name: str, pod: Pod, feasible: list[Node], world: World, rules: Rules) -> dict[str, int]:
    """What one plugin gives each feasible node; nothing if it has no opinion."""
    if name in WHOLE:
        return WHOLE[name](pod, feasible, world, rules)
    if name not in SCORES:
        return {}
    score, normalize = SCORES[name]
    raw = {node.name: score(pod, node, world, rules) for node in feasible}
    known = {node: value for node, value in raw.items() if value is not None}
    if not known:
        return {}
    final = normalize(known) if normalize is not None else known
    assert all(0 <= value <= 100 for value in final.values()), (name, final)
    return final


def choose(verdict: Verdict, seed: str) -> tuple[str, int] | str:
    """The best node and its total, or the text."""
    if not verdict.totals:
        return verdict.text
    best = max(verdict.totals, key=lambda name: (verdict.totals[name], tie(seed, name)))
    return best, verdict.totals[best]


def place(pod: Pod, world: World, rules: Rules, seed: str) -> tuple[str, int] | str:
    """Choose, and put the pod there."""
    chosen = choose(judge(pod, world, rules), seed)
    if not isinstance(chosen, str):
        world.put(pod, chosen[0])
    return chosen
