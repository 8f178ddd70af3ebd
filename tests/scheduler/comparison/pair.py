"""One cluster twice: in the engine, fed as the service feeds it, and in the reference."""

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from koord.scheduler.catalogue import Catalogue
from koord.scheduler.engine.cluster import TIE_BITS, Cluster
from koord.scheduler.engine.placement import Engine, Outcome, Placed
from koord.scheduler.engine.resources import Resources
from koord.scheduler.framework.profile import Profile
from koord.scheduler.nodeview import ImagesNodeView
from koord.scheduler.podview import PodView
from tests.reference.scheduler.objects import Node, Pod, World
from tests.reference.scheduler.placing import choose, judge
from tests.reference.scheduler.rules import Rules

SEED = "seed"
_pods = msgspec.json.Decoder(PodView)
_nodes = msgspec.json.Decoder(ImagesNodeView)
Kind = Mapping[str, Any]
"""What pods are made of: ``spec``, and perhaps ``labels``, ``annotations``, ``namespace``."""


def rules_of(profile: Profile, **arguments: Any) -> Rules:
    """The order and the weights of a profile, with what its plugins were told."""
    weights = {plugin.name: weight for plugin, weight in profile.scores}
    filters = [plugin.name for plugin in profile.filters]
    # Whoever does not score has weight 0: a plugin that filters here need not be asked for scores.
    every = dict.fromkeys([*filters, *weights])
    return Rules(list(every), dict.fromkeys(every, 0) | weights, **arguments)


class Side:
    """One engine."""

    def __init__(self, profile: Profile, columns: int | None = None) -> None:
        self.cluster = Cluster(SEED)
        if columns is not None:
            self.cluster.resources = Resources(columns)
        self.engine = Engine(self.cluster, profile)
        self.catalogue = Catalogue(self.cluster, profile)
        self._keys = {key for plugin in profile.noding for key in plugin.node_keys}

    def set_node(self, body: bytes) -> None:
        """A node as the API sends it."""
        self.engine.set_node(_nodes.decode(body).info(self._keys))

    def place(self, views: Sequence[PodView], *, singly: bool = False) -> list[tuple[str, int] | str]:
        """Place pods in this order; a node and a score, or the text, of each."""
        infos = [self.catalogue.pod(view) for view in views]
        # Labels that later pods select by may tell earlier ones apart.
        infos = [self.catalogue.renewed(info) for info in infos]
        outcomes: list[Outcome] = []
        if singly:
            outcomes = [self.engine.place_one(info) for info in infos]
        while len(outcomes) < len(infos):
            self.engine.place(infos[len(outcomes) :], outcomes)
        return [(one.node, one.score) if isinstance(one, Placed) else one.message for one in outcomes]

    def totals(self, view: PodView) -> dict[str, int]:
        """The total score of each node that could take the pod now."""
        class_ = self.catalogue.class_of(view)
        rows, keys = self.engine.ranked(class_)
        names = range(len(keys)) if rows is None else rows.tolist()
        return {
            str(self.cluster.index.name(row)): key >> TIE_BITS
            for row, key in zip(names, keys.tolist(), strict=True)
            if key >= 0
        }


class Pair:
    """An engine (a second one on request) and the reference under the same rules.

    ``columns``: how many resources of the first engine have one.
    """

    def __init__(
        self, profile: Callable[[], Profile], rules: Rules, *, twin: bool = False, columns: int | None = None
    ) -> None:
        self.side = Side(profile(), columns)
        self.twin = Side(profile()) if twin else None
        self.rules = rules
        self.world = World()
        self.names: list[str] = []
        """Pods that have a node, oldest first."""

    def set_node(self, node: Node) -> None:
        """A node comes or changes."""
        body = {
            "metadata": {"name": node.name, "uid": node.name, "labels": node.labels, "annotations": node.annotations},
            "spec": {"taints": node.taints, "unschedulable": node.unschedulable},
            "status": {
                "allocatable": node.allocatable,
                "images": [{"names": [name], "sizeBytes": size} for name, size in node.images.items()],
            },
        }
        for side in self._sides():
            side.set_node(json.dumps(body).encode())
        self.world.nodes[node.name] = node

    def follow(
        self, history: Sequence[tuple[str, int, int]], kinds: Sequence[Kind], make: Callable[[str, int], Node]
    ) -> None:
        """Do what is written (``drawing.steps``) and compare after each step; ``make`` draws a node that comes."""
        numbers = itertools.count()
        for what, which, times in history:
            if what == "place":
                self.place([(f"p{next(numbers)}", kinds[which % len(kinds)]) for _ in range(times)])
            elif what == "mix":
                self.place([(f"p{next(numbers)}", kinds[i % len(kinds)]) for i in range(which, which + times)])
            elif what == "bind":
                for _ in range(times):
                    self.bind(f"p{next(numbers)}", kinds[times % len(kinds)], f"n{which}")
            elif what == "end":
                for _ in range(min(times, len(self.names))):
                    self.remove_pod(self.names[which % len(self.names)])
            elif what == "set":
                self.set_node(make(f"n{which}", times))
            elif f"n{which}" in self.world.nodes:
                self.remove_node(f"n{which}")
            for kind in kinds:
                self.check(kind)

    def remove_node(self, name: str) -> None:
        """A node goes; its pods stay, in case that it comes back."""
        for side in self._sides():
            side.engine.remove_node(name)
        self.world.nodes.pop(name, None)

    def remove_pod(self, uid: str) -> None:
        """A pod that has a node goes."""
        for side in self._sides():
            assert side.engine.forget(uid) or side.engine.uncount(uid) is not None
        self.world.take(self.world.pods[uid])
        self.names.remove(uid)

    def bind(self, name: str, kind: Kind, node: str) -> None:
        """Somebody else puts a pod on a node, whether it has room for it or not, and whether it is known or not."""
        for side in self._sides():
            side.engine.count(side.catalogue.assigned(view(name, kind), node))
        pod = model(name, kind)
        self.world.put(pod, node)
        self.names.append(pod.uid)

    def place(self, kinds: Sequence[tuple[str, Kind]]) -> None:
        """Place pods of these names and kinds in this order: everybody must choose the same."""
        views = [view(name, kind) for name, kind in kinds]
        told = self.side.place(views)
        if self.twin is not None:
            assert self.twin.place(views, singly=True) == told
        for (name, kind), outcome in zip(kinds, told, strict=True):
            pod = model(name, kind)
            chosen = choose(judge(pod, self.world, self.rules), SEED)
            assert outcome == chosen, (name, kind)
            if not isinstance(chosen, str):
                self.put(pod, chosen[0])
                self.names.append(pod.uid)

    def put(self, pod: Pod, node: str) -> None:
        """The reference's pod is on that node from now on."""
        self.world.put(pod, node)

    def check(self, kind: Kind) -> None:
        """Who could take a pod of this kind, and how much each is liked."""
        verdict = judge(model("asked", kind), self.world, self.rules)
        asked = view("asked", kind)
        totals = self.side.totals(asked)
        assert totals == verdict.totals, (kind, verdict.parts)
        if not totals:
            told = self.side.engine.explain(self.side.catalogue.class_of(asked))
            assert told.message == verdict.text
            if verdict.counts:
                counts = {(one.plugin, one.reason, one.resolvable): one.nodes for one in told.reasons}
                assert counts == verdict.counts, kind

    def check_kept(self, kind: Kind) -> None:
        """What the engine keeps is what it would find if it began anew."""
        asked = view("asked", kind)
        kept = self.side.totals(asked)
        self.side.engine.forget_evaluations()
        assert self.side.totals(asked) == kept, kind

    def _sides(self) -> list[Side]:
        return [self.side] if self.twin is None else [self.side, self.twin]


def view(name: str, kind: Kind) -> PodView:
    """A pod as the service reads it."""
    namespace = kind.get("namespace", "default")
    meta = {
        "name": name,
        "namespace": namespace,
        "uid": f"{namespace}/{name}",
        "labels": kind.get("labels", {}),
        "annotations": kind.get("annotations", {}),
    }
    return _pods.decode(json.dumps({"metadata": meta, "spec": kind["spec"]}))


def model(name: str, kind: Kind) -> Pod:
    """The same pod for the reference."""
    return Pod(
        name,
        kind["spec"],
        kind.get("namespace", "default"),
        kind.get("labels", {}),
        kind.get("annotations", {}),
    )
