"""The whole profile that ships like the reference: volumes, CPUs and NUMA nodes, real load, images, ports, taints,
affinity and spreading at once, on clusters where all of them have a say."""

import copy
import itertools
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from koord.kube.meta import now_rfc3339
from koord.kube.protocol.cputopology import CPU
from koord.kube.resources import NODE_METRICS, NODE_RESOURCE_TOPOLOGIES
from koord.scheduler.framework.contract import WatchPlugin
from koord.scheduler.framework.profile import Profile
from koord.scheduler.plugins.coscheduling import Coscheduling
from koord.scheduler.plugins.nodenumaresource.plugin import NodeNUMAResource
from koord.scheduler.plugins.profile import default_profile
from tests.reference.scheduler import loadaware
from tests.reference.scheduler.measured import ALIGNED, BIND, POLICY, SPEC, MeasuredWorld, numa_give
from tests.reference.scheduler.objects import Node, Pod
from tests.reference.scheduler.volumes import claim_names, promise
from tests.scheduler.clusters import GIB
from tests.scheduler.comparison.drawing import examples, few, rarely, terms, tolerations
from tests.scheduler.comparison.pair import Kind, Pair, rules_of
from tests.scheduler.comparison.test_pods_against_reference import pod_labels, sides, spreads
from tests.scheduler.comparison.test_small_plugins_against_reference import AS_WRITTEN, image_sets, ports
from tests.scheduler.loadaware.beds import NOW, metric, pod_metric
from tests.scheduler.numa.machines import topology, zones
from tests.scheduler.volumes.objects import HOST, KINDS, ZONE, Object, capacity, claim, csi_driver, local, storage_class
from tests.scheduler.volumes.objects import volume as anywhere

NODES = tuple(f"n{number}" for number in range(6))
CLAIMS = tuple(f"c{number}" for number in range(6))
SIZES = ("1Gi", "2Gi")
EVERYTHING = {"cpu": 1, "memory": 1, "kubernetes.io/batch-cpu": 1, "kubernetes.io/batch-memory": 1}

nodes = st.builds(
    lambda cpu, memory, zone, rank, taint, images, numa: {
        "allocatable": {"cpu": cpu, "memory": memory, "pods": "6"},
        "labels": {ZONE: zone, "rank": rank, **(numa or {})} if zone else {"rank": rank, **(numa or {})},
        "numa": numa is not None,
        "taints": [{"key": "k1", "effect": taint}] if taint else [],
        "images": images,
    },
    st.sampled_from(("3", "8", "16")),
    st.sampled_from(("16Gi", "33Gi")),
    st.sampled_from(("", "a", "b")),
    st.sampled_from(("1", "5", "x")),
    st.sampled_from(("", "", "", "NoSchedule", "PreferNoSchedule")),
    image_sets,
    st.sampled_from(
        (
            None,
            None,
            {},
            {POLICY: "SingleNUMANode"},
            {POLICY: "Restricted"},
            {BIND: "FullPCPUsOnly"},
            {BIND: "SpreadByPCPUs", POLICY: "Restricted"},
        )
    ),
)
reports = st.fixed_dictionaries(
    {
        "cpu": st.sampled_from((0, 100, 900, 2000, 5300)),
        "memory": st.sampled_from((0, GIB, 9 * GIB, 30 * GIB)),
        "age": st.sampled_from((0, 0, 30, 299, 300, 5000)),
        "pods": st.integers(0, 2),
    }
)


@st.composite
def kinds(draw: st.DrawFn) -> Kind:
    """Some of everything, and most things seldom enough for others to decide."""
    requests = {}
    if draw(rarely(5)) is False:
        requests = {"cpu": draw(st.sampled_from(("100m", "1", "2500m"))), "memory": draw(st.sampled_from(SIZES))}
    container: dict[str, Any] = {"name": "c", "image": draw(st.sampled_from(AS_WRITTEN))}
    container["resources"] = {"requests": requests}
    spec: dict[str, Any] = {"containers": [container]}
    if draw(rarely(4)):
        container["ports"] = [draw(ports)]
    if draw(rarely(2)):
        names = draw(st.lists(st.sampled_from(CLAIMS), min_size=1, max_size=2, unique=True))
        spec["volumes"] = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]
    if found := draw(few(tolerations)):
        spec["tolerations"] = found
    affinity: dict[str, Any] = {}
    if draw(rarely(4)):
        preferred = [{"weight": 7, "preference": draw(terms)}]
        affinity["nodeAffinity"] = {"preferredDuringSchedulingIgnoredDuringExecution": preferred}
    for side in ("podAffinity", "podAntiAffinity"):
        if draw(rarely(4)) and (drawn := draw(sides)):
            affinity[side] = drawn
    if affinity:
        spec["affinity"] = affinity
    if draw(rarely(3)):
        spec["topologySpreadConstraints"] = draw(st.lists(spreads, min_size=1, max_size=2))
    labels, annotations = dict(draw(pod_labels)), {}
    if draw(rarely(4)):
        container["resources"] = {"requests": {"cpu": draw(st.sampled_from(("1", "2", "3"))), "memory": "1Gi"}}
        labels["koordinator.sh/qosClass"] = "LSR"
        annotations[SPEC] = draw(
            st.sampled_from(
                (
                    "{}",
                    '{"requiredCPUBindPolicy":"FullPCPUs"}',
                    '{"preferredCPUBindPolicy":"SpreadByPCPUs","preferredCPUExclusivePolicy":"PCPULevel"}',
                )
            )
        )
    if draw(rarely(6)):
        annotations[ALIGNED] = draw(
            st.sampled_from(('{"numaTopologyPolicy":"SingleNUMANode"}', '{"numaTopologyPolicy":"Restricted"}'))
        )
    return {"spec": spec, "labels": labels, "annotations": annotations}


storage = st.fixed_dictionaries(
    {
        "volumes": st.lists(
            st.tuples(st.sampled_from((*NODES[:4], "")), st.sampled_from(SIZES), st.booleans()), max_size=6
        ),
        "claims": st.tuples(
            *(
                st.tuples(
                    st.sampled_from(("local", "local", "made")),
                    st.sampled_from(SIZES),
                    st.sampled_from(("ReadWriteOnce", "ReadWriteOnce", "ReadWriteOncePod")),
                )
                for _ in CLAIMS
            )
        ),
        "bound": st.lists(st.sampled_from(CLAIMS), max_size=2, unique=True),
        "room": st.lists(st.tuples(st.sampled_from(NODES), st.sampled_from(SIZES)), max_size=4),
    }
)
steps = st.lists(
    st.tuples(
        st.sampled_from(("place", "place", "place", "bind", "end", "set", "report", "report")),
        st.integers(0, len(NODES) - 1),
        st.integers(1, 4),
    ),
    min_size=2,
    max_size=10,
)


class Whole(Pair):
    """A pair with storage and reports, under the profile that ships."""

    def __init__(self) -> None:
        def profile() -> Profile:
            return default_profile(Coscheduling())

        super().__init__(profile, rules_of(profile(), resources=EVERYTHING))
        # What the chart tells LoadAwareScheduling.
        load = loadaware.Args({"cpu": 65, "memory": 95}, expiration=300, policy="UseStale")
        self.whole = self.world = MeasuredWorld(load=load, now=NOW)
        self.side.engine.tick(NOW)
        self._told: dict[tuple[Any, str], Any] = {}

    def tell(self, kind: Any, key: str, body: Any) -> None:
        """An object of a kind that plugins watch."""
        old = self._told.get((kind, key))
        for plugin in self.side.engine.plugins:
            if isinstance(plugin, WatchPlugin):
                for watch in plugin.watches():
                    if watch.resource is kind:
                        new = body if isinstance(body, msgspec.Struct) else msgspec.convert(body, watch.type)
                        list(plugin.changed(kind, key, old, new))
                        self._told[kind, key] = new

    def store(self, kind: str, body: Object) -> None:
        """An object of storage."""
        meta = body["metadata"]
        key = f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else meta["name"]
        self.tell(KINDS[kind], key, copy.deepcopy(body))
        into = {
            "class": self.whole.classes,
            "claim": self.whole.claims,
            "volume": self.whole.volumes,
            "csi_driver": self.whole.drivers,
            "capacity": self.whole.capacities,
        }[kind]
        into[key] = copy.deepcopy(body)

    def report(self, node: str, drawn: dict[str, Any], bound: list[str]) -> None:
        """The node's agent says what is used, and what by some of the pods that others bound there."""
        known = [name for name in bound if self.world.pods[f"default/{name}"].node == node][: drawn["pods"]]
        updated = NOW - drawn["age"]
        cpu, memory = f"{drawn['cpu']}m", str(drawn["memory"])
        pods = [pod_metric(name, "70m", "1000000") for name in known]
        body = metric(node, cpu=cpu, memory=memory, updated=now_rfc3339(updated), pods=pods)
        self.tell(NODE_METRICS, node, body)
        usage = {"cpu": drawn["cpu"], "memory": drawn["memory"]}
        used = {name: ({"cpu": 70, "memory": 1_000_000}, True) for name in known}
        self.whole.metrics[node] = loadaware.Metric(updated, 60, usage, {}, {}, used)

    def lay_out(self, name: str, cpus: int, gib: int) -> None:
        """The node has two NUMA nodes, and two CPUs on each core."""
        half = cpus // 2
        made = [CPU(number, number // 2, 0, number // half) for number in range(2 * half)]
        room = {"cpu": 1000 * half, "memory": gib // 2 * GIB}
        listed = zones(*[{"cpu": str(half), "memory": f"{gib // 2}Gi"}] * 2)
        self.tell(NODE_RESOURCE_TOPOLOGIES, name, topology(name, made, listed))
        self.whole.topologies[name] = (made, {0: dict(room), 1: dict(room)})

    def check_given(self) -> None:
        """Each pod has the same CPUs, and the same of its NUMA nodes."""
        [plugin] = [one for one in self.side.engine.plugins if isinstance(one, NodeNUMAResource)]
        for uid, pod in self.whole.pods.items():
            told = plugin.books.state(pod.node).pods.get(uid)
            given = self.whole.given.get(uid)
            if given is None or not (given.cpus or given.zones):
                assert told is None
            else:
                assert told is not None
                assert {cpu for cpu in range(64) if told.cpus >> cpu & 1} == given.cpus
                assert {zone: dict(amounts) for zone, amounts in told.zones} == given.zones

    def put(self, pod: Pod, node: str) -> None:
        """What its claims get there is written down at once, and what it has of the machine."""
        promise(pod, self.world.nodes[node], self.whole)
        numa_give(pod, self.world.nodes[node], self.whole)
        super().put(pod, node)


def _stored(pair: Whole, drawn: dict[str, Any]) -> None:
    pair.store("class", storage_class())
    pair.store("class", storage_class("made", provisioner="x.io"))
    pair.store("csi_driver", csi_driver("x.io"))
    for number, (node, size) in enumerate(drawn["room"]):
        pair.store("capacity", capacity(f"r{number}", "made", size, {HOST: node}))
    for number, (node, size, zoned) in enumerate(drawn["volumes"]):
        labels = {ZONE: "a"} if zoned else {}
        name = f"v{number}"
        made = local(name, node, size=size, labels=labels) if node else anywhere(name, size=size, labels=labels)
        pair.store("volume", made)
    for name, (class_, size, mode) in zip(CLAIMS, drawn["claims"], strict=True):
        bound = name in drawn["bound"]
        held = f"of-{name}" if bound else ""
        body = claim(name, class_=class_, size=size, modes=(mode,), volume=held, bound=bound)
        if bound:
            pair.store("volume", local(held, "n1", size=size, class_=class_, given=body, modes=(mode,)))
        pair.store("claim", body)


@settings(max_examples=examples(120), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(nodes, min_size=1, max_size=len(NODES)),
    storage,
    st.lists(kinds(), min_size=1, max_size=4),
    st.lists(reports, min_size=1, max_size=4),
    steps,
)
def test_like_the_reference(
    shapes: list[dict[str, Any]],
    stored: dict[str, Any],
    drawn: list[Kind],
    told: list[dict[str, Any]],
    history: list[tuple[str, int, int]],
) -> None:
    pair = Whole()

    def made(number: int, shape: dict[str, Any]) -> Node:
        name = NODES[number]
        shape = copy.deepcopy(shape)
        labels = {**shape["labels"], HOST: name}
        return Node(name, shape["allocatable"], labels, shape["taints"], images=shape["images"])

    for number, shape in enumerate(shapes):
        pair.set_node(made(number, shape))
        if shape["numa"]:
            pair.lay_out(NODES[number], 8, 16)
        if number % 3:
            pair.report(NODES[number], told[number % len(told)], [])
    _stored(pair, stored)
    numbers = itertools.count()
    bound: list[str] = []
    for what, which, times in history:
        if what == "place":
            pair.place([(f"p{next(numbers)}", drawn[i % len(drawn)]) for i in range(which, which + times)])
        elif what == "bind":
            plain = [kind for kind in drawn if "volumes" not in kind["spec"]]
            if plain and NODES[which] in pair.world.nodes:
                bound.append(f"b{next(numbers)}")
                pair.bind(bound[-1], plain[times % len(plain)], NODES[which])
        elif what == "end":
            gone = [uid for uid in pair.names if not claim_names(pair.world.pods[uid])]
            for uid in gone[: times if which % 2 else 1]:
                pair.remove_pod(uid)
                bound = [name for name in bound if f"default/{name}" != uid]
        elif what == "report":
            pair.report(NODES[which], told[times % len(told)], bound)
        elif which < len(shapes):
            pair.set_node(made(which, shapes[times % len(shapes)]))
        pair.check_given()
        for kind in drawn:
            pair.check(kind)
