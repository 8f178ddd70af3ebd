"""What the points of the plugin contract speak of: a class of pods, one pod, a pod on a node, a refusal."""

from collections.abc import Hashable, Mapping
from typing import Literal, NamedTuple

import msgspec

from koord.columns.matrix import Bools
from koord.kube.pods import PodResourceClaim, PodSpec
from koord.scheduler.engine.resources import Footprint

Locality = Literal["node", "usage", "cluster"]
Terms = Hashable


class Template(msgspec.Struct, frozen=True):
    """What all pods of a class have in common; the input of every ``*_terms`` method.

    ``labels`` and ``annotations`` hold only the keys that plugins named in ``pod_keys``; ``footprint`` is what one pod
    takes of a node; ``owner`` is the kind of its controller. ``only`` is the one node that its node affinity names, if
    it does; that is not in the spec then, and ``*_terms`` are not told: they are made once for all such classes.
    ``outline`` is equal where templates are but for what pods ask for; None: nobody knows.
    """

    namespace: str
    spec: PodSpec
    footprint: Footprint
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    owner: str = ""
    only: str = ""
    outline: Hashable = None

    @property
    def request(self) -> Mapping[str, int]:
        """Effective request by resource: cpu in milli-cores, the rest in whole base units."""
        return self.footprint.request


class PodRef(NamedTuple):
    """One pod as points that look at single pods see it."""

    uid: str
    namespace: str
    name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    gates: tuple[str, ...] = ()
    claims: tuple[PodResourceClaim, ...] = ()
    """Claims on devices; templates are resolved to what was made of them."""


class AssignedPod(msgspec.Struct, frozen=True, gc=False):
    """A pod that counts as having a node: planned here, being bound, or seen bound, whoever placed it.

    ``spec`` is its scheduling-relevant part and shared by equal pods. Times are seconds since the epoch, 0 if unknown:
    ``since`` it has its node, ``initialized`` its condition says so, ``started`` its kubelet saw it, ``evicted`` by the
    Eviction API. ``owner`` is the kind of its controller. ``preempted``: it is ``terminating`` for a pod of higher
    priority.
    """

    ref: PodRef
    spec: PodSpec
    footprint: Footprint
    node: str
    priority: int = 0
    since: float = 0.0
    initialized: float = 0.0
    started: float = 0.0
    owner: str = ""
    terminating: bool = False
    planned: bool = False
    evicted: float = 0.0
    preempted: bool = False


class Pending(str):
    """A plugin's refusal (of PreFilter, of a filter's reason, of Reserve) because of something outside that is under
    way. The pod waits without backing off: an event of that plugin that helps has it tried at once."""

    __slots__ = ()


class Reason(NamedTuple):
    """Why some rows were refused: the text users see, the rows, and whether taking pods away could help."""

    text: str
    rows: Bools
    resolvable: bool = True


class PluginError(Exception):
    """A plugin raised: names the plugin and the point."""

    def __init__(self, plugin: str, point: str, error: BaseException) -> None:
        super().__init__(f'running "{plugin}" {point} plugin: {type(error).__name__}: {error}')
        self.plugin = plugin
