"""What a pod may be, and what of it may change once it exists."""

from collections.abc import Iterator
from typing import Any

from koord.localcluster.api.builtin import NAMESPACES, NODES
from koord.localcluster.api.containerrules import validate_container, validate_volumes
from koord.localcluster.api.errors import Cause, duplicate, forbidden_value, invalid_value, not_supported, required
from koord.localcluster.api.validation import name_problem, qualified_name_problem, validate_amounts, validate_labels
from koord.localcluster.clusterapi import Object

_DNS = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_UNSATISFIABLE = ("DoNotSchedule", "ScheduleAnyway")
_NODE_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_MUTABLE = (
    "spec.containers[*].image, spec.initContainers[*].image, spec.activeDeadlineSeconds, "
    "spec.terminationGracePeriodSeconds (allow it to be set to 1 if it was previously negative), "
    "spec.tolerations (only additions to existing tolerations)"
)


def validate_pod_spec(spec: Object, path: str, claims: frozenset[str] = frozenset()) -> list[Cause]:
    """Containers, volumes, policies, placement; `path` is where the spec lies (`spec` or `spec.template.spec`).

    `claims` are volumes that pods get besides, by a StatefulSet's claim templates.
    """
    causes: list[Cause] = []
    volumes = claims
    if given := spec.get("volumes"):
        causes.extend(validate_volumes(given, f"{path}.volumes"))
        volumes = claims.union(volume.get("name", "") for volume in given)
    if not spec.get("containers"):
        causes.append(required(f"{path}.containers"))
    names: set[str] = set()
    for field in ("containers", "initContainers"):
        if given := spec.get(field):
            for i, container in enumerate(given):
                validate_container(container, f"{path}.{field}[{i}]", names, volumes, causes)
    policy = spec.get("restartPolicy", "Always")
    if policy not in ("Always", "OnFailure", "Never"):
        causes.append(not_supported(f"{path}.restartPolicy", policy, ("Always", "OnFailure", "Never")))
    dns = spec.get("dnsPolicy")
    if dns and dns not in _DNS:
        causes.append(not_supported(f"{path}.dnsPolicy", dns, _DNS))
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 0 < deadline < 2**31:
        why = "must be between 1 and 2147483647, inclusive"
        causes.append(invalid_value(f"{path}.activeDeadlineSeconds", deadline, why))
    if selector := spec.get("nodeSelector"):
        causes.extend(validate_labels(selector, f"{path}.nodeSelector"))
    if overhead := spec.get("overhead"):
        causes.extend(validate_amounts(overhead, f"{path}.overhead"))
    node = spec.get("nodeName")
    if node and (problem := name_problem(NODES, node)):
        causes.append(invalid_value(f"{path}.nodeName", node, problem))
    hostname = spec.get("hostname")
    if hostname and (problem := name_problem(NAMESPACES, hostname)):
        causes.append(invalid_value(f"{path}.hostname", hostname, problem))
    if gates := spec.get("schedulingGates"):
        causes.extend(_validate_gates(gates, f"{path}.schedulingGates"))
    if tolerations := spec.get("tolerations"):
        for i, toleration in enumerate(tolerations):
            _validate_toleration(toleration, f"{path}.tolerations[{i}]", causes)
    if constraints := spec.get("topologySpreadConstraints"):
        for i, constraint in enumerate(constraints):
            causes.extend(_validate_spread(constraint, f"{path}.topologySpreadConstraints[{i}]"))
    if affinity := spec.get("affinity"):
        causes.extend(_validate_affinity(affinity, f"{path}.affinity"))
    return causes


def _validate_gates(gates: list[Object], path: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for i, gate in enumerate(gates):
        name = gate.get("name")
        if not name:
            yield required(f"{path}[{i}].name")
            continue
        if problem := qualified_name_problem(name):
            yield invalid_value(f"{path}[{i}]", name, problem)
        if name in seen:
            yield duplicate(f"{path}[{i}]", name)
        seen.add(name)


def _validate_toleration(toleration: Object, path: str, causes: list[Cause]) -> None:
    operator, effect = toleration.get("operator") or "Equal", toleration.get("effect") or ""
    if operator not in ("Equal", "Exists", "Lt", "Gt"):
        causes.append(not_supported(f"{path}.operator", operator, ("Equal", "Exists")))
    if effect not in ("", "NoSchedule", "PreferNoSchedule", "NoExecute"):
        causes.append(not_supported(f"{path}.effect", effect, ("NoSchedule", "PreferNoSchedule", "NoExecute")))
    if not toleration.get("key") and operator != "Exists":
        why = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        causes.append(invalid_value(f"{path}.operator", operator, why))
    if operator == "Exists" and toleration.get("value"):
        causes.append(
            invalid_value(f"{path}.operator", toleration["value"], "value must be empty when `operator` is 'Exists'")
        )
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        why = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        causes.append(invalid_value(f"{path}.effect", effect, why))


def _validate_spread(constraint: Object, path: str) -> Iterator[Cause]:
    skew, action = constraint.get("maxSkew", 0), constraint.get("whenUnsatisfiable", "")
    if skew <= 0:
        yield invalid_value(f"{path}.maxSkew", skew, "must be greater than zero")
    if not constraint.get("topologyKey"):
        yield required(f"{path}.topologyKey", "can not be empty")
    if action not in _UNSATISFIABLE:
        yield not_supported(f"{path}.whenUnsatisfiable", action, _UNSATISFIABLE)


def _validate_affinity(affinity: Object, path: str) -> Iterator[Cause]:
    field = "requiredDuringSchedulingIgnoredDuringExecution"
    needed = (affinity.get("nodeAffinity") or {}).get(field)
    if needed is None:
        return
    path = f"{path}.nodeAffinity.{field}.nodeSelectorTerms"
    if not needed.get("nodeSelectorTerms"):
        yield required(path, "must have at least one node selector term")
    for i, term in enumerate(needed.get("nodeSelectorTerms") or ()):
        for j, expression in enumerate(term.get("matchExpressions") or ()):
            operator = expression.get("operator", "")
            if operator not in _NODE_OPERATORS:
                where = f"{path}[{i}].matchExpressions[{j}].operator"
                yield invalid_value(where, operator, "not a valid selector operator")


def validate_pod(pod: Object) -> list[Cause]:
    """The rules of a new pod."""
    spec = pod.get("spec")
    if not isinstance(spec, dict) or not spec:
        return [required("spec.containers")]
    return validate_pod_spec(spec, "spec")


def validate_template(obj: Object) -> list[Cause]:
    """The rules of a workload: its pod template's."""
    own = obj.get("spec", {})
    template = own.get("template")
    spec = template.get("spec") if isinstance(template, dict) else None
    if not isinstance(spec, dict):
        return [required("spec.template.spec.containers")]
    return validate_pod_spec(spec, "spec.template.spec", claim_names(own))


def claim_names(spec: Object) -> frozenset[str]:
    """The volumes that a StatefulSet's pods get by its claim templates."""
    claims = spec.get("volumeClaimTemplates") or ()
    return frozenset((claim.get("metadata") or {}).get("name", "") for claim in claims)


def validate_pod_change(new: Object, old: Object) -> list[Cause]:
    """The rules of a plain write to an existing pod: few parts of the spec may change, the node never."""
    new_spec, old_spec = new.get("spec") or {}, old["spec"]
    if new_spec is old_spec or new_spec == old_spec:
        return []
    causes: list[Cause] = []
    gated = bool(old_spec.get("schedulingGates"))
    for field in sorted(new_spec.keys() | old_spec.keys()):
        have, want = old_spec.get(field), new_spec.get(field)
        if have == want or field == "activeDeadlineSeconds":
            continue
        if field == "tolerations" and _only_added(want, have):
            continue
        if field in ("containers", "initContainers") and _only_images(want, have):
            continue
        if field == "schedulingGates" and _only_removed(want, have):
            continue
        if field in ("nodeSelector", "affinity") and gated:
            continue
        if field == "terminationGracePeriodSeconds" and isinstance(have, int) and have < 0 and want == 1:
            continue
        causes.append(
            forbidden_value(
                f"spec.{field}", f"pod updates may not change fields other than {_MUTABLE}; spec.{field} was changed"
            )
        )
    if not causes:
        causes.extend(validate_pod_spec(new_spec, "spec"))
    return causes


def _only_added(want: Any, have: Any) -> bool:
    """Whether every toleration is still there; for how long it holds may change."""
    if not isinstance(want, list):
        return False
    kept = [_lasting(item) for item in want]
    return all(_lasting(item) in kept for item in have or ())


def _lasting(toleration: Object) -> Object:
    return {name: value for name, value in toleration.items() if name != "tolerationSeconds"}


def _only_removed(want: Any, have: Any) -> bool:
    return all(item in (have or ()) for item in want or ())


def _only_images(want: Any, have: Any) -> bool:
    if not isinstance(want, list) or not isinstance(have, list) or len(want) != len(have):
        return False
    return all(
        isinstance(a, dict) and {**a, "image": ""} == {**b, "image": ""} for a, b in zip(want, have, strict=True)
    )
