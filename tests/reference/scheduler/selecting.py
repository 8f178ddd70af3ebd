"""Node selectors, tolerations, label selectors, as spec 10 section 3.15 (and Kubernetes' API) words them."""

from collections.abc import Mapping
from typing import Any

from tests.reference.scheduler.objects import Node


def tolerates(toleration: Mapping[str, Any], taint: Mapping[str, str]) -> bool:
    """Whether the toleration accepts the taint."""
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(toleration.get("key")) and toleration.get("value", "") == taint.get("value", "")


def untolerated(spec: Mapping[str, Any], node: Node, effects: tuple[str, ...]) -> int:
    """How many taints of these effects nothing accepts."""
    return sum(
        taint["effect"] in effects and not any(tolerates(one, taint) for one in spec.get("tolerations", []))
        for taint in node.taints
    )


def requirement_holds(requirement: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """One expression of a selector."""
    key, operator, values = requirement["key"], requirement["operator"], requirement.get("values", [])
    if operator == "Exists":
        return key in labels
    if operator == "DoesNotExist":
        return key not in labels
    if operator == "In":
        return key in labels and labels[key] in values
    if operator == "NotIn":
        return key not in labels or labels[key] not in values
    if key not in labels:
        return False
    try:
        have, bound = int(labels[key]), int(values[0])
    except ValueError:
        return False
    return have > bound if operator == "Gt" else have < bound


def readable(requirement: Mapping[str, Any], *, field: bool) -> bool:
    """Whether an expression, or a test of a field, means anything."""
    operator, values = requirement["operator"], requirement.get("values", [])
    if field:
        return requirement["key"] == "metadata.name" and operator in ("In", "NotIn") and len(values) == 1
    if operator in ("In", "NotIn"):
        return bool(values)
    if operator in ("Exists", "DoesNotExist"):
        return not values
    return operator in ("Gt", "Lt") and len(values) == 1 and values[0].lstrip("+-").isdigit()


def term_holds(term: Mapping[str, Any], node: Node) -> bool:
    """All expressions and fields of a node selector term; one without any, or with one that cannot be read, matches
    nothing."""
    expressions, fields = term.get("matchExpressions", []), term.get("matchFields", [])
    if not expressions and not fields:
        return False
    if not all(readable(one, field=False) for one in expressions) or not all(
        readable(one, field=True) for one in fields
    ):
        return False
    return all(requirement_holds(one, node.labels) for one in expressions) and all(
        requirement_holds(one, {"metadata.name": node.name}) for one in fields
    )


def node_affinity(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """The node affinity of a pod, empty if none."""
    found: Mapping[str, Any] = spec.get("affinity", {}).get("nodeAffinity", {})
    return found


def required_terms(spec: Mapping[str, Any]) -> list[Mapping[str, Any]] | None:
    """Terms of which one must hold; None: no such rule."""
    required = node_affinity(spec).get("requiredDuringSchedulingIgnoredDuringExecution")
    return None if required is None else list(required["nodeSelectorTerms"])


def labels_match(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """A label selector; none matches nothing, an empty one everything."""
    if selector is None:
        return False
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items()) and all(
        requirement_holds(one, labels) for one in selector.get("matchExpressions", [])
    )
