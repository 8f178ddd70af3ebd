"""Which checks belong to which resource."""

from functools import partial

from koord.localcluster.api.accessrules import (
    role_binding_change,
    validate_network_policy,
    validate_role,
    validate_role_binding,
)
from koord.localcluster.api.admission import definitions as webhooks
from koord.localcluster.api.admission.policydefinitions import validate_binding, validate_policy
from koord.localcluster.api.admission.rules import validate_mutating, validate_validating
from koord.localcluster.api.budgetrules import validate_budget
from koord.localcluster.api.crdrules import validate_crd
from koord.localcluster.api.devicerules import (
    device_claim_change,
    device_slice_change,
    validate_device_claim,
    validate_device_class,
    validate_device_slice,
)
from koord.localcluster.api.errors import Cause, forbidden_value, invalid_value, required
from koord.localcluster.api.kindrules import (
    validate_claim,
    validate_config_map,
    validate_lease,
    validate_quota,
    validate_secret,
)
from koord.localcluster.api.podrules import validate_pod, validate_pod_change, validate_pod_spec, validate_template
from koord.localcluster.api.schemas.validating import show
from koord.localcluster.api.servicerules import validate_service, validate_service_change
from koord.localcluster.api.validation import ChangeValidator, Validator, validate_node
from koord.localcluster.api.workloadrules import (
    validate_cronjob,
    validate_deployment,
    validate_job,
    validate_replicas,
)
from koord.localcluster.clusterapi import Object

_RBAC = "rbac.authorization.k8s.io"
_SYSTEM_PRIORITY = 1_000_000_000


def _validate_priority_class(priority: Object) -> list[Cause]:
    name, value = priority["metadata"].get("name", ""), priority.get("value", 0)
    if value > _SYSTEM_PRIORITY and not name.startswith("system-"):
        return [forbidden_value("value", f"maximum allowed value of a user defined priority is {_SYSTEM_PRIORITY}")]
    return []


def _priority_class_change(new: Object, old: Object) -> list[Cause]:
    if new.get("value") != old.get("value"):
        return [forbidden_value("value", "may not be changed in an update.")]
    return []


def _validate_event(event: Object) -> list[Cause]:
    involved = event.get("involvedObject")
    if not isinstance(involved, dict):
        return [required("involvedObject")]
    given, namespace = involved.get("namespace") or "", event["metadata"].get("namespace")
    if given and given != namespace:
        return [invalid_value("involvedObject.namespace", given, "does not match event.namespace")]
    if not given and namespace not in ("default", "kube-system"):
        return [invalid_value("involvedObject.namespace", given, "does not match event.namespace")]
    return []


def _job_change(new: Object, old: Object) -> list[Cause]:
    new_spec, old_spec = new.get("spec", {}), old.get("spec", {})
    causes = [
        invalid_value(f"spec.{field}", new_spec.get(field), "field is immutable")
        for field in ("completions", "selector", "completionMode")
        if new_spec.get(field) != old_spec.get(field)
    ]
    # Scheduling directives of a suspended job that never started may change; of any other job nothing in the template.
    if new_spec.get("template") != old_spec.get("template") and not (
        old_spec.get("suspend") and not (old.get("status") or {}).get("startTime")
    ):
        causes.append(invalid_value("spec.template", "object", "field is immutable"))
    return causes or validate_template(new)


def _workload_change(validate: Validator) -> ChangeValidator:
    """As on create; and the selector stays: pods that it no longer selects would be left behind."""

    def changed(new: Object, old: Object) -> list[Cause]:
        spec, before = new.get("spec") or {}, old.get("spec") or {}
        if spec == before:
            return []
        causes = validate(new)
        if spec.get("selector") != before.get("selector"):
            shown = show(spec.get("selector"))
            causes.append(Cause("FieldValueInvalid", "spec.selector", f"Invalid value: {shown}: field is immutable"))
        return causes

    return changed


_SET_FIELDS = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)


def _stateful_set_change(new: Object, old: Object) -> list[Cause]:
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    if spec == before:
        return []
    causes = validate_replicas("statefulset")(new)
    for field in sorted(spec.keys() | before.keys()):
        if field not in _SET_FIELDS and spec.get(field) != before.get(field):
            words = f"Invalid value: {show(spec.get(field))}: field is immutable"
            causes.append(Cause("FieldValueInvalid", f"spec.{field}", words))
    return causes


def _secret_change(new: Object, old: Object) -> list[Cause]:
    causes = validate_secret(new)
    if new.get("type") != old.get("type"):
        causes.append(invalid_value("type", new.get("type"), "field is immutable"))
    return causes


def _validate_pod_template(obj: Object) -> list[Cause]:
    template = obj.get("template")
    spec = template.get("spec") if isinstance(template, dict) else None
    return validate_pod_spec(spec if isinstance(spec, dict) else {}, "template.spec")


def _node_change(new: Object, old: Object) -> list[Cause]:
    return validate_node(new)


VALIDATORS: dict[str, Validator] = {
    "pods": validate_pod,
    "podtemplates": _validate_pod_template,
    "nodes": validate_node,
    "events": _validate_event,
    "services": validate_service,
    "configmaps": validate_config_map,
    "secrets": validate_secret,
    "resourcequotas": validate_quota,
    "persistentvolumeclaims": validate_claim,
    "leases.coordination.k8s.io": validate_lease,
    "cronjobs.batch": validate_cronjob,
    "jobs.batch": validate_job,
    "deployments.apps": validate_deployment,
    "replicasets.apps": validate_replicas("replicaset"),
    "statefulsets.apps": validate_replicas("statefulset"),
    "daemonsets.apps": validate_replicas("daemonset"),
    f"roles.{_RBAC}": validate_role(namespaced=True),
    f"clusterroles.{_RBAC}": validate_role(namespaced=False),
    f"rolebindings.{_RBAC}": validate_role_binding(namespaced=True),
    f"clusterrolebindings.{_RBAC}": validate_role_binding(namespaced=False),
    "networkpolicies.networking.k8s.io": validate_network_policy,
    "poddisruptionbudgets.policy": validate_budget,
    "priorityclasses.scheduling.k8s.io": _validate_priority_class,
    "deviceclasses.resource.k8s.io": validate_device_class,
    "resourceclaims.resource.k8s.io": validate_device_claim,
    "resourceclaimtemplates.resource.k8s.io": validate_device_claim,
    "resourceslices.resource.k8s.io": validate_device_slice,
    "customresourcedefinitions.apiextensions.k8s.io": validate_crd,
    webhooks.MUTATING: validate_mutating,
    webhooks.VALIDATING: validate_validating,
    webhooks.POLICIES: validate_policy,
    webhooks.BINDINGS: validate_binding,
}
CHANGE_VALIDATORS: dict[str, ChangeValidator] = {
    "pods": validate_pod_change,
    "podtemplates": lambda new, old: _validate_pod_template(new),
    "nodes": _node_change,
    "services": validate_service_change,
    "configmaps": lambda new, old: validate_config_map(new),
    "secrets": _secret_change,
    "events": lambda new, old: _validate_event(new),
    "leases.coordination.k8s.io": lambda new, old: validate_lease(new),
    "resourcequotas": lambda new, old: validate_quota(new),
    "jobs.batch": _job_change,
    "cronjobs.batch": lambda new, old: [] if new.get("spec") == old.get("spec") else validate_cronjob(new),
    "deployments.apps": _workload_change(validate_deployment),
    "replicasets.apps": _workload_change(validate_replicas("replicaset")),
    "statefulsets.apps": _stateful_set_change,
    "daemonsets.apps": _workload_change(validate_replicas("daemonset")),
    f"roles.{_RBAC}": lambda new, old: validate_role(namespaced=True)(new),
    f"clusterroles.{_RBAC}": lambda new, old: validate_role(namespaced=False)(new),
    f"rolebindings.{_RBAC}": partial(role_binding_change, namespaced=True),
    f"clusterrolebindings.{_RBAC}": partial(role_binding_change, namespaced=False),
    "networkpolicies.networking.k8s.io": lambda new, old: validate_network_policy(new),
    "poddisruptionbudgets.policy": lambda new, old: validate_budget(new),
    "priorityclasses.scheduling.k8s.io": _priority_class_change,
    "deviceclasses.resource.k8s.io": lambda new, old: validate_device_class(new),
    "resourceclaims.resource.k8s.io": device_claim_change,
    "resourceclaimtemplates.resource.k8s.io": device_claim_change,
    "resourceslices.resource.k8s.io": device_slice_change,
    "customresourcedefinitions.apiextensions.k8s.io": lambda new, old: validate_crd(new),
    webhooks.MUTATING: lambda new, old: validate_mutating(new),
    webhooks.VALIDATING: lambda new, old: validate_validating(new),
    webhooks.POLICIES: lambda new, old: validate_policy(new),
    webhooks.BINDINGS: lambda new, old: validate_binding(new),
}
