"""The defaults of pods and pod templates, as the real server fills them in. Cheap, and idempotent."""

from typing import Any

from koord.localcluster.api.validation import canonical_amounts
from koord.localcluster.clusterapi import Object

_NOT_READY = {
    "key": "node.kubernetes.io/not-ready",
    "operator": "Exists",
    "effect": "NoExecute",
    "tolerationSeconds": 300,
}
_UNREACHABLE = {
    "key": "node.kubernetes.io/unreachable",
    "operator": "Exists",
    "effect": "NoExecute",
    "tolerationSeconds": 300,
}
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_POD_RESOURCES = ("cpu", "memory")
_ZERO = ("0", 0)


def default_pod_spec(spec: Object) -> None:
    """Defaults shared by pods and pod templates."""
    default = spec.setdefault
    default("restartPolicy", "Always")
    default("terminationGracePeriodSeconds", 30)
    default("dnsPolicy", "ClusterFirst")
    default("securityContext", {})
    default("schedulerName", "default-scheduler")
    if "serviceAccountName" in spec:
        default("serviceAccount", spec["serviceAccountName"])
    elif "serviceAccount" in spec:
        spec["serviceAccountName"] = spec["serviceAccount"]
    for container in spec.get("containers", ()):
        _default_container(container)
    for container in spec.get("initContainers", ()):
        _default_container(container)
    if volumes := spec.get("volumes"):
        for volume in volumes:
            _default_volume(volume)
    if overhead := spec.get("overhead"):
        canonical_amounts(overhead)
    if resources := spec.get("resources"):
        for section in resources.values():
            if isinstance(section, dict):
                canonical_amounts(section)


def _default_container(container: Object) -> None:
    default = container.setdefault
    default("terminationMessagePath", "/dev/termination-log")
    default("terminationMessagePolicy", "File")
    if "imagePullPolicy" not in container:
        image = container.get("image", "")
        tag = image.rpartition("/")[2].partition(":")[2]
        latest = not tag or tag == "latest"
        container["imagePullPolicy"] = "Always" if latest and "@" not in image else "IfNotPresent"
    for port in container.get("ports", ()):
        port.setdefault("protocol", "TCP")
    resources = container.get("resources")
    if not resources:
        container["resources"] = resources or {}
    else:
        for name in ("limits", "requests"):
            if section := resources.get(name):
                canonical_amounts(section)
    for variable in container.get("env", ()):
        if source := variable.get("valueFrom"):
            _default_source(source)
    for name in _PROBES:
        if probe := container.get(name):
            _default_probe(probe)
    if lifecycle := container.get("lifecycle"):
        for hook in lifecycle.values():
            if isinstance(hook, dict) and "httpGet" in hook:
                _default_http(hook["httpGet"])


def _default_http(action: Object) -> None:
    action.setdefault("path", "/")
    action.setdefault("scheme", "HTTP")


def _default_probe(probe: Object) -> None:
    default = probe.setdefault
    default("timeoutSeconds", 1)
    default("periodSeconds", 10)
    default("successThreshold", 1)
    default("failureThreshold", 3)
    if "httpGet" in probe:
        _default_http(probe["httpGet"])
    if "grpc" in probe:
        probe["grpc"].setdefault("service", "")


def _default_source(source: Object) -> None:
    if field := source.get("fieldRef"):
        field.setdefault("apiVersion", "v1")
    if resource := source.get("resourceFieldRef"):
        resource.setdefault("divisor", "0")


def _default_volume(volume: Object) -> None:
    for name in ("configMap", "secret", "downwardAPI", "projected"):
        if (source := volume.get(name)) is not None:
            source.setdefault("defaultMode", 420)
            for item in source.get("items", ()) if name == "downwardAPI" else ():
                _default_source(item)
    if (path := volume.get("hostPath")) is not None:
        path.setdefault("type", "")
    if (empty := volume.get("emptyDir")) is not None:
        canonical_amounts(empty, ("sizeLimit",))
    for source in (volume.get("projected") or {}).get("sources", ()):
        if (token := source.get("serviceAccountToken")) is not None:
            token.setdefault("expirationSeconds", 3600)
        for item in (source.get("downwardAPI") or {}).get("items", ()):
            _default_source(item)
    if (template := (volume.get("ephemeral") or {}).get("volumeClaimTemplate")) is not None:
        template.setdefault("metadata", {})
        default_claim_spec(template.setdefault("spec", {}))


def default_claim_spec(spec: Object) -> None:
    """Defaults of a PersistentVolumeClaim."""
    spec.setdefault("volumeMode", "Filesystem")
    for section in (spec.get("resources") or {}).values():
        if isinstance(section, dict):
            canonical_amounts(section)


def default_pod(pod: Object) -> None:
    """Defaults of a pod, with what the built-in admission plugins add."""
    spec = pod.setdefault("spec", {})
    default_pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    spec.setdefault("serviceAccountName", "default")
    spec.setdefault("serviceAccount", spec["serviceAccountName"])
    network = spec.get("hostNetwork")
    for field in ("containers", "initContainers"):
        for container in spec.get(field, ()):
            _default_requests(container["resources"])
            for port in container.get("ports", ()) if network else ():
                port.setdefault("hostPort", port.get("containerPort"))
    if "resources" in spec:
        _default_pod_requests(spec, spec["resources"])
    tolerations = spec.get("tolerations")
    if tolerations is None:
        spec["tolerations"] = [_NOT_READY, _UNREACHABLE]
    else:
        for default in (_NOT_READY, _UNREACHABLE):
            if not any(_tolerates(toleration, default["key"]) for toleration in tolerations):
                tolerations.append(default)


def _default_requests(resources: Object) -> None:
    """A limit without a request is its own request."""
    if limits := resources.get("limits"):
        requests = resources.get("requests")
        if requests is None:
            resources["requests"] = dict(limits)
        else:
            for name, amount in limits.items():
                requests.setdefault(name, amount)


def _default_pod_requests(spec: Object, resources: Object) -> None:
    """The same for the pod as a whole, for what no container asks for by itself."""
    limits = resources.get("limits") or {}
    requests = resources.setdefault("requests", {}) if limits else {}
    for name in _POD_RESOURCES:
        if name in limits and name not in requests:
            requests[name] = limits[name]


def _tolerates(toleration: Object, key: Any) -> bool:
    return toleration.get("key", "") in ("", key) and toleration.get("effect", "") in ("", "NoExecute")


def qos_class(spec: Object) -> str:
    """`Guaranteed`, `Burstable` or `BestEffort`: by cpu and memory of all containers, or of the pod if it has any."""
    whole = spec.get("resources") or {}
    parts = [whole] if whole.get("limits") or whole.get("requests") else None
    if parts is None:
        parts = [
            container.get("resources") or {}
            for container in (*spec.get("containers", ()), *spec.get("initContainers", ()))
        ]
    some, guaranteed = False, True
    for resources in parts:
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        if not requests and not limits:
            guaranteed = False
            continue
        for name in _POD_RESOURCES:
            request, limit = requests.get(name, "0"), limits.get(name, "0")
            if request not in _ZERO or limit not in _ZERO:
                some = True
            if limit in _ZERO or (request != limit and str(request) != str(limit)):
                guaranteed = False
    if not some:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"
