"""LicenseSeats: filters nodes by the seats that their license pools have free, scores them, and gives seats to pods."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar
from zlib import crc32

import numpy as np

from koord.columns.matrix import Bools, Floats
from koord.kube.resources import Resource
from koord.scheduler.engine.cluster import Cluster, NodeInfo
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.arguments import arguments
from koord.scheduler.framework.contract import (
    Allocation,
    AssignedPod,
    AssignPlugin,
    FilterPlugin,
    Locality,
    NodePlugin,
    PodRef,
    PreFilterPlugin,
    Reason,
    ReservePlugin,
    ScorePlugin,
    Template,
    Terms,
    Watch,
    WatchPlugin,
)
from koord.scheduler.framework.endpoints import Endpoint, EndpointError, EndpointPlugin, Parameters
from koord.scheduler.framework.events import ClusterEvent
from licenseseats.args import (
    GIVEN,
    PRODUCT,
    SEATS,
    LicenseSeatsArgs,
    SeatTerms,
    given_seats,
    given_text,
    seat_terms,
)
from licenseseats.book import LicensePool, Pool, SeatBook, rows_of

LICENSE_POOLS = Resource("licenses.example.com", "v1", "licensepools", "LicensePool", namespaced=False)
MOST_POOL_SEATS = 1000
NO_POOL = "node(s) had no license pool of the product"
NO_SEAT = "node(s) had no free license seats"


class LicenseSeats(
    PreFilterPlugin, FilterPlugin, ScorePlugin, ReservePlugin, AssignPlugin, NodePlugin, WatchPlugin, EndpointPlugin
):
    """A pod gets all its seats from one pool that serves its node."""

    name: ClassVar[str] = "LicenseSeats"
    pod_keys: ClassVar[tuple[str, ...]] = (PRODUCT, SEATS)
    events: ClassVar[frozenset[ClusterEvent]] = frozenset(
        (
            ClusterEvent.PLUGIN_OBJECT,
            ClusterEvent.POD_DELETE,
            ClusterEvent.LEDGER_RELEASE,
            ClusterEvent.NODE_ADD,
            ClusterEvent.NODE_LABEL,
        )
    )
    prefilter_resolvable: ClassVar[bool] = False
    reads_amounts: ClassVar[bool] = False
    monotone: ClassVar[bool] = True
    # A pod on one node takes a seat from all nodes of the pool: answers depend on other rows.
    filter_locality: ClassVar[Locality] = "cluster"
    score_locality: ClassVar[Locality] = "cluster"

    _book: SeatBook

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._args = arguments(LicenseSeatsArgs, settings)

    def attach(self, cluster: Cluster) -> None:
        """Profiles with other arguments have a plugin each; the seats are the same."""
        self._book = SeatBook.of(cluster)

    # Terms: a class of pods, compiled once --------------------------------------------------------------------------

    def filter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """None for pods without the annotation: the plugin costs them nothing."""
        return seat_terms(template.annotations, self._args.default_seats)

    prefilter_terms = score_terms = reserve_terms = filter_terms

    def prefilter(self, terms: Terms) -> str | None:
        """What the pod says badly."""
        assert isinstance(terms, SeatTerms)
        return terms.problem or None

    # Rows -----------------------------------------------------------------------------------------------------------

    def filter(self, terms: Terms, window: Window) -> Bools:
        """Rows that a pool with enough free seats serves."""
        assert isinstance(terms, SeatTerms)
        return self._served(window, self._able(terms))

    def filter_version(self, terms: Terms) -> int:
        """Moves when seats of the product are given or come back, and when its pools change."""
        assert isinstance(terms, SeatTerms)
        return self._book.version(terms.product)

    score_version = filter_version

    def reasons(self, terms: Terms, window: Window) -> list[Reason]:
        """No pool at all, which no preemption helps; or no seats."""
        assert isinstance(terms, SeatTerms)
        served = self._served(window, self._book.offering(terms.product))
        return [
            Reason(NO_POOL, ~served, resolvable=False),
            Reason(NO_SEAT, served & ~self._served(window, self._able(terms))),
        ]

    def score(self, terms: Terms, window: Window) -> Floats:
        """The rating of the best pool that serves the row."""
        assert isinstance(terms, SeatTerms)
        scores: Floats = np.zeros(window.size)
        for pool in self._able(terms):
            serves = rows_of(pool.serves, window.rows)
            scores[serves] = np.maximum(scores[serves], self._rating(pool))
        return scores

    def _able(self, terms: SeatTerms) -> list[Pool]:
        return [pool for pool in self._book.offering(terms.product) if pool.free >= terms.seats]

    def _served(self, window: Window, pools: Iterable[Pool]) -> Bools:
        served: Bools = np.zeros(window.size, dtype=np.bool_)
        for pool in pools:
            served |= rows_of(pool.serves, window.rows)
        return served

    def _rating(self, pool: Pool) -> int:
        free = 100 * pool.free // pool.spec.seats
        return free if self._args.scoring_strategy == "MostFree" else 100 - free

    # Seats ----------------------------------------------------------------------------------------------------------

    def reserve(self, pod: PodRef, terms: Terms, row: int) -> Allocation | str:
        """Seats of the best pool of the row. They are slots of the ledger: no other replica gives the same away."""
        assert isinstance(terms, SeatTerms)
        pools = [pool for pool in self._able(terms) if pool.serves.data[row]]
        if not pools:
            return NO_SEAT
        pool = max(pools, key=lambda pool: (self._rating(pool), pool.name))
        seats = pool.pick(terms.seats, crc32(pod.uid.encode()))
        self._book.take(pod.uid, pool.name, seats)
        slots = tuple(f"license/{pool.name}/{seat}" for seat in seats)
        return Allocation({GIVEN: given_text(pool.name, seats)}, slots=slots)

    def unreserve(self, uid: str) -> None:
        """The pod was not bound."""
        self._book.give_back(uid)

    def assigned(self, pod: AssignedPod) -> None:
        """A pod that is bound says itself what it has: after a restart, and when another replica placed it."""
        text = pod.ref.annotations.get(GIVEN)
        found = given_seats(text) if text is not None else None
        if found is not None:
            self._book.take(pod.ref.uid, *found)

    def unassigned(self, pod: AssignedPod) -> None:
        """The pod ended."""
        if GIVEN in pod.ref.annotations:
            self._book.give_back(pod.ref.uid)

    # Nodes and pools ------------------------------------------------------------------------------------------------

    def node_set(self, row: int, node: NodeInfo) -> None:
        """Its labels say which pools serve it."""
        self._book.node(row, node)

    def node_removed(self, row: int, name: str) -> None:
        """The columns are cleared already."""

    def watches(self) -> tuple[Watch, ...]:
        """A kind of our own: the gateway carries it by its setting ``also_watch``."""
        return (Watch(LICENSE_POOLS, LicensePool),)

    def changed(
        self, resource: Resource, key: str, old: LicensePool | None, new: LicensePool | None
    ) -> Iterable[ClusterEvent]:
        """ValueError: the pool gets an Event, and stays as it was."""
        if new is not None:
            if not new.spec.product:
                raise ValueError(f"LicensePool {key}: spec.product: must not be empty")
            if not 0 <= new.spec.seats <= MOST_POOL_SEATS:
                raise ValueError(f"LicensePool {key}: spec.seats: {new.spec.seats} is not in 0..{MOST_POOL_SEATS}")
        self._book.put(key, None if new is None else new.spec)
        return (ClusterEvent.PLUGIN_OBJECT,)

    def helps(self, template: Template, event: ClusterEvent, subject: object) -> bool:
        """Whether what happened may help a pod that we rejected; in doubt it may."""
        terms = seat_terms(template.annotations, self._args.default_seats)
        if terms is None or subject is None:
            return True
        if isinstance(subject, LicensePool):
            pool = self._book.pools.get(subject.metadata.name)
            return pool is not None and pool.spec.product == terms.product and pool.free >= terms.seats
        if isinstance(subject, AssignedPod):
            return subject.ref.annotations.get(PRODUCT) == terms.product
        if isinstance(subject, NodeInfo):
            return any(pool.selects(subject.labels) for pool in self._able(terms))
        return event is not ClusterEvent.PLUGIN_OBJECT  # some other plugin's object

    # Pages ----------------------------------------------------------------------------------------------------------

    def endpoints(self) -> Mapping[str, Endpoint]:
        """``/apis/v1/plugins/LicenseSeats/pools[/{pool}]``."""

        pools = self._book.pools

        def every(parameters: Parameters) -> object:
            return {name: _page(pool) for name, pool in sorted(pools.items())}

        def one(parameters: Parameters) -> object:
            pool = pools.get(parameters["pool"])
            if pool is None:
                raise EndpointError(404, f"cannot find license pool {parameters['pool']}")
            return _page(pool)

        return {"pools": every, "pools/{pool}": one}


def _page(pool: Pool) -> dict[str, Any]:
    """``holders``: seat numbers by the uid of the pod that has them."""
    holders: dict[str, list[int]] = {}
    for seat, uids in sorted(pool.holders.items()):
        for uid in uids:
            holders.setdefault(uid, []).append(seat)
    return {"product": pool.spec.product, "seats": pool.spec.seats, "free": pool.free, "holders": holders}
