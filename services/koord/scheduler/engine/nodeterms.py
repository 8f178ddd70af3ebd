"""Node selector terms as hashable values, tested on the label columns of all rows of a window at once."""

import msgspec
import numpy as np

from koord.columns.matrix import Bools
from koord.kube.nodeselectors import compile_term
from koord.kube.pods import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from koord.kube.selectors import SelectorError, whole_number
from koord.scheduler.engine.labels import ABSENT, LabelColumn
from koord.scheduler.engine.window import Window

NAME_FIELD = "metadata.name"

Requirement = tuple[str, str, tuple[str, ...]]
"""Key, operator, values."""


class NodeTerm(msgspec.Struct, frozen=True):
    """Tests of labels and of the node's name, all of which must hold; without any, no node matches.

    ``broken``: one of the tests cannot be read, so no node matches; what the tests say is kept as it was written.
    """

    labels: tuple[Requirement, ...] = ()
    names: tuple[Requirement, ...] = ()
    broken: bool = False


def node_term(term: NodeSelectorTerm) -> NodeTerm:
    """The hashable form; SelectorError names what is wrong with a term."""
    compile_term(term)
    return _term(term, broken=False)


def node_terms(selector: NodeSelector) -> tuple[NodeTerm, ...]:
    """The terms of which one must hold. One that cannot be read matches nothing and leaves the others as they are."""
    return tuple(_lenient(term) for term in selector.node_selector_terms)


def terms_mask(terms: tuple[NodeTerm, ...], window: Window) -> Bools:
    """True where one of the terms holds."""
    matched: Bools = np.zeros(window.size, dtype=np.bool_)
    for term in terms:
        matched |= term_mask(term, window)
    return matched


def term_mask(term: NodeTerm, window: Window) -> Bools:
    """True where every test of the term holds."""
    if term.broken or not (term.labels or term.names):
        return np.zeros(window.size, dtype=np.bool_)
    ok: Bools = np.ones(window.size, dtype=np.bool_)
    for requirement in term.labels:
        ok &= label_mask(requirement, window)
    for key, operator, values in term.names:
        ok &= _name_mask(key, operator, values, window)
    return ok


def label_mask(requirement: Requirement, window: Window) -> Bools:
    """True where the node's labels pass the test. A new array."""
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
    raise ValueError(f"node selector: key {key!r}: unknown operator {operator!r}")


def _lenient(term: NodeSelectorTerm) -> NodeTerm:
    try:
        return node_term(term)
    except SelectorError:
        return _term(term, broken=True)


def _term(term: NodeSelectorTerm, *, broken: bool) -> NodeTerm:
    return NodeTerm(
        tuple(_requirement(requirement) for requirement in term.match_expressions),
        tuple(_requirement(requirement) for requirement in term.match_fields),
        broken,
    )


def _requirement(requirement: NodeSelectorRequirement) -> Requirement:
    return (requirement.key, requirement.operator, tuple(requirement.values))


def _compare(column: LabelColumn, operator: str, values: tuple[str, ...]) -> Bools:
    """Gt and Lt compare whole numbers; a label or bound that is none does not match."""
    passed = np.zeros(len(column.values), dtype=np.bool_)
    bound = whole_number(values[0]) if len(values) == 1 else None
    if bound is not None:
        for code, text in enumerate(column.values):
            number = None if code == ABSENT else whole_number(text)
            if number is not None:
                passed[code] = number > bound if operator == "Gt" else number < bound
    return passed


def _name_mask(key: str, operator: str, values: tuple[str, ...], window: Window) -> Bools:
    if key != NAME_FIELD or operator not in ("In", "NotIn"):
        raise ValueError(f"node selector: matchFields: {key} {operator}: only {NAME_FIELD} In or NotIn is known")
    rows = [row for value in values if (row := window.cluster.index.find(value)) is not None]
    found: Bools
    if isinstance(window.rows, slice):
        found = np.zeros(window.size, dtype=np.bool_)
        found[rows] = True
    else:
        found = np.isin(window.rows, rows) if len(rows) != 1 else np.equal(window.rows, rows[0])
    return found if operator == "In" else ~found
