"""Node selectors and tolerations: which nodes a pod may go to.

A node selector term without any test matches no node, as in Kubernetes.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from koord.kube.nodes import NO_EXECUTE, NO_SCHEDULE, Taint
from koord.kube.pods import NodeSelector, NodeSelectorTerm, PodSpec, PreferredSchedulingTerm, Toleration
from koord.kube.selectors import IN, NOT_IN, Requirement, SelectorError, requirement


class CompiledTerm(msgspec.Struct, frozen=True, gc=False):
    """A compiled node selector term: tests of labels and tests of the node's name; empty matches nothing."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str], name: str) -> bool:
        """Whether the node of that name with those labels passes every test."""
        if not self.labels and not self.fields:
            return False
        return all(test.matches(labels) for test in self.labels) and all(
            test.matches({"metadata.name": name}) for test in self.fields
        )


def compile_term(term: NodeSelectorTerm, path: str = "term") -> CompiledTerm:
    """The compiled form of one term; SelectorError names the field below ``path`` and the rule."""
    labels = tuple(
        requirement(f"{path}.matchExpressions[{index}]", item.key, item.operator, item.values)
        for index, item in enumerate(term.match_expressions)
    )
    fields = []
    for index, item in enumerate(term.match_fields):
        where = f"{path}.matchFields[{index}]"
        if item.key != "metadata.name":
            raise SelectorError(f'{where}.key: must be metadata.name, got "{item.key}"')
        if item.operator not in (IN, NOT_IN):
            raise SelectorError(f'{where}.operator: must be In or NotIn, got "{item.operator}"')
        if len(item.values) != 1:
            raise SelectorError(f"{where}.values: must have exactly one element, got {len(item.values)}")
        fields.append(Requirement(item.key, item.operator, frozenset(item.values)))
    return CompiledTerm(labels, tuple(fields))


def compile_node_selector(selector: NodeSelector, path: str = "nodeSelectorTerms") -> tuple[CompiledTerm, ...]:
    """The compiled terms, of which one must match; without any, no node matches."""
    return tuple(compile_term(term, f"{path}[{index}]") for index, term in enumerate(selector.node_selector_terms))


def matches_node_selector(selector: NodeSelector, labels: Mapping[str, str], name: str) -> bool:
    """Whether one term of ``selector`` matches the node. Compile it for repeated use."""
    return any(term.matches(labels, name) for term in compile_node_selector(selector))


def matches_node(spec: PodSpec, labels: Mapping[str, str], name: str) -> bool:
    """Whether a node passes a pod's nodeSelector and its required node affinity."""
    for key, value in spec.node_selector.items():
        if labels.get(key) != value:
            return False
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    if affinity is None or affinity.required is None:
        return True
    return matches_node_selector(affinity.required, labels, name)


def compile_preferred(
    terms: Sequence[PreferredSchedulingTerm], path: str = "preferred"
) -> tuple[tuple[int, CompiledTerm], ...]:
    """Weights and compiled preferences; terms that are empty or weigh 0 change no score and are left out."""
    compiled = []
    for index, term in enumerate(terms):
        preference = compile_term(term.preference, f"{path}[{index}].preference")
        if term.weight and (preference.labels or preference.fields):
            compiled.append((term.weight, preference))
    return tuple(compiled)


# Taints ---------------------------------------------------------------------------------------------------------------


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether one toleration accepts one taint. An unknown operator accepts nothing."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    return toleration.operator == "Exists"


def untolerated(
    taints: Iterable[Taint],
    tolerations: Sequence[Toleration],
    effects: tuple[str, ...] = (NO_SCHEDULE, NO_EXECUTE),
) -> Taint | None:
    """The first taint of one of the ``effects`` that no toleration accepts, or None."""
    for taint in taints:
        if taint.effect in effects and not any(tolerates(toleration, taint) for toleration in tolerations):
            return taint
    return None
