"""The columns of configuration, access, network, storage and definitions in `kubectl get`."""

from typing import Any

from koord.localcluster.api.cells import SELECTOR, at, count, field, join, pairs
from koord.localcluster.api.resources import Column
from koord.localcluster.api.tables import AGE
from koord.localcluster.clusterapi import Object

_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}
_CREATED = Column("Created At", "date", lambda obj: obj["metadata"].get("creationTimestamp"))


def _ports(service: Object) -> str:
    shown = []
    for port in at(service, "spec", "ports") or ():
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        shown.append(f"{port.get('port')}{node}/{port.get('protocol', 'TCP')}")
    return join(shown, empty="<none>")


def _external(service: Object) -> str:
    kind = at(service, "spec", "type")
    addresses = list(at(service, "spec", "externalIPs") or ())
    if kind == "ExternalName":
        return str(at(service, "spec", "externalName"))
    if kind == "LoadBalancer":
        found = [
            item.get("ip") or item.get("hostname") for item in at(service, "status", "loadBalancer", "ingress") or ()
        ]
        return join(found + addresses, empty="<pending>")
    return join(addresses, empty="<none>")


def _modes(*path: str) -> Any:
    return lambda obj: join(_MODES.get(mode, mode) for mode in at(obj, *path) or ())


def _claim_amount(claim: Object) -> Any:
    return (at(claim, "status", "capacity", "storage") or "") if at(claim, "spec", "volumeName") else ""


def _device_claim_state(claim: Object) -> str:
    deleted = claim["metadata"].get("deletionTimestamp") is not None
    states = ["deleted"] if deleted else []
    if at(claim, "status", "allocation") is None:
        states += [] if deleted else ["pending"]
    else:
        states += ["allocated", "reserved"] if at(claim, "status", "reservedFor") else ["allocated"]
    return ",".join(states)


def _volume_claim(volume: Object) -> str:
    claim = at(volume, "spec", "claimRef")
    return f"{claim.get('namespace')}/{claim.get('name')}" if claim else ""


def _endpoints(endpoints: Object) -> str:
    found = []
    for subset in endpoints.get("subsets") or ():
        ports = subset.get("ports") or ()
        for address in subset.get("addresses") or ():
            found += [f"{address.get('ip')}:{port.get('port')}" for port in ports] or [str(address.get("ip"))]
    return join(found, empty="<none>", most=3)


def _slice_ports(endpoint_slice: Object) -> str:
    ports = [port.get("port", "*") for port in endpoint_slice.get("ports") or ()]
    return join(ports, empty="<unset>", most=3)


def _slice_endpoints(endpoint_slice: Object) -> str:
    found = [
        address for endpoint in endpoint_slice.get("endpoints") or () for address in endpoint.get("addresses") or ()
    ]
    return join(found, empty="<unset>", most=3)


def _quota(*, limits: bool) -> Any:
    def show(quota: Object) -> str:
        hard, used = at(quota, "status", "hard") or {}, at(quota, "status", "used") or {}
        names = [name for name in sorted(hard) if name.startswith("limits.") is limits]
        return ", ".join(f"{name}: {used.get(name, '0')}/{hard[name]}" for name in names)

    return show


def _subjects(*kinds: str) -> Any:
    def show(binding: Object) -> str:
        found = [subject for subject in binding.get("subjects") or () if subject.get("kind") in kinds]
        names = (
            f"{subject.get('namespace', '')}/{subject.get('name')}"
            if "ServiceAccount" in kinds
            else subject.get("name")
            for subject in found
        )
        return ", ".join(str(name) for name in names)

    return show


def _role(binding: Object) -> str:
    return f"{at(binding, 'roleRef', 'kind')}/{at(binding, 'roleRef', 'name')}"


_BINDING = (
    Column("Role", "string", _role),
    AGE,
    Column("Users", "string", _subjects("User"), priority=1),
    Column("Groups", "string", _subjects("Group"), priority=1),
    Column("ServiceAccounts", "string", _subjects("ServiceAccount"), priority=1),
)


def _pod_selector(policy: Object) -> str:
    return pairs(at(policy, "spec", "podSelector", "matchLabels"))


def _versions(crd: Object) -> str:
    return join(
        f"{version.get('name')}(storage)" if version.get("storage") else version.get("name")
        for version in at(crd, "spec", "versions") or ()
    )


def _established(crd: Object) -> bool:
    conditions = at(crd, "status", "conditions") or ()
    return any(item.get("type") == "Established" and item.get("status") == "True" for item in conditions)


OTHER_COLUMNS: dict[str, tuple[Column, ...]] = {
    "namespaces": (field("Status", "status", "phase"), AGE),
    "configmaps": (
        Column("Data", "string", lambda obj: len(obj.get("data") or ()) + len(obj.get("binaryData") or ())),
        AGE,
    ),
    "secrets": (field("Type", "type"), count("Data", "data", kind="string"), AGE),
    "limitranges": (_CREATED,),
    "resourcequotas": (
        Column("Request", "string", _quota(limits=False)),
        Column("Limit", "string", _quota(limits=True)),
        AGE,
    ),
    "services": (
        field("Type", "spec", "type"),
        field("Cluster-IP", "spec", "clusterIP", empty="<none>"),
        Column("External-IP", "string", _external),
        Column("Port(s)", "string", _ports),
        AGE,
        SELECTOR,
    ),
    "endpoints": (Column("Endpoints", "string", _endpoints), AGE),
    "endpointslices.discovery.k8s.io": (
        field("AddressType", "addressType"),
        Column("Ports", "string", _slice_ports),
        Column("Endpoints", "string", _slice_endpoints),
        AGE,
    ),
    "networkpolicies.networking.k8s.io": (Column("Pod-Selector", "string", _pod_selector), AGE),
    "persistentvolumeclaims": (
        field("Status", "status", "phase"),
        field("Volume", "spec", "volumeName"),
        Column("Capacity", "string", _claim_amount),
        Column("Access Modes", "string", _modes("status", "accessModes")),
        field("StorageClass", "spec", "storageClassName"),
        field("VolumeAttributesClass", "spec", "volumeAttributesClassName", empty="<unset>"),
        AGE,
        field("VolumeMode", "spec", "volumeMode", priority=1, empty="<unset>"),
    ),
    "persistentvolumes": (
        field("Capacity", "spec", "capacity", "storage"),
        Column("Access Modes", "string", _modes("spec", "accessModes")),
        field("Reclaim Policy", "spec", "persistentVolumeReclaimPolicy"),
        field("Status", "status", "phase"),
        Column("Claim", "string", _volume_claim),
        field("StorageClass", "spec", "storageClassName"),
        field("VolumeAttributesClass", "spec", "volumeAttributesClassName", empty="<unset>"),
        field("Reason", "status", "reason"),
        AGE,
        field("VolumeMode", "spec", "volumeMode", priority=1, empty="<unset>"),
    ),
    "resourceclaims.resource.k8s.io": (Column("State", "string", _device_claim_state), AGE),
    "resourceslices.resource.k8s.io": (
        field("Node", "spec", "nodeName"),
        field("Driver", "spec", "driver"),
        field("Pool", "spec", "pool", "name"),
        AGE,
    ),
    "storageclasses.storage.k8s.io": (
        field("Provisioner", "provisioner"),
        field("ReclaimPolicy", "reclaimPolicy", empty="Delete"),
        field("VolumeBindingMode", "volumeBindingMode", empty="Immediate"),
        field("AllowVolumeExpansion", "allowVolumeExpansion", empty=False),
        AGE,
    ),
    "csinodes.storage.k8s.io": (count("Drivers", "spec", "drivers"), AGE),
    "csistoragecapacities.storage.k8s.io": (_CREATED,),
    "volumeattachments.storage.k8s.io": (
        field("Attacher", "spec", "attacher"),
        field("PV", "spec", "source", "persistentVolumeName"),
        field("Node", "spec", "nodeName"),
        field("Attached", "status", "attached", kind="boolean", empty=False),
        AGE,
    ),
    "leases.coordination.k8s.io": (field("Holder", "spec", "holderIdentity"), AGE),
    "priorityclasses.scheduling.k8s.io": (
        field("Value", "value", kind="integer"),
        field("Global-Default", "globalDefault", kind="boolean", empty=False),
        AGE,
        field("PreemptionPolicy", "preemptionPolicy"),
    ),
    "poddisruptionbudgets.policy": (
        field("Min Available", "spec", "minAvailable", empty="N/A"),
        field("Max Unavailable", "spec", "maxUnavailable", empty="N/A"),
        field("Allowed Disruptions", "status", "disruptionsAllowed", kind="integer", empty=0),
        AGE,
    ),
    "roles.rbac.authorization.k8s.io": (_CREATED,),
    "clusterroles.rbac.authorization.k8s.io": (_CREATED,),
    "rolebindings.rbac.authorization.k8s.io": _BINDING,
    "clusterrolebindings.rbac.authorization.k8s.io": _BINDING,
    "customresourcedefinitions.apiextensions.k8s.io": (
        field("Scope", "spec", "scope"),
        Column("Versions", "string", _versions),
        _CREATED,
        field("Group", "spec", "group", priority=1),
        field("Kind", "spec", "names", "kind", priority=1),
        Column("ShortNames", "string", lambda crd: join(at(crd, "spec", "names", "shortNames")), priority=1),
        Column("Established", "boolean", _established, priority=1),
    ),
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": (count("Webhooks", "webhooks"), AGE),
    "validatingwebhookconfigurations.admissionregistration.k8s.io": (count("Webhooks", "webhooks"), AGE),
}
"""By resource key."""
