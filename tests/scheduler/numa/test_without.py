"""Victims for CPUs and NUMA nodes: what copies of the books say is what the books themselves say."""

import json
from random import Random

import pytest

from koord.scheduler.framework.contract import FilterPlugin
from koord.scheduler.plugins.nodenumaresource.plugin import NodeNUMAResource
from koord.scheduler.preemption.budgets import Budgets
from koord.scheduler.preemption.candidates import Candidate
from koord.scheduler.preemption.search import Search
from tests.scheduler.clusters import requests
from tests.scheduler.numa.machines import LSR, NUMA_SPEC, POLICY_LABEL, RESOURCE_SPEC, A, B, NumaBed, zones

RATIO = "node.koordinator.sh/resource-amplification-ratio"


def crowded(chance: Random) -> NumaBed:
    """Two to four machines with pods that have CPUs, amounts, or nothing of their own."""
    bed = NumaBed()
    for number in range(chance.randint(2, 4)):
        name, cpus = f"n{number}", chance.choice((A, B))
        count = 4 if cpus is A else 2
        each = len(cpus) // count
        room = {"cpu": str(each), "memory": "16Gi"}
        policy = chance.choice(("", "", "Restricted", "SingleNUMANode"))
        annotations = {RATIO: json.dumps({"cpu": 1.5})} if not number and chance.random() < 0.5 else {}
        bed.machine(
            name,
            cpus,
            zones(*[room] * count),
            cpu=1500 * len(cpus) if annotations else 0,
            labels={POLICY_LABEL: policy} if policy else {},
            annotations=annotations,
        )
        free = [cpu.id for cpu in sorted(cpus, key=lambda cpu: (cpu.node, cpu.core))]
        for pod in range(chance.randint(2, 6)):
            size = min(len(free), chance.choice((0, 1, 2, 4, 6)))
            taken, free = free[:size], free[size:]
            parts = [(chance.randrange(count), {"cpu": str(size), "memory": "2Gi"})] if chance.random() < 0.5 else []
            bed.there(
                name,
                ",".join(map(str, taken)),
                parts=parts,
                exclusive=chance.choice(("", "", "PCPULevel", "NUMANodeLevel")) if taken else "",
                cpu=str(max(1, size)),
                memory="1Gi",
                name=f"p{number}-{pod}",
                priority=chance.choice((9000, 9100, 9200, 9800)),
            )
    return bed


def test_victims_are_those_that_the_books_would_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sum(victims_of(seed, monkeypatch) for seed in range(60)) > 60


def victims_of(seed: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Compare for four pods; for how many there were victims."""
    chance = Random(seed)
    bed = crowded(chance)
    told = 0
    for number in range(4):
        annotations = {}
        if chance.random() < 0.5:
            annotations[NUMA_SPEC] = json.dumps({"numaTopologyPolicy": chance.choice(("Restricted", "SingleNUMANode"))})
        if chance.random() < 0.4:
            annotations[RESOURCE_SPEC] = json.dumps({"requiredCPUBindPolicy": "FullPCPUs"})
        spec = requests(str(chance.choice((2, 4, 8, 12, 16))), "2Gi", priority=9500)
        pod = bed.pod(f"high-{number}", spec, labels=LSR if chance.random() < 0.7 else {}, annotations=annotations)
        states = [(state.allocated, dict(state.pods)) for state in map(bed.plugin.books.state, ("n0", "n1"))]
        end = bed.cluster.journal.end
        at_once = Search(bed.engine, Budgets()).find(pod)
        assert bed.cluster.journal.end == end, "no book is touched"
        with monkeypatch.context() as patch:
            patch.setattr(NodeNUMAResource, "without", FilterPlugin.without)
            really = Search(bed.engine, Budgets()).find(pod)
        assert states == [(state.allocated, state.pods) for state in map(bed.plugin.books.state, ("n0", "n1"))]
        if isinstance(really, Candidate):
            assert isinstance(at_once, Candidate)
            victims = {victim.ref.name for victim in really.victims}
            assert (at_once.node, {victim.ref.name for victim in at_once.victims}) == (really.node, victims)
            told += 1
        else:
            assert isinstance(at_once, str)
    return told
