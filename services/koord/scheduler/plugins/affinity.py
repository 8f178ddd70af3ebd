"""NodeAffinity: nodeSelector, required and preferred node affinity, match fields. Spec 10 section 3.15."""

from collections.abc import Iterable
from typing import ClassVar

import msgspec
import numpy as np

from koord.columns.matrix import Bools, Floats
from koord.kube import pods as kube
from koord.kube.nodeselectors import compile_term
from koord.kube.selectors import SelectorError
from koord.scheduler.engine.cluster import Cluster
from koord.scheduler.engine.nodeterms import (
    NAME_FIELD,
    NodeTerm,
    Requirement,
    label_mask,
    node_term,
    node_terms,
    term_mask,
    terms_mask,
)
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import (
    FilterPlugin,
    Locality,
    PreFilterPlugin,
    Reason,
    ScorePlugin,
    Template,
    Terms,
)
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.plugins.rows import takes_now

MISMATCH = "node(s) didn't match Pod's node affinity/selector"
ENFORCED = "node(s) didn't match scheduler-enforced node affinity"
CONFLICT = "pod affinity terms conflict"
REQUIRED = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"


class AffinityTerms(msgspec.Struct, frozen=True):
    """``selector`` must hold and, if it is not None, one term of ``required``, and of ``enforced``, which the scheduler
    adds to every pod."""

    selector: tuple[Requirement, ...]
    required: tuple[NodeTerm, ...] | None
    enforced: tuple[NodeTerm, ...] | None = None


class PreferredTerms(msgspec.Struct, frozen=True):
    """Terms with the weight each adds to a node's score."""

    preferred: tuple[tuple[int, NodeTerm], ...]


class NodeAffinity(PreFilterPlugin, FilterPlugin, ScorePlugin):
    """Narrows to named nodes, filters by labels, rates by preferred terms.

    ``added``: an affinity that every pod has besides its own.
    """

    name: ClassVar[str] = "NodeAffinity"
    reads_amounts: ClassVar[bool] = False
    events: ClassVar[frozenset[ClusterEvent]] = frozenset((ClusterEvent.NODE_ADD, ClusterEvent.NODE_LABEL))
    prefilter_resolvable: ClassVar[bool] = False
    filter_locality: ClassVar[Locality] = "node"
    score_locality: ClassVar[Locality] = "node"
    normalized: ClassVar[bool] = True

    def __init__(self, added: kube.NodeAffinity | None = None) -> None:
        self._enforced: tuple[NodeTerm, ...] | None = None
        self._added: tuple[tuple[int, NodeTerm], ...] = ()
        if added is not None:
            self._enforced = _required(added)
            self._added = _preferred(added)

    def attach(self, cluster: Cluster) -> None:
        """Keeps the cluster for its hint."""
        self._cluster = cluster

    def helps(self, template: Template, event: ClusterEvent, subject: object) -> bool:
        """Whether the node that it is about is selected now."""
        return takes_now(self, self._cluster, template, subject)

    def remarks(self, template: Template) -> Iterable[str]:
        """Required terms that cannot be read."""
        affinity = template.spec.affinity
        if affinity is None or affinity.node_affinity is None or affinity.node_affinity.required is None:
            return
        for index, term in enumerate(affinity.node_affinity.required.node_selector_terms):
            try:
                compile_term(term, f"{REQUIRED}[{index}]")
            except SelectorError as error:
                yield f"{error}; the term matches no node"

    # PreFilter ------------------------------------------------------------------------------------------------------

    def prefilter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """The nodes that every required term names, if each names some."""
        terms = self._terms(template)
        if terms is None or not terms.required:
            return None
        names: frozenset[str] = frozenset()
        for term in terms.required:
            of_term: frozenset[str] | None = None
            for key, operator, values in term.names:
                if key == NAME_FIELD and operator == "In":
                    of_term = frozenset(values) if of_term is None else of_term & frozenset(values)
            if of_term is None:
                return None
            names |= of_term
        return names

    def prefilter(self, terms: Terms) -> str | None:
        """Contradictory names fit nowhere."""
        return None if terms else CONFLICT

    def node_names(self, terms: Terms) -> frozenset[str] | None:
        """The named nodes."""
        assert isinstance(terms, frozenset)
        return terms or None

    # Filter ---------------------------------------------------------------------------------------------------------

    def filter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """The nodeSelector and required terms."""
        return self._terms(template)

    def filter(self, terms: Terms, window: Window) -> Bools:
        """The nodeSelector holds, and one required term; and one of the added affinity."""
        assert isinstance(terms, AffinityTerms)
        ok = _own_test(terms, window)
        if terms.enforced is not None:
            ok &= terms_mask(terms.enforced, window)
        return ok

    def reasons(self, terms: Terms, window: Window) -> list[Reason]:
        """``node(s) didn't match scheduler-enforced node affinity``, else ``... Pod's node affinity/selector``."""
        assert isinstance(terms, AffinityTerms)
        refused: Bools = ~_own_test(terms, window)
        if terms.enforced is None:
            return [Reason(MISMATCH, refused, resolvable=False)]
        kept_off: Bools = ~terms_mask(terms.enforced, window)
        return [
            Reason(ENFORCED, kept_off, resolvable=False),
            Reason(MISMATCH, refused & ~kept_off, resolvable=False),
        ]

    # Score ----------------------------------------------------------------------------------------------------------

    def score_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """Preferred terms, if any; one without tests adds nothing."""
        affinity = template.spec.affinity
        preferred = self._added
        if affinity is not None and affinity.node_affinity is not None and affinity.node_affinity.preferred:
            preferred += _preferred(affinity.node_affinity)
        return PreferredTerms(preferred) if preferred else None

    def score(self, terms: Terms, window: Window) -> Floats:
        """Sum of the weights of matching terms."""
        assert isinstance(terms, PreferredTerms)
        total: Floats = np.zeros(window.size)
        for weight, term in terms.preferred:
            total += weight * term_mask(term, window)
        return total

    def normalize(self, terms: Terms, raw: Floats, low: float, high: float) -> Floats:
        """floor(100·sum/max); 0 if nobody matches anything."""
        if high == 0:
            return np.zeros(len(raw))
        return np.floor(raw * 100.0 / high)

    def _terms(self, template: Template) -> AffinityTerms | None:
        spec = template.spec
        selector = tuple((key, "In", (value,)) for key, value in sorted(spec.node_selector.items()))
        required: tuple[NodeTerm, ...] | None = None
        if spec.affinity is not None and spec.affinity.node_affinity is not None:
            required = _required(spec.affinity.node_affinity)
        if not selector and required is None and self._enforced is None:
            return None
        return AffinityTerms(selector, required, self._enforced)


def _required(affinity: kube.NodeAffinity) -> tuple[NodeTerm, ...] | None:
    """As upstream: a term that cannot be read matches no node, and the others count."""
    if affinity.required is None:
        return None
    return node_terms(affinity.required)


def _preferred(affinity: kube.NodeAffinity) -> tuple[tuple[int, NodeTerm], ...]:
    """Terms without tests add nothing. SelectorError names what is wrong with a term."""
    return tuple(
        (preferred.weight, node_term(preferred.preference))
        for preferred in affinity.preferred
        if preferred.preference.match_expressions or preferred.preference.match_fields
    )


def _own_test(terms: AffinityTerms, window: Window) -> Bools:
    """What the pod itself asks for."""
    ok: Bools = np.ones(window.size, dtype=np.bool_)
    for requirement in terms.selector:
        ok &= label_mask(requirement, window)
    if terms.required is not None:
        ok &= terms_mask(terms.required, window)
    return ok
