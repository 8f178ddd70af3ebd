"""The rules of roles and their bindings; they are only stored, but a mistake is told as a real server tells it."""

from koord.localcluster.api.errors import Cause, forbidden_value, invalid_value, not_supported, required
from koord.localcluster.api.validation import Validator
from koord.localcluster.clusterapi import Object

_KINDS = ("ServiceAccount", "User", "Group")
_GROUP = "rbac.authorization.k8s.io"


def validate_role(*, namespaced: bool) -> Validator:
    """Every rule has verbs, and resources with their groups or, in a cluster's role, paths."""

    def validate(role: Object) -> list[Cause]:
        causes: list[Cause] = []
        for i, rule in enumerate(role.get("rules") or ()):
            path = f"rules[{i}]"
            if not rule.get("verbs"):
                causes.append(required(f"{path}.verbs", "verbs must contain at least one value"))
            paths, groups, resources = rule.get("nonResourceURLs"), rule.get("apiGroups"), rule.get("resources")
            if paths:
                if namespaced:
                    why = "namespaced rules cannot apply to non-resource URLs"
                    causes.append(
                        Cause("FieldValueInvalid", f"{path}.nonResourceURLs", f"Invalid value: {paths}: {why}")
                    )
                if groups or resources or rule.get("resourceNames"):
                    why = "rules cannot apply to both regular resources and non-resource URLs"
                    causes.append(
                        Cause("FieldValueInvalid", f"{path}.nonResourceURLs", f"Invalid value: {paths}: {why}")
                    )
                continue
            if not groups:
                causes.append(required(f"{path}.apiGroups", "resource rules must supply at least one api group"))
            if not resources:
                causes.append(required(f"{path}.resources", "resource rules must supply at least one resource"))
        return causes

    return validate


def validate_role_binding(*, namespaced: bool) -> Validator:
    """A role of the one group, and subjects that are of a known kind and named."""
    known = ("Role", "ClusterRole") if namespaced else ("ClusterRole",)

    def validate(binding: Object) -> list[Cause]:
        role: Object = binding.get("roleRef") or {}
        causes: list[Cause] = []
        if (group := role.get("apiGroup") or _GROUP) != _GROUP:
            causes.append(not_supported("roleRef.apiGroup", group, (_GROUP,)))
        if (kind := role.get("kind") or "") not in known:
            causes.append(not_supported("roleRef.kind", kind, known))
        if not role.get("name"):
            causes.append(required("roleRef.name"))
        for i, subject in enumerate(binding.get("subjects") or ()):
            path = f"subjects[{i}]"
            if (kind := subject.get("kind") or "") not in _KINDS:
                causes.append(not_supported(f"{path}.kind", kind, _KINDS))
            if not subject.get("name"):
                causes.append(required(f"{path}.name"))
            if kind == "ServiceAccount" and not namespaced and not subject.get("namespace"):
                causes.append(required(f"{path}.namespace"))
        return causes

    return validate


def role_binding_change(new: Object, old: Object, *, namespaced: bool) -> list[Cause]:
    """As on create; and the role stays the one that it was."""
    causes = validate_role_binding(namespaced=namespaced)(new)
    if new.get("roleRef") != old.get("roleRef"):
        causes.append(invalid_value("roleRef", new.get("roleRef"), "cannot change roleRef"))
    return causes


def validate_network_policy(policy: Object) -> list[Cause]:
    """Policy types."""
    types = (policy.get("spec") or {}).get("policyTypes") or ()
    if len(types) > 2:
        return [forbidden_value("spec.policyTypes", "may not specify more than two policyTypes")]
    known = ("Ingress", "Egress")
    return [not_supported(f"spec.policyTypes[{i}]", kind, known) for i, kind in enumerate(types) if kind not in known]
