"""NodeAffinity: nodeSelector, required and preferred node affinity, match fields. Spec 10 section 3.15."""

from typing import ClassVar

import msgspec
import numpy as np

from koord.columns.matrix import Bools, Floats
from koord.kube import pods as kube
from koord.kube.nodeselectors import compile_term
from koord.kube.pods import NodeSelectorRequirement, NodeSelectorTerm
from koord.scheduler.engine.cluster import Cluster
from koord.scheduler.engine.labels import ABSENT, LabelColumn
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

NAME_FIELD = "metadata.name"
MISMATCH = "node(s) didn't match Pod's node affinity/selector"
ENFORCED = "node(s) didn't match scheduler-enforced node affinity"
CONFLICT = "pod affinity terms conflict"

Requirement = tuple[str, str, tuple[str, ...]]


class Term(msgspec.Struct, frozen=True):
    """One selector term: label tests and tests of the node's name, all of which must hold."""

    labels: tuple[Requirement, ...] = ()
    names: tuple[Requirement, ...] = ()


class AffinityTerms(msgspec.Struct, frozen=True):
    """``selector`` must hold and, if it is not None, one term of ``required``, and of ``enforced``, which the scheduler
    adds to every pod."""

    selector: tuple[Requirement, ...]
    required: tuple[Term, ...] | None
    enforced: tuple[Term, ...] | None = None


class PreferredTerms(msgspec.Struct, frozen=True):
    """Terms with the weight each adds to a node's score."""

    preferred: tuple[tuple[int, Term], ...]


class NodeAffinity(PreFilterPlugin, FilterPlugin, ScorePlugin):
    """Narrows to named nodes, filters by labels, rates by preferred terms.

    ``added``: an affinity that every pod has besides its own.
    """

    name: ClassVar[str] = "NodeAffinity"
    events: ClassVar[frozenset[ClusterEvent]] = frozenset((ClusterEvent.NODE_ADD, ClusterEvent.NODE_LABEL))
    prefilter_resolvable: ClassVar[bool] = False
    filter_locality: ClassVar[Locality] = "node"
    score_locality: ClassVar[Locality] = "node"
    normalized: ClassVar[bool] = True

    def __init__(self, added: kube.NodeAffinity | None = None) -> None:
        self._enforced: tuple[Term, ...] | None = None
        self._added: tuple[tuple[int, Term], ...] = ()
        if added is not None:
            self._enforced = _required(added)
            self._added = _preferred(added)

    def attach(self, cluster: Cluster) -> None:
        """Keeps the cluster for its hint."""
        self._cluster = cluster

    def helps(self, template: Template, event: ClusterEvent, subject: object) -> bool:
        """Whether the node that it is about is selected now."""
        return takes_now(self, self._cluster, template, subject)

    # PreFilter ------------------------------------------------------------------------------------------------------

    def prefilter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """The nodes that every required term names, if each names some."""
        terms = self._terms(template)
        if terms is None or not terms.required:
            return None
        names: frozenset[str] = frozenset()
        for term in terms.required:
            of_term: frozenset[str] | None = None
            for _, operator, values in term.names:
                if operator == "In":
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
            ok &= _any_test(terms.enforced, window)
        return ok

    def reasons(self, terms: Terms, window: Window) -> list[Reason]:
        """``node(s) didn't match scheduler-enforced node affinity``, else ``... Pod's node affinity/selector``."""
        assert isinstance(terms, AffinityTerms)
        refused: Bools = ~_own_test(terms, window)
        if terms.enforced is None:
            return [Reason(MISMATCH, refused, resolvable=False)]
        kept_off: Bools = ~_any_test(terms.enforced, window)
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
            total += weight * _term_test(term, window)
        return total

    def normalize(self, terms: Terms, raw: Floats, low: float, high: float) -> Floats:
        """floor(100·sum/max); 0 if nobody matches anything."""
        if high == 0:
            return np.zeros(len(raw))
        return np.floor(raw * 100.0 / high)

    def _terms(self, template: Template) -> AffinityTerms | None:
        spec = template.spec
        selector = tuple((key, "In", (value,)) for key, value in sorted(spec.node_selector.items()))
        required: tuple[Term, ...] | None = None
        if spec.affinity is not None and spec.affinity.node_affinity is not None:
            required = _required(spec.affinity.node_affinity)
        if not selector and required is None and self._enforced is None:
            return None
        return AffinityTerms(selector, required, self._enforced)


def _required(affinity: kube.NodeAffinity) -> tuple[Term, ...] | None:
    """SelectorError names what is wrong with a term."""
    if affinity.required is None:
        return None
    return tuple(_term(term) for term in affinity.required.node_selector_terms)


def _preferred(affinity: kube.NodeAffinity) -> tuple[tuple[int, Term], ...]:
    """Terms without tests add nothing. SelectorError names what is wrong with a term."""
    return tuple(
        (preferred.weight, _term(preferred.preference))
        for preferred in affinity.preferred
        if preferred.preference.match_expressions or preferred.preference.match_fields
    )


def _term(term: NodeSelectorTerm) -> Term:
    """SelectorError names what is wrong with a term."""
    compile_term(term)
    return Term(
        tuple(_requirement(requirement) for requirement in term.match_expressions),
        tuple(_requirement(requirement) for requirement in term.match_fields),
    )


def _requirement(requirement: NodeSelectorRequirement) -> Requirement:
    return (requirement.key, requirement.operator, tuple(requirement.values))


def _own_test(terms: AffinityTerms, window: Window) -> Bools:
    """What the pod itself asks for."""
    ok: Bools = np.ones(window.size, dtype=np.bool_)
    for requirement in terms.selector:
        ok &= _label_test(requirement, window)
    if terms.required is not None:
        ok &= _any_test(terms.required, window)
    return ok


def _any_test(terms: tuple[Term, ...], window: Window) -> Bools:
    """One of them at least."""
    matched: Bools = np.zeros(window.size, dtype=np.bool_)
    for term in terms:
        matched |= _term_test(term, window)
    return matched


def _term_test(term: Term, window: Window) -> Bools:
    """A term without any test matches nothing."""
    if not term.labels and not term.names:
        return np.zeros(window.size, dtype=np.bool_)
    ok: Bools = np.ones(window.size, dtype=np.bool_)
    for requirement in term.labels:
        ok &= _label_test(requirement, window)
    for key, operator, values in term.names:
        ok &= _name_test(key, operator, values, window)
    return ok


def _label_test(requirement: Requirement, window: Window) -> Bools:
    key, operator, values = requirement
    column = window.cluster.labels.column(key)
    codes = column.codes[window.rows]
    if operator in ("In", "NotIn"):
        found: Bools = np.zeros(window.size, dtype=np.bool_)
        for value in values:
            found |= codes == column.code(value)
        return found if operator == "In" else ~found
    if operator == "Exists":
        return np.not_equal(codes, ABSENT)
    if operator == "DoesNotExist":
        return np.equal(codes, ABSENT)
    if operator in ("Gt", "Lt"):
        return _compare(column, operator, values)[codes]
    raise ValueError(f"node affinity: key {key!r}: unknown operator {operator!r}")


def _compare(column: LabelColumn, operator: str, values: tuple[str, ...]) -> Bools:
    """Gt and Lt compare whole numbers; a label or bound that is none does not match."""
    passed = np.zeros(len(column.values), dtype=np.bool_)
    bound = _whole(values[0]) if len(values) == 1 else None
    if bound is not None:
        for code, text in enumerate(column.values):
            number = None if code == ABSENT else _whole(text)
            if number is not None:
                passed[code] = number > bound if operator == "Gt" else number < bound
    return passed


def _name_test(key: str, operator: str, values: tuple[str, ...], window: Window) -> Bools:
    if key != NAME_FIELD or operator not in ("In", "NotIn"):
        raise ValueError(f"node affinity: matchFields: {key} {operator}: only {NAME_FIELD} In or NotIn is known")
    rows = [row for value in values if (row := window.cluster.index.find(value)) is not None]
    found: Bools
    if isinstance(window.rows, slice):
        found = np.zeros(window.size, dtype=np.bool_)
        found[rows] = True
    else:
        found = np.isin(window.rows, rows) if len(rows) != 1 else np.equal(window.rows, rows[0])
    return found if operator == "In" else ~found


def _whole(text: str) -> int | None:
    body = text[1:] if text[:1] in "+-" else text
    return int(text) if body.isdecimal() and body.isascii() and len(body) < 20 else None
