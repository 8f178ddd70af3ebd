"""The plugins for volumes against the plain reference: random storage, pods that come and go, objects that change."""

import copy
from collections import Counter
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from koord.scheduler.engine.placement import Placed, PodInfo
from koord.scheduler.engine.window import Window
from koord.scheduler.plugins.volumecapacity import RatingVolumeBinding
from tests.reference.scheduler.objects import Node, Pod
from tests.reference.scheduler.rules import Rules
from tests.reference.scheduler.volumes import (
    VOLUME_FILTERS,
    StorageWorld,
    capacity_score,
    claim_names,
    promise,
    volume_refusal,
)
from tests.scheduler.comparison.drawing import examples
from tests.scheduler.volumes.objects import (
    HOST,
    ZONE,
    Object,
    VolumeBed,
    attachment,
    capacity,
    claim,
    csi_driver,
    csi_node,
    storage_class,
    using,
    volume,
)

NODES = ("n0", "n1", "n2", "n3")
ZONES = {"n0": "z0", "n1": "z0", "n2": "z1"}
"""The last node is in no zone."""
SIZES = ("1Gi", "2Gi", "3Gi")
MODES = (("ReadWriteOnce",), ("ReadWriteOnce", "ReadWriteMany"), ("ReadWriteOncePod",))
CLAIMS = tuple(f"c{number}" for number in range(8))
RULES = Rules([], {})
CURVE = {use: (7 * use + 31) % 101 for use in range(101)}
"""A score of its own for nearly every percentage."""

_nodes = st.sampled_from(NODES)
_zones = st.sampled_from(("z0", "z1", "z2"))


@st.composite
def volumes(draw: st.DrawFn, name: str = "") -> Object:
    name = name or f"v{draw(st.integers(0, 11))}"
    where: dict[str, Any] = draw(
        st.one_of(
            st.builds(lambda node: {"on": {HOST: [node]}}, _nodes),
            st.builds(lambda zones: {"on": {ZONE: zones}}, st.lists(_zones, min_size=1, max_size=2)),
            st.builds(lambda node, zone: {"on": {HOST: [node], ZONE: [zone]}}, _nodes, _zones),
            st.builds(
                lambda node, zone: {
                    "terms": [
                        {"matchExpressions": [{"key": HOST, "operator": "In", "values": [node]}]},
                        {"matchExpressions": [{"key": ZONE, "operator": "NotIn", "values": [zone]}]},
                    ]
                },
                _nodes,
                _zones,
            ),
            st.just({}),
        )
    )
    labels = draw(st.sampled_from(({}, {"tier": "gold"}, {ZONE: "z0__z1"}, {ZONE: "z1"})))
    csi = draw(st.sampled_from((None, ("made.io", f"h-{name}"))))
    return volume(
        name,
        size=draw(st.sampled_from(SIZES)),
        class_=draw(st.sampled_from(("local", "local", "made"))),
        modes=draw(st.sampled_from(MODES)),
        labels=labels,
        csi=csi,
        phase=draw(st.sampled_from(("Available",) * 5 + ("Released",))),
        **where,
    )


@st.composite
def claims(draw: st.DrawFn, name: str = "") -> Object:
    more: Object = draw(st.sampled_from(({}, {}, {}, {"selector": {"matchLabels": {"tier": "gold"}}})))
    return claim(
        name or draw(st.sampled_from(CLAIMS)),
        size=draw(st.sampled_from(SIZES)),
        class_=draw(st.sampled_from((*("local", "made") * 5, "now", None))),
        modes=draw(st.sampled_from(MODES)),
        deleting=draw(st.sampled_from((False,) * 19 + (True,))),
        **more,
    )


_disks = st.one_of(
    st.builds(lambda ro: {"gcePersistentDisk": {"pdName": "d", "readOnly": ro}}, st.booleans()),
    st.just({"awsElasticBlockStore": {"volumeID": "e"}}),
    st.builds(lambda ms: {"rbd": {"monitors": ms, "image": "i"}}, st.lists(st.sampled_from("xyz"), min_size=1)),
)
_pods = st.builds(
    lambda names, disks: using(*names, disks=disks),
    st.lists(st.sampled_from(CLAIMS), min_size=1, max_size=3, unique=True),
    st.one_of(st.just([]), st.lists(_disks, max_size=1)),
)
_rooms = st.sampled_from((None, "500Mi", *SIZES))
_steps = st.one_of(
    st.tuples(st.just("volume"), volumes()),
    st.tuples(st.just("claim"), claims()),
    st.tuples(st.just("pod"), _pods),
    st.tuples(st.just("pod"), _pods),
    st.tuples(st.just("pod"), _pods),
    st.tuples(st.just("leave"), st.integers(0, 9)),
    st.tuples(st.just("show"), st.integers(0, 9)),
    st.tuples(st.just("finish"), st.sampled_from(CLAIMS)),
    st.tuples(st.just("lose"), st.integers(0, 11)),
    st.tuples(st.just("limit"), st.tuples(_nodes, st.integers(0, 3))),
    st.tuples(
        st.just("room"),
        st.tuples(_nodes, st.sampled_from((None, "500Mi", *SIZES)), st.sampled_from((None, None, "1Gi", "2Gi"))),
    ),
    st.tuples(st.just("attach"), st.tuples(_nodes, st.integers(0, 11))),
)


class Twins:
    """The engine and the reference, told the same. ``api`` is what the API shows; the reference's own world has the
    promises written into it."""

    def __init__(self) -> None:
        self.rating = RatingVolumeBinding(np.array([CURVE[use] for use in range(101)], dtype=np.float64))
        self.bed = VolumeBed(binding=self.rating)
        self.world = StorageWorld()
        self.api: dict[tuple[str, str], Object] = {}
        self.placed: dict[str, tuple[Pod, Any, dict[str, str]]] = {}
        self.count = 0
        for name in NODES:
            labels = {HOST: name, **({ZONE: ZONES[name]} if name in ZONES else {})}
            self.bed.node(name, labels=labels)
            self.world.nodes[name] = Node(name, {"cpu": "4", "memory": "16Gi", "pods": "110"}, labels)
        self.tell("class", storage_class())
        self.tell("class", storage_class("made", provisioner="made.io", topologies=[{ZONE: ["z0", "z1"]}]))
        self.tell("class", storage_class("now", provisioner="now.io", mode="Immediate"))
        self.tell("csi_driver", csi_driver("made.io"))
        self.tell("capacity", capacity("all", "made", "2Gi", {}))

    def tell(self, kind: str, body: Object) -> None:
        self.bed.tell(kind, copy.deepcopy(body))
        meta = body["metadata"]
        key = f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else meta["name"]
        self.api[kind, key] = body
        self._renew()

    def gone(self, kind: str, key: str) -> None:
        if self.api.pop((kind, key), None) is not None:
            self.bed.gone(kind, key)
            self._renew()

    def _renew(self) -> None:
        """The reference's objects: the API's, and what is promised to pods that are there, oldest first."""
        world = self.world
        kinds = {
            "claim": world.claims,
            "volume": world.volumes,
            "class": world.classes,
            "csi_driver": world.drivers,
            "csi_node": world.csi_nodes,
            "capacity": world.capacities,
            "attachment": world.attachments,
        }
        for objects in kinds.values():
            objects.clear()
        for (kind, key), body in self.api.items():
            kinds[kind][key] = copy.deepcopy(body)
        for pod, _, gets in self.placed.values():
            for key, name in gets.items():
                self._write(key, name, pod.node)

    def _write(self, key: str, name: str, node: str) -> None:
        body = self.world.claims.get(key)
        if body is None:
            return
        meta, annotations = body["metadata"], body["metadata"].setdefault("annotations", {})
        if name:
            held = self.world.volumes.get(name)
            if held is not None and "claimRef" not in held["spec"]:
                reference = {"namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]}
                held["spec"]["claimRef"] = reference
        elif not body["spec"].get("volumeName"):
            annotations.setdefault("volume.kubernetes.io/selected-node", node)

    # Steps ----------------------------------------------------------------------------------------------------------

    def step(self, what: str, value: Any) -> None:
        getattr(self, f"do_{what}")(value)

    def do_volume(self, body: Object) -> None:
        """New ones only: what a volume is, does not change in place."""
        if ("volume", body["metadata"]["name"]) not in self.api:
            self.tell("volume", body)

    def do_claim(self, body: Object) -> None:
        key = f"default/{body['metadata']['name']}"
        if ("claim", key) not in self.api and not any(key in gets for _, _, gets in self.placed.values()):
            self.tell("claim", body)

    def do_lose(self, number: int) -> None:
        name = f"v{number}"
        if not any(name in gets.values() for _, _, gets in self.placed.values()):
            self.gone("volume", name)

    def do_limit(self, value: tuple[str, int]) -> None:
        self.tell("csi_node", csi_node(value[0], {"made.io": value[1] or None}))

    def do_room(self, value: tuple[str, str | None, str | None]) -> None:
        node, amount, largest = value
        self.tell("capacity", capacity(f"of-{node}", "made", amount, {HOST: node}, largest))

    def do_attach(self, value: tuple[str, int]) -> None:
        self.tell("attachment", attachment(f"at-{value[0]}", "made.io", value[0], f"v{value[1]}"))

    def do_leave(self, number: int) -> None:
        """A planned pod is given up: its promises are void."""
        uids = list(self.placed)
        if uids:
            uid = uids[number % len(uids)]
            pod, info, _ = self.placed.pop(uid)
            assert self.bed.engine.forget(info.uid)
            self.world.take(pod)
            self._renew()

    def do_show(self, number: int) -> None:
        """The API shows what a pod was promised."""
        uids = list(self.placed)
        if not uids:
            return
        for key, name in self.placed[uids[number % len(uids)]][2].items():
            if name:
                if name in self.world.volumes:
                    self.tell("volume", copy.deepcopy(self.world.volumes[name]))
            elif key in self.world.claims:
                self.tell("claim", copy.deepcopy(self.world.claims[key]))

    def do_finish(self, name: str) -> None:
        """The controller binds a claim whose volume names it."""
        key = f"default/{name}"
        body = self.api.get(("claim", key))
        if body is None or body["spec"].get("volumeName"):
            return
        for (kind, held), candidate in sorted(self.api.items()):
            if kind == "volume" and candidate["spec"].get("claimRef", {}).get("name") == name:
                done = copy.deepcopy(body)
                done["spec"]["volumeName"] = held
                done["metadata"].setdefault("annotations", {})["pv.kubernetes.io/bind-completed"] = "yes"
                done["status"]["phase"] = "Bound"
                self.tell("claim", done)
                return

    def do_pod(self, spec: Object) -> None:
        self.count += 1
        name = f"p{self.count}"
        pod = Pod(name, spec)
        info = self.bed.pod(name, spec)
        refusal = volume_refusal(pod, self.world)
        feasible: set[str] = set()
        counts: Counter[str] = Counter()
        if refusal is None:
            for node in self.world.nodes.values():
                for filter_ in VOLUME_FILTERS.values():
                    reasons = filter_(pod, node, self.world, RULES)
                    if reasons:
                        counts.update(text for text, _ in reasons)
                        break
                else:
                    feasible.add(node.name)
            told = ", ".join(sorted(f"{count} {text}" for text, count in counts.items()))
            refusal = f"0/{len(NODES)} nodes are available: {told}."
            evaluation = self.bed.engine.evaluation(info.class_)
            keys = evaluation.refresh(self.bed.cluster)
            assert {self.bed.cluster.index.name(row) for row in np.flatnonzero(keys >= 0).tolist()} == feasible
            self.compare_scores(pod, info, feasible)
        else:
            refusal = f"0/{len(NODES)} nodes are available: {refusal}."
        outcome = self.bed.engine.place_one(info, 0.0)
        if not feasible:
            assert not isinstance(outcome, Placed), outcome
            assert outcome.message == refusal
            return
        assert isinstance(outcome, Placed), outcome
        assert outcome.node in feasible
        gets = promise(pod, self.world.nodes[outcome.node], self.world)
        self.world.put(pod, outcome.node)
        self.placed[pod.uid] = (pod, info, gets)
        given, selected = self.bed.book.promised
        for key, held in gets.items():
            # What the API shows already is not promised.
            if held and "claimRef" not in self.api["volume", held]["spec"]:
                assert given[held] == key
            if (
                not held
                and "volume.kubernetes.io/selected-node" not in self.api["claim", key]["metadata"]["annotations"]
            ):
                assert selected[key] == outcome.node
        assert set(gets) <= set(claim_names(pod))

    def compare_scores(self, pod: Pod, info: PodInfo, feasible: set[str]) -> None:
        """How much of the storage the pod's claims would use on each node that can take it."""
        terms = self.rating.score_terms(info.class_.template, self.bed.cluster)
        told = [0.0] * len(NODES)
        if terms is not None:
            told = self.rating.score(terms, Window.full(self.bed.cluster)).tolist()
        for node in self.world.nodes.values():
            row = self.bed.cluster.index.find(node.name)
            if node.name in feasible and row is not None:
                assert told[row] == capacity_score(pod, node, self.world, CURVE), node.name


_begin = st.tuples(
    st.tuples(*(claims(name=name) for name in CLAIMS)),
    st.tuples(*(volumes(name=f"v{number}") for number in range(8))),
)


@settings(max_examples=examples(150), deadline=None)
@given(_begin, st.lists(_steps, min_size=10, max_size=40))
def test_plugins_agree_with_the_reference(
    begin: tuple[tuple[Object, ...], tuple[Object, ...]], steps: list[tuple[str, Any]]
) -> None:
    twins = Twins()
    for body in begin[0]:
        twins.tell("claim", body)
    for body in begin[1]:
        twins.tell("volume", body)
    for what, value in steps:
        twins.step(what, value)
