"""DynamicResources: claims on devices are given theirs where the pod goes (resource.k8s.io/v1, structured parameters).

What is decided, is decided in ``koord.scheduler.dra``; this is its place in the framework. Texts are upstream's.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from koord.accounting.slots import device_slot
from koord.columns.matrix import Bools, Floats
from koord.kube.dynamicresources import MOST_CONSUMERS, DeviceClass, ResourceClaim, ResourceSlice
from koord.kube.pods import PodSpec
from koord.kube.resources import RESOURCE_CLAIMS, Resource
from koord.scheduler.dra.book import DeviceBook
from koord.scheduler.dra.demand import DemandError
from koord.scheduler.dra.promises import Stage
from koord.scheduler.dra.resolving import Resolved, Resolver
from koord.scheduler.dra.results import Allocation as ClaimAllocation
from koord.scheduler.dra.results import allocation
from koord.scheduler.dra.trying import AllTries, Problem
from koord.scheduler.dra.uses import Uses, problem, uses_of
from koord.scheduler.dra.writing import begin, release, serves, void
from koord.scheduler.engine.cluster import Cluster, NodeInfo
from koord.scheduler.engine.nodeterms import NodeTerm, node_terms, terms_mask
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import (
    Allocation,
    AssignedPod,
    AssignPlugin,
    FilterPlugin,
    Locality,
    NodePlugin,
    Pending,
    PodRef,
    PostFilterPlugin,
    PreBind,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    Reason,
    Release,
    ReservePlugin,
    ScorePlugin,
    Template,
    Terms,
    TickPlugin,
    Watch,
    WatchPlugin,
    Write,
)
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.plugins.dynamicresources import watching
from koord.scheduler.plugins.rows import takes_now

if TYPE_CHECKING:
    from koord.scheduler.engine.diagnosis import Diagnosis
    from koord.scheduler.engine.placement import Engine, PodInfo

NOT_HERE = "resourceclaim not available on the node"
IN_USE = "resourceclaim in use"
LOOKING = Pending("devices of nodes are still being looked at")
NOTHING_TO_RELEASE = "no new claims to deallocate"
CHANGED = "resource claim {} was changed while it was allocated"
RELEASED = "deallocation of ResourceClaim completed"


class DynamicResources(
    PreEnqueuePlugin,
    PreFilterPlugin,
    FilterPlugin,
    ScorePlugin,
    ReservePlugin,
    PreBindPlugin,
    PostFilterPlugin,
    AssignPlugin,
    NodePlugin,
    WatchPlugin,
    TickPlugin,
):
    """All terms are the claims of the pod; what they are now is looked up. Pods without claims have no terms.

    ``timeout_s``: how long a placed pod waits until its claims say what they were given.
    """

    name: ClassVar[str] = "DynamicResources"
    events: ClassVar[frozenset[ClusterEvent]] = watching.EVENTS
    filter_locality: ClassVar[Locality] = "cluster"
    score_locality: ClassVar[Locality] = "cluster"
    normalized: ClassVar[bool] = True
    monotone: ClassVar[bool] = True
    reads_amounts: ClassVar[bool] = False
    prefilter_resolvable: ClassVar[bool] = False

    _book: DeviceBook
    _cluster: Cluster
    _resolver: Resolver
    _tries: AllTries

    def __init__(self, timeout_s: float = 600.0) -> None:
        self._timeout_s = timeout_s
        self._waiting: dict[str, tuple[str, tuple[str, ...]]] = {}
        """By uid: the node, and the claims whose writes are under way."""
        self._looking = False
        """Whether pods wait until devices have been looked at."""

    def attach(self, cluster: Cluster) -> None:
        """What is known of devices is one book for all profiles of the cluster."""
        self._cluster = cluster
        self._book = DeviceBook.of(cluster)
        self._resolver = Resolver(self._book)
        self._tries = AllTries(self._book)

    # Queue ----------------------------------------------------------------------------------------------------------

    def may_hold(self, template: Template) -> bool:
        """Only pods with claims."""
        return bool(template.spec.resource_claims)

    def pre_enqueue(self, pod: PodRef) -> str | None:
        """A claim of the pod that is not there, goes, or is another pod's."""
        if not pod.claims:
            return None
        uses = uses_of(pod.namespace, pod.claims)
        for use in () if uses is None else uses.uses:
            claim = self._book.claims.get(use.key) if use.claim else None
            text = problem(use, claim, f"{pod.namespace}/{pod.name}")
            if text is not None:
                return text
        return None

    def helps(self, template: Template, event: ClusterEvent, subject: object) -> bool:
        """Only what concerns one of the pod's claims, or devices that may be given to one."""
        uses = uses_of(template.namespace, template.spec.resource_claims)
        if uses is None or subject is None:
            return True
        if isinstance(subject, AssignedPod):
            return bool(subject.spec.resource_claims)  # what it was promised may be free
        if isinstance(subject, ResourceClaim):
            if subject.key in uses.keys:
                return True
            freed = event is ClusterEvent.RESOURCE_CLAIM_DELETE or subject.status.allocation is None
            return freed and bool(self._now(uses).demands)
        if isinstance(subject, ResourceSlice):
            return bool(self._now(uses).demands)
        if isinstance(subject, DeviceClass):
            return subject.metadata.name in self._resolver.classes(uses)
        if isinstance(subject, NodeInfo):
            return self._now(uses).refusal is None and takes_now(self, self._cluster, template, subject)
        return True

    # Filter ---------------------------------------------------------------------------------------------------------

    def prefilter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """The claims of the pod, if it has any."""
        return uses_of(template.namespace, template.spec.resource_claims)

    def prefilter(self, terms: Terms) -> str | None:
        """A claim that is missing, goes, is being written, or asks for a class that does not exist. Or it takes long to
        find out which nodes can serve: the pod is tried again each second until that is known."""
        now = self._now(terms)
        if now.demands and not self._tries.look(now.demands):
            self._looking = True
            return LOOKING
        return now.refusal

    def filter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """The claims of the pod, if it has any."""
        return uses_of(template.namespace, template.spec.resource_claims)

    def filter_version(self, terms: Terms) -> int:
        """When anything about devices changed."""
        return self._book.clock

    def filter(self, terms: Terms, window: Window) -> Bools:
        """Claims that have devices reach them, the others can get some."""
        now = self._now(terms)
        ok = self._reached(now, window)
        if now.demands:
            ok &= self._tries.of(now.demands).passes(window.rows)
        return ok

    def reasons(self, terms: Terms, window: Window) -> list[Reason]:
        """Taking pods away does not help."""
        now = self._now(terms)
        reached = self._reached(now, window)
        found = [] if reached.all() else [Reason(NOT_HERE, ~reached, resolvable=False)]
        if now.demands:
            for what, rows in self._tries.of(now.demands).problems(window.rows):
                refused = rows & reached
                if refused.any():
                    found.append(Reason(_text(now, what), refused, resolvable=False))
        return found

    def _reached(self, now: Resolved, window: Window) -> Bools:
        ok: Bools = np.ones(window.size, dtype=np.bool_)
        for tied in now.tied:
            ok &= terms_mask(tied.terms, window)
        return ok

    # Score ----------------------------------------------------------------------------------------------------------

    def score_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """The claims of the pod, if it has any."""
        return uses_of(template.namespace, template.spec.resource_claims)

    def score_version(self, terms: Terms) -> int:
        """When anything about devices changed."""
        return self._book.clock

    def score(self, terms: Terms, window: Window) -> Floats:
        """How far up in lists of alternatives (``firstAvailable``) what a node would give stands."""
        now = self._now(terms)
        return self._tries.of(now.demands).scores(window.rows) if now.demands else np.zeros(window.size)

    def normalize(self, terms: Terms, raw: Floats, low: float, high: float) -> Floats:
        """Of the best one's."""
        return np.floor(raw * 100.0 / high) if high > 0 else raw

    # Reserve --------------------------------------------------------------------------------------------------------

    def reserve_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """The claims of the pod, if it has any."""
        return uses_of(template.namespace, template.spec.resource_claims)

    def reserve(self, pod: PodRef, terms: Terms, row: int) -> Allocation | str:
        """Promise devices to claims that have none, and all claims to the pod. Devices are slots of the ledger."""
        book, now = self._book, self._now(terms)
        assert isinstance(terms, Uses)
        if now.refusal is not None:
            return now.refusal
        made: dict[str, ClaimAllocation] = {}
        if now.demands:
            given = self._tries.of(now.demands).give(row)
            if isinstance(given[0], str):
                return _text(now, (given[0], given[1]))
            for key, each in zip(now.open_, given, strict=True):
                try:
                    made[key] = allocation(book.claims[key], each, book.matcher.classes)
                except DemandError as error:
                    return f"claim {key}: {error}"
        wanted = [key for key in terms.keys if key in made or not serves(book.claims[key], pod.uid)]
        for key in wanted:
            promise = book.promises.get(key)
            more = 1 if promise is None else len(promise.pods.keys() - {pod.uid}) + 1
            if len(book.claims[key].status.reserved_for) + more > MOST_CONSUMERS:
                return IN_USE
        for key in wanted:
            book.promise(key, made.get(key), pod.uid, pod.name)
        return Allocation(slots=tuple(device_slot(*id_) for each in made.values() for id_ in each.devices))

    def unreserve(self, uid: str) -> None:
        """The promises are void, unless another pod holds them, too, or their write may still happen."""
        self._waiting.pop(uid, None)
        self._book.take_back(uid)

    def keeps(self, spec: PodSpec) -> bool:
        """Those with claims."""
        return bool(spec.resource_claims)

    def assigned(self, pod: AssignedPod) -> None:
        """A pod that is seen bound needs no promises, whoever bound it."""
        if not pod.planned:
            self.unreserve(pod.ref.uid)

    def unassigned(self, pod: AssignedPod) -> None:
        """What its claims have, they have as the API shows it."""

    def reassigned(self, old: AssignedPod, pod: AssignedPod) -> None:
        """From planned to bound."""
        self.assigned(pod)

    # PreBind --------------------------------------------------------------------------------------------------------

    def prebind(self, pod: PodRef, node: str) -> PreBind | str | None:
        """Write what claims were promised; what another pod's flight is writing is waited for."""
        uses, book = uses_of(pod.namespace, pod.claims), self._book
        keys: list[str] = []
        for key in () if uses is None else uses.keys:
            claim, promise = book.claims.get(key), book.promises.get(key)
            if claim is None:
                return _gone(key)
            if not self._reaches(claim, node):
                return f"{NOT_HERE}: {key}"
            if serves(claim, pod.uid):
                continue
            if promise is None or pod.uid not in promise.pods:
                return CHANGED.format(key)
            if promise.allocation is None and claim.status.allocation is None:
                return f"resource claim {key} has no devices any more"
            keys.append(key)
        if not keys:
            return None
        writes: list[Write] = []
        for key in keys:
            claim, promise = book.claims[key], book.promises[key]
            # A write that was begun for other pods and is in doubt is made again, for this one.
            if not promise.begun or (promise.stage is Stage.WRITING and pod.uid not in promise.covered):
                writes.append(begin(claim, promise))
        self._waiting[pod.uid] = (node, tuple(keys))
        return PreBind(tuple(writes), self._timeout_s)

    def prebound(self, uid: str) -> bool | str | PreBind:
        """All claims have their devices and may be used by the pod."""
        book = self._book
        node, keys = self._waiting.get(uid, ("", ()))
        writes: list[Write] = []
        waits = False
        for key in keys:
            claim, promise = book.claims.get(key), book.promises.get(key)
            if claim is None:
                return _gone(key)
            if serves(claim, uid):
                if not self._reaches(claim, node):
                    return f"{NOT_HERE}: {key}"
                continue
            if promise is None:
                return CHANGED.format(key)
            waits = True
            if promise.stage is Stage.MARKING and claim.metadata.resource_version != promise.seen:
                writes.append(begin(claim, promise))
        if writes:
            return PreBind(tuple(writes), self._timeout_s)
        if not waits:
            self._waiting.pop(uid, None)
        return not waits

    def _reaches(self, claim: ResourceClaim, node: str) -> bool:
        where: tuple[NodeTerm, ...] | None = None
        if claim.status.allocation is not None and claim.status.allocation.node_selector is not None:
            where = node_terms(claim.status.allocation.node_selector)
        row = self._cluster.index.find(node)
        if where is None or row is None:
            return row is not None
        return bool(terms_mask(where, Window.some(self._cluster, np.array([row], dtype=np.int64)))[0])

    # PostFilter -----------------------------------------------------------------------------------------------------

    def post_filter(self, pod: "PodInfo", engine: "Engine", diagnosis: "Diagnosis") -> Release | str | None:
        """Take the devices from a claim that keeps the pod from nodes and that nobody else uses."""
        template = pod.class_.template
        uses = uses_of(template.namespace, template.spec.resource_claims)
        if uses is None:
            return None if self.name in pod.class_.profile.quiet else NOTHING_TO_RELEASE
        if self.name in diagnosis.pending:
            return None  # nobody knows yet whether it has to be
        now = self._now(uses)
        window = Window.full(self._cluster)
        live = self._cluster.alive[: self._cluster.high]
        for tied in now.tied:
            if now.refusal is not None or (terms_mask(tied.terms, window) | ~live).all():
                continue
            claim, promise = self._book.claims[tied.key], self._book.promises.get(tied.key)
            if promise is not None and (promise.pods or promise.begun):
                if promise.doubtful(claim) and not promise.pods:
                    return Release((void(claim),), RELEASED)
                continue
            if all(consumer.uid == pod.uid for consumer in claim.status.reserved_for):
                return Release((release(claim),), RELEASED)
        return None

    # Nodes and other objects ----------------------------------------------------------------------------------------

    def node_set(self, row: int, node: NodeInfo) -> None:
        """Devices may be local to it, or told by its labels."""
        self._book.node_changed(row)

    def node_removed(self, row: int, name: str) -> None:
        """The row reaches nothing."""
        self._book.node_gone(row)

    def watches(self) -> tuple[Watch, ...]:
        """Classes, slices and claims."""
        return watching.WATCHES

    def changed(self, resource: Resource, key: str, old: Any | None, new: Any | None) -> Iterable[ClusterEvent]:
        """Into the book."""
        self._book.apply(resource, key, new)
        if new is None and resource is RESOURCE_CLAIMS:
            self._resolver.forget(key)
        return watching.events(resource, old, new)

    def tick(self, now: float) -> Iterable[ClusterEvent]:
        """Pods for which devices are being looked at have their next turn."""
        looking, self._looking = self._looking, False
        return (ClusterEvent.RESOURCE_CLAIM_UPDATE,) if looking else ()

    def _now(self, terms: Terms) -> Resolved:
        assert isinstance(terms, Uses)
        return self._resolver.of(terms)


def _text(now: Resolved, what: Problem) -> str:
    """A problem with the claim that it is about."""
    text, claim = what
    return text if claim is None else f"claim {now.open_[claim]}, {text}"


def _gone(key: str) -> str:
    return f'resourceclaim.resource.k8s.io "{key.rpartition("/")[2]}" not found'
