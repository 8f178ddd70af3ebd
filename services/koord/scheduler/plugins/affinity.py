"""NodeAffinity: nodeSelector, required and preferred node affinity, match fields. Spec 10 section 3.15."""

from typing import ClassVar

import msgspec
import numpy as np

from koord.columns.matrix import Bools, Floats
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

NAME_FIELD = "metadata.name"
MISMATCH = "node(s) didn't match Pod's node affinity/selector"

Requirement = tuple[str, str, tuple[str, ...]]


class Term(msgspec.Struct, frozen=True):
    """One selector term: label tests and tests of the node's name, all of which must hold."""

    labels: tuple[Requirement, ...] = ()
    names: tuple[Requirement, ...] = ()


class AffinityTerms(msgspec.Struct, frozen=True):
    """``selector`` must hold and, if ``required`` is not None, one of its terms."""

    selector: tuple[Requirement, ...]
    required: tuple[Term, ...] | None


class PreferredTerms(msgspec.Struct, frozen=True):
    """Terms with the weight each adds to a node's score."""

    preferred: tuple[tuple[int, Term], ...]


class NodeAffinity(PreFilterPlugin, FilterPlugin, ScorePlugin):
    """Narrows to named nodes, filters by labels, rates by preferred terms."""

    name: ClassVar[str] = "NodeAffinity"
    events: ClassVar[frozenset[ClusterEvent]] = frozenset((ClusterEvent.NODE_ADD, ClusterEvent.NODE_LABEL))
    filter_locality: ClassVar[Locality] = "node"
    score_locality: ClassVar[Locality] = "node"
    normalized: ClassVar[bool] = True

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
        return None if terms else "pod affinity terms conflict"

    def node_names(self, terms: Terms) -> frozenset[str] | None:
        """The named nodes."""
        assert isinstance(terms, frozenset)
        return terms or None

    # Filter ---------------------------------------------------------------------------------------------------------

    def filter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """The nodeSelector and required terms."""
        return self._terms(template)

    def filter(self, terms: Terms, window: Window) -> Bools:
        """The nodeSelector holds, and one required term."""
        assert isinstance(terms, AffinityTerms)
        ok: Bools = np.ones(window.size, dtype=np.bool_)
        for requirement in terms.selector:
            ok &= _label_test(requirement, window)
        if terms.required is not None:
            matched: Bools = np.zeros(window.size, dtype=np.bool_)
            for term in terms.required:
                matched |= _term_test(term, window)
            ok &= matched
        return ok

    def reasons(self, terms: Terms, window: Window) -> list[Reason]:
        """``node(s) didn't match Pod's node affinity/selector``."""
        return [Reason(MISMATCH, ~self.filter(terms, window), resolvable=False)]

    # Score ----------------------------------------------------------------------------------------------------------

    def score_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """Preferred terms, if any; one without tests adds nothing."""
        affinity = template.spec.affinity
        if affinity is None or affinity.node_affinity is None or not affinity.node_affinity.preferred:
            return None
        return PreferredTerms(
            tuple(
                (preferred.weight, _term(preferred.preference))
                for preferred in affinity.node_affinity.preferred
                if preferred.preference.match_expressions or preferred.preference.match_fields
            )
        )

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

    @staticmethod
    def _terms(template: Template) -> AffinityTerms | None:
        spec = template.spec
        selector = tuple((key, "In", (value,)) for key, value in sorted(spec.node_selector.items()))
        required: tuple[Term, ...] | None = None
        if spec.affinity is not None and spec.affinity.node_affinity is not None:
            node_selector = spec.affinity.node_affinity.required
            if node_selector is not None:
                required = tuple(_term(term) for term in node_selector.node_selector_terms)
        return AffinityTerms(selector, required) if selector or required is not None else None


def _term(term: NodeSelectorTerm) -> Term:
    """SelectorError names what is wrong with a term."""
    compile_term(term)
    return Term(
        tuple(_requirement(requirement) for requirement in term.match_expressions),
        tuple(_requirement(requirement) for requirement in term.match_fields),
    )


def _requirement(requirement: NodeSelectorRequirement) -> Requirement:
    return (requirement.key, requirement.operator, tuple(requirement.values))


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
    named = np.zeros(window.cluster.high, dtype=np.bool_)
    for value in values:
        row = window.cluster.index.find(value)
        if row is not None:
            named[row] = True
    found: Bools = named[window.rows]
    return found if operator == "In" else ~found


def _whole(text: str) -> int | None:
    body = text[1:] if text[:1] in "+-" else text
    return int(text) if body.isdecimal() and body.isascii() and len(body) < 20 else None
