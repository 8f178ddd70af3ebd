"""Which pods: selectors of labels and namespaces, compiled; and the terms of inter-pod affinity made of them.

Spec 10 section 3.15. Pure; errors name the field below ``spec`` and the rule.
"""

from collections.abc import Mapping, Sequence

import msgspec

from koord.kube.pods import Affinity, PodAffinity, PodAffinityTerm
from koord.kube.selectors import (
    IN,
    NOT_IN,
    LabelSelector,
    Requirement,
    Selector,
    SelectorError,
    compile_label_selector,
)

Labels = Mapping[str, str]


class PodSelector(msgspec.Struct, frozen=True):
    """Which pods: those in ``namespaces``, or in a namespace whose labels ``namespace_selector`` matches, that
    ``selector`` matches. None matches nothing, an empty selector everything."""

    selector: Selector | None
    namespaces: frozenset[str]
    namespace_selector: Selector | None = None

    def matches(self, namespace: str, labels: Labels, namespace_labels: Labels) -> bool:
        """Whether a pod of that namespace with those labels is meant."""
        return self.matches_namespace(namespace, namespace_labels) and (
            self.selector is not None and self.selector.matches(labels)
        )

    def matches_namespace(self, namespace: str, namespace_labels: Labels) -> bool:
        """Whether pods of that namespace are meant at all."""
        if namespace in self.namespaces:
            return True
        return self.namespace_selector is not None and self.namespace_selector.matches(namespace_labels)

    def narrowest(self) -> tuple[str, frozenset[str]] | None:
        """A label that every match has, with the values it may have; None if the selector asks for none by value."""
        if self.selector is None:
            return None
        wanted = [test for test in self.selector.requirements if test.operator == IN]
        if not wanted:
            return None
        test = min(wanted, key=lambda each: len(each.values))
        return test.key, test.values


class Term(msgspec.Struct, frozen=True):
    """Pods near to, or far from: those of ``which`` on nodes with the same value of the label ``key``."""

    which: PodSelector
    key: str


class PodTerms(msgspec.Struct, frozen=True):
    """All terms of a pod. ``preferred`` are those of affinity, and with negative weight those of anti-affinity."""

    affinity: tuple[Term, ...] = ()
    anti: tuple[Term, ...] = ()
    preferred: tuple[tuple[int, Term], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.affinity or self.anti or self.preferred)


NO_TERMS = PodTerms()


def selects_pods(affinity: Affinity | None) -> bool:
    """Whether a pod with this affinity has terms about other pods."""
    return affinity is not None and (affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None)


def pod_terms(affinity: Affinity | None, namespace: str, labels: Labels) -> PodTerms:
    """The terms of a pod of that namespace with those labels; SelectorError names the field and the rule."""
    if affinity is None or not selects_pods(affinity):
        return NO_TERMS
    near, far = affinity.pod_affinity or PodAffinity(), affinity.pod_anti_affinity or PodAffinity()
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"

    def terms(items: Sequence[PodAffinityTerm], path: str, below: str = "") -> tuple[Term, ...]:
        return tuple(
            _term(item, namespace, labels, f"affinity.{path}[{index}]{below}") for index, item in enumerate(items)
        )

    liked = terms([item.pod_affinity_term for item in near.preferred], f"podAffinity.{preferred}", ".podAffinityTerm")
    disliked = terms(
        [item.pod_affinity_term for item in far.preferred], f"podAntiAffinity.{preferred}", ".podAffinityTerm"
    )
    return PodTerms(
        terms(near.required, f"podAffinity.{required}"),
        terms(far.required, f"podAntiAffinity.{required}"),
        tuple(
            [(item.weight, term) for item, term in zip(near.preferred, liked, strict=True)]
            + [(-item.weight, term) for item, term in zip(far.preferred, disliked, strict=True)]
        ),
    )


def selector_keys(selector: LabelSelector | None) -> list[str]:
    """The label keys that a selector names."""
    if selector is None:
        return []
    return [*selector.match_labels, *(test.key for test in selector.match_expressions)]


def affinity_keys(affinity: Affinity | None) -> list[str]:
    """The labels of pods that terms about other pods name."""
    if affinity is None:
        return []
    keys: list[str] = []
    for side in (affinity.pod_affinity, affinity.pod_anti_affinity):
        if side is not None:
            for term in [*side.required, *(weighted.pod_affinity_term for weighted in side.preferred)]:
                keys += selector_keys(term.label_selector)
                keys += term.match_label_keys
                keys += term.mismatch_label_keys
    return keys


def compiled(
    selector: LabelSelector | None,
    labels: Labels,
    path: str,
    same: Sequence[str] = (),
    other: Sequence[str] = (),
) -> Selector | None:
    """A label selector, for pods that also have the ``same`` labels as ``labels`` and ``other`` values of those keys.

    Keys that ``labels`` lacks are left out. The API server of newer releases has put them into the selector already;
    once more changes nothing. SelectorError names the field and the rule.
    """
    if selector is None:
        return None
    try:
        tests = list(compile_label_selector(selector).requirements)
    except SelectorError as error:
        raise SelectorError(f"{path}.labelSelector.{error}") from error
    tests += [Requirement(key, IN, frozenset((labels[key],))) for key in same if key in labels]
    tests += [Requirement(key, NOT_IN, frozenset((labels[key],))) for key in other if key in labels]
    return Selector(tuple(dict.fromkeys(tests)))


def _term(term: PodAffinityTerm, namespace: str, labels: Labels, path: str) -> Term:
    if not term.topology_key:
        raise SelectorError(f"{path}.topologyKey: must not be empty")
    selector = compiled(term.label_selector, labels, path, term.match_label_keys, term.mismatch_label_keys)
    namespaces = frozenset(term.namespaces)
    try:
        by_labels = None if term.namespace_selector is None else compile_label_selector(term.namespace_selector)
    except SelectorError as error:
        raise SelectorError(f"{path}.namespaceSelector.{error}") from error
    if not namespaces and by_labels is None:
        namespaces = frozenset((namespace,))
    return Term(PodSelector(selector, namespaces, by_labels), term.topology_key)
