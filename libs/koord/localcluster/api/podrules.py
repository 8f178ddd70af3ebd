"""What a pod may be, and what of it may change once it exists."""

from typing import Any

from koord.localcluster.api.builtin import NAMESPACES, NODES
from koord.localcluster.api.errors import Cause, duplicate, forbidden_value, invalid_value, not_supported, required
from koord.localcluster.api.validation import name_problem, validate_amounts, validate_labels
from koord.localcluster.clusterapi import Object

_MUTABLE = (
    "spec.containers[*].image, spec.initContainers[*].image, spec.activeDeadlineSeconds, "
    "spec.terminationGracePeriodSeconds (allow it to be set to 1 if it was previously negative), "
    "spec.tolerations (only additions to existing tolerations)"
)


def validate_pod_spec(spec: Object, path: str) -> list[Cause]:
    """Containers, restart policy, amounts; `path` is where the spec lies (`spec` or `spec.template.spec`)."""
    causes: list[Cause] = []
    containers = spec.get("containers")
    if not containers:
        causes.append(required(f"{path}.containers"))
    names: set[str] = set()
    for field in ("initContainers", "containers"):
        for i, container in enumerate(spec.get(field) or ()):
            _validate_container(container, f"{path}.{field}[{i}]", names, causes)
    policy = spec.get("restartPolicy", "Always")
    if policy not in ("Always", "OnFailure", "Never"):
        causes.append(not_supported(f"{path}.restartPolicy", policy, ("Always", "OnFailure", "Never")))
    if selector := spec.get("nodeSelector"):
        causes.extend(validate_labels(selector, f"{path}.nodeSelector"))
    if overhead := spec.get("overhead"):
        causes.extend(validate_amounts(overhead, f"{path}.overhead"))
    node = spec.get("nodeName")
    if node and name_problem(NODES, node):
        causes.append(invalid_value(f"{path}.nodeName", node, str(name_problem(NODES, node))))
    for i, gate in enumerate(spec.get("schedulingGates") or ()):
        if not gate.get("name"):
            causes.append(required(f"{path}.schedulingGates[{i}].name"))
    for i, toleration in enumerate(spec.get("tolerations") or ()):
        _validate_toleration(toleration, f"{path}.tolerations[{i}]", causes)
    return causes


def _validate_container(container: Object, path: str, names: set[str], causes: list[Cause]) -> None:
    name = container.get("name")
    if not name:
        causes.append(required(f"{path}.name"))
    else:
        # Container names follow the same rule as namespaces: one DNS label.
        if problem := name_problem(NAMESPACES, name):
            causes.append(invalid_value(f"{path}.name", name, problem))
        if name in names:
            causes.append(duplicate(f"{path}.name", name))
        names.add(name)
    if not container.get("image"):
        causes.append(required(f"{path}.image"))
    resources = container.get("resources")
    if resources:
        for section in ("requests", "limits"):
            if amounts := resources.get(section):
                causes.extend(validate_amounts(amounts, f"{path}.resources.{section}"))
    for i, port in enumerate(container.get("ports") or ()):
        number = port.get("containerPort")
        if number is None:
            causes.append(required(f"{path}.ports[{i}].containerPort"))
        elif not 0 < number < 65536:
            causes.append(
                invalid_value(f"{path}.ports[{i}].containerPort", number, "must be between 1 and 65535, inclusive")
            )


def _validate_toleration(toleration: Object, path: str, causes: list[Cause]) -> None:
    operator, effect = toleration.get("operator") or "Equal", toleration.get("effect") or ""
    if operator not in ("Equal", "Exists", "Lt", "Gt"):
        causes.append(not_supported(f"{path}.operator", operator, ("Equal", "Exists")))
    if effect not in ("", "NoSchedule", "PreferNoSchedule", "NoExecute"):
        causes.append(not_supported(f"{path}.effect", effect, ("NoSchedule", "PreferNoSchedule", "NoExecute")))
    if not toleration.get("key") and operator != "Exists":
        causes.append(invalid_value(f"{path}.operator", operator, "operator must be Exists when `key` is empty"))
    if operator == "Exists" and toleration.get("value"):
        causes.append(
            invalid_value(f"{path}.operator", toleration["value"], "value must be empty when `operator` is 'Exists'")
        )


def validate_pod(pod: Object) -> list[Cause]:
    """The rules of a new pod."""
    spec = pod.get("spec")
    if not isinstance(spec, dict) or not spec:
        return [required("spec.containers")]
    return validate_pod_spec(spec, "spec")


def validate_template(obj: Object) -> list[Cause]:
    """The rules of a workload: its pod template's."""
    template = obj.get("spec", {}).get("template")
    spec = template.get("spec") if isinstance(template, dict) else None
    if not isinstance(spec, dict):
        return [required("spec.template.spec.containers")]
    return validate_pod_spec(spec, "spec.template.spec")


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
    return isinstance(want, list) and all(item in want for item in have or ())


def _only_removed(want: Any, have: Any) -> bool:
    return all(item in (have or ()) for item in want or ())


def _only_images(want: Any, have: Any) -> bool:
    if not isinstance(want, list) or not isinstance(have, list) or len(want) != len(have):
        return False
    return all(
        isinstance(a, dict) and {**a, "image": ""} == {**b, "image": ""} for a, b in zip(want, have, strict=True)
    )
