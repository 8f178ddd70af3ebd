"""What the claims of a pod are now: a reason not to place it, nodes that it must keep to, devices to be given."""

from collections import OrderedDict

import msgspec

from koord.kube.dynamicresources import ResourceClaim
from koord.kube.pods import NodeSelector
from koord.scheduler.dra.book import DeviceBook
from koord.scheduler.dra.demand import Demand, DemandError, demand_of
from koord.scheduler.dra.trying import Demands
from koord.scheduler.dra.uses import Uses, problem
from koord.scheduler.engine.nodeterms import NodeTerm, node_terms
from koord.scheduler.framework.contract import Pending

KEEP = 1024


class Tied(msgspec.Struct, frozen=True):
    """A claim that has its devices, or was promised them: the nodes that reach them."""

    key: str
    terms: tuple[NodeTerm, ...]


class Resolved(msgspec.Struct, frozen=True):
    """``open_``: keys of the claims that get what ``demands`` say, in their order."""

    refusal: str | None = None
    tied: tuple[Tied, ...] = ()
    open_: tuple[str, ...] = ()
    demands: Demands = ()


class Resolver:
    """Answers as of now, kept until something changed."""

    def __init__(self, book: DeviceBook) -> None:
        self._book = book
        self._kept: OrderedDict[Uses, tuple[int, Resolved]] = OrderedDict()
        self._demands: dict[str, tuple[ResourceClaim, Demand | str]] = {}

    def of(self, uses: Uses) -> Resolved:
        """What the claims are now."""
        clock = self._book.clock
        found = self._kept.get(uses)
        if found is not None and found[0] == clock:
            return found[1]
        made = self._resolve(uses)
        self._kept[uses] = (clock, made)
        self._kept.move_to_end(uses)
        if len(self._kept) > KEEP:
            self._kept.popitem(last=False)
        return made

    def classes(self, uses: Uses) -> set[str]:
        """The classes that the claims name."""
        found: set[str] = set()
        for key in uses.keys:
            claim = self._book.claims.get(key)
            demand = None if claim is None else self._demand(key, claim)
            if isinstance(demand, Demand):
                found.update(demand.classes)
        return found

    def forget(self, key: str) -> None:
        """The claim is gone."""
        self._demands.pop(key, None)

    def _resolve(self, uses: Uses) -> Resolved:
        book = self._book
        for use in uses.uses:
            text = problem(use, book.claims.get(use.key) if use.claim else None)
            if text is not None:
                return Resolved(text)
        tied: list[Tied] = []
        open_: list[str] = []
        demands: list[Demand] = []
        for key in uses.keys:
            claim, promise = book.claims[key], book.promises.get(key)
            if promise is not None and promise.begun and promise.pods:
                return Resolved(Pending(f"resource claim {key} is in the process of being allocated"))
            if claim.status.allocation is not None:
                _tie(tied, key, claim.status.allocation.node_selector)
            elif promise is not None and promise.allocation is not None:
                _tie(tied, key, promise.allocation.where)
            else:
                demand = self._demand(key, claim)
                if isinstance(demand, str):
                    return Resolved(f"resource claim {key}, {demand}")
                for wish in demand.wishes:
                    for ask in wish.asks:
                        if ask.device_class not in book.matcher.classes:
                            text = f"request {ask.name}: device class {ask.device_class} does not exist"
                            return Resolved(text)
                open_.append(key)
                demands.append(demand)
        return Resolved(None, tuple(tied), tuple(open_), tuple(demands))

    def _demand(self, key: str, claim: ResourceClaim) -> Demand | str:
        known = self._demands.get(key)
        if known is not None and known[0].spec is claim.spec:
            return known[1]
        demand: Demand | str
        try:
            demand = demand_of(claim)
        except DemandError as error:
            demand = str(error)
        self._demands[key] = (claim, demand)
        return demand


def _tie(tied: list[Tied], key: str, where: NodeSelector | None) -> None:
    if where is not None:
        tied.append(Tied(key, node_terms(where)))
