"""What the server serves, as clients discover it: plainly, group by group, and aggregated in one document."""

from koord.localcluster.api import reviews
from koord.localcluster.api.builtin import NAMESPACES, PODS
from koord.localcluster.api.errors import PageNotFound, no_such_path
from koord.localcluster.api.resources import Registry, Resource, Route
from koord.localcluster.api.store import encode
from koord.localcluster.clusterapi import Object

AGGREGATED = b"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
KUBERNETES_VERSION = "v1.37.0"
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_STATUS_VERBS = ["get", "patch", "update"]


def version_info() -> bytes:
    """The answer of /version."""
    major, minor, _ = KUBERNETES_VERSION[1:].split(".")
    info = {
        "major": major,
        "minor": minor,
        "gitVersion": f"{KUBERNETES_VERSION}+koord",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "linux/amd64",
    }
    return encode(info)


def wants_aggregated(accept: bytes) -> bool:
    """Whether the client prefers the aggregated document in a version that is served."""
    first = accept.split(b",", 1)[0].replace(b" ", b"")
    parts = set(first.split(b";"))
    return b"as=APIGroupDiscoveryList" in parts and b"v=v2" in parts and b"g=apidiscovery.k8s.io" in parts


def api_versions(server: str) -> bytes:
    """The answer of /api."""
    address = [{"clientCIDR": "0.0.0.0/0", "serverAddress": server}]
    return encode({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": address})


def _group(name: str, versions: list[str]) -> Object:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _all_groups(registry: Registry) -> list[tuple[str, list[str]]]:
    """The groups of objects, and those of reviews, which are answered and not stored."""
    return [*registry.groups(), *((name, ["v1"]) for name in reviews.KINDS)]


def api_groups(registry: Registry) -> bytes:
    """The answer of /apis."""
    groups = [_group(name, versions) for name, versions in _all_groups(registry) if name]
    return encode({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})


def api_group(registry: Registry, name: str) -> bytes:
    """The answer of /apis/GROUP."""
    for group, versions in _all_groups(registry):
        if group == name and name:
            return encode({"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)})
    raise PageNotFound


def _subresources(resource: Resource) -> list[tuple[str, Object, list[str]]]:
    """name, kind reference, verbs of each sub-resource."""
    own: Object = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    found: list[tuple[str, Object, list[str]]] = []
    if resource is PODS:
        found.append(("binding", {"group": "", "version": "v1", "kind": "Binding"}, ["create"]))
        found.append(("eviction", {"group": "policy", "version": "v1", "kind": "Eviction"}, ["create"]))
    if resource is NAMESPACES:
        found.append(("finalize", own, ["update"]))
    if resource.scale is not None:
        found.append(("scale", {"group": "autoscaling", "version": "v1", "kind": "Scale"}, _STATUS_VERBS))
    if resource.status:
        found.append(("status", own, _STATUS_VERBS))
    return found


def resource_list(registry: Registry, group: str, version: str) -> bytes:
    """The answer of /api/v1 and /apis/GROUP/VERSION."""
    routes = registry.of(group, version)
    if group in reviews.KINDS and version == "v1":
        questions: list[Object] = [
            {
                "name": plural,
                "singularName": kind.lower(),
                "namespaced": namespaced,
                "kind": kind,
                "verbs": ["create"],
            }
            for plural, (kind, namespaced) in reviews.KINDS[group].items()
        ]
        return _resource_list(group, version, questions)
    if not routes:
        raise no_such_path() if any(group == known for known, _ in registry.groups()) else PageNotFound()
    resources: list[Object] = []
    if group == "":
        resources.append(
            {"name": "bindings", "singularName": "binding", "namespaced": True, "kind": "Binding", "verbs": ["create"]}
        )
    for route in routes:
        resource = route.resource
        listed: Object = {
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": _VERBS,
        }
        if resource.short_names:
            listed["shortNames"] = resource.short_names
        if resource.categories:
            listed["categories"] = resource.categories
        resources.append(listed)
        for name, kind, verbs in _subresources(resource):
            sub: Object = {
                "name": f"{resource.plural}/{name}",
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": kind["kind"],
                "verbs": verbs,
            }
            if (kind["group"], kind["version"]) != (resource.group, resource.version):
                sub["group"], sub["version"] = kind["group"], kind["version"]
            resources.append(sub)
    return _resource_list(group, version, resources)


def _resource_list(group: str, version: str, resources: list[Object]) -> bytes:
    group_version = f"{group}/{version}" if group else version
    body = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources}
    return encode(body)


def aggregated(registry: Registry, *, core: bool) -> bytes:
    """The aggregated document of /api (`core`) or /apis."""
    items = []
    for name, versions in _all_groups(registry):
        if core is not (name == ""):
            continue
        items.append(
            {
                "metadata": {"name": name, "creationTimestamp": None} if name else {"creationTimestamp": None},
                "versions": [
                    {
                        "version": version,
                        "freshness": "Current",
                        "resources": _aggregated_resources(registry, name, version),
                    }
                    for version in versions
                ],
            }
        )
    kind = {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}}
    return encode({**kind, "items": items})


def _aggregated_resources(registry: Registry, group: str, version: str) -> list[Object]:
    found = [_aggregated_resource(route) for route in registry.of(group, version)]
    for plural, (kind, namespaced) in reviews.KINDS.get(group, {}).items():
        found.append(
            {
                "resource": plural,
                "responseKind": {"group": group, "version": version, "kind": kind},
                "scope": "Namespaced" if namespaced else "Cluster",
                "singularResource": kind.lower(),
                "verbs": ["create"],
            }
        )
    return found


def _aggregated_resource(route: Route) -> Object:
    resource = route.resource
    listed: Object = {
        "resource": resource.plural,
        "responseKind": {"group": route.group, "version": route.version, "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": _VERBS,
    }
    if resource.short_names:
        listed["shortNames"] = resource.short_names
    if resource.categories:
        listed["categories"] = resource.categories
    subresources = [
        {"subresource": name, "responseKind": kind, "verbs": verbs} for name, kind, verbs in _subresources(resource)
    ]
    if subresources:
        listed["subresources"] = subresources
    return listed
