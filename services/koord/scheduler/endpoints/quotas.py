"""``plugins/ElasticQuota/quotas[/{name}]``: the quotas as the scheduler checks them (spec 20 section 2.13).

Runtime and request are as the quota service published them last. What the original computes on the way to them
(``childRequest``, ``allocated``, ``guaranteed``) is the quota service's, and not here.
"""

from collections.abc import Mapping
from typing import Any

from koord.accounting.quotas import QuotaNode
from koord.accounting.requests import add, amounts, resource_list
from koord.kube.protocol import quota as keys
from koord.scheduler.framework.endpoints import Endpoint, EndpointError, Parameters
from koord.scheduler.plugins.elasticquota import ElasticQuota

_TRUE = frozenset(("true", "1"))
MOST_PODS = 1000
"""Pods of a quota that are shown; the amounts are of all."""
MOST_QUOTAS = 1000
"""Quotas of one answer; ``after`` asks for those behind a name."""


def endpoints(plugin: ElasticQuota) -> Mapping[str, Endpoint]:
    """The plugin's pages."""
    tree = plugin.tree

    def one(parameters: Parameters) -> object:
        name = parameters["name"]
        if name not in tree:
            raise EndpointError(404, f"cannot find quota {name}")
        shown = quota(plugin, name)
        if parameters.get("includePods", "") in _TRUE:
            shown |= pods_of(plugin, name)
        return shown

    def all_(parameters: Parameters) -> object:
        wanted, after = parameters.get("tree", ""), parameters.get("after", "")
        names = (name for name in sorted(tree) if name > after and name != keys.ROOT_QUOTA)
        found: dict[str, Any] = {}
        for name in names:
            node = tree.get(name)
            if node is not None and wanted in ("", node.tree):
                found[name] = quota(plugin, name)
            if len(found) == MOST_QUOTAS:
                break
        return found

    return {"quotas": all_, "quotas/{name}": one}


def quota(plugin: ElasticQuota, name: str) -> dict[str, Any]:
    """One quota in force; ``runtime`` is what its pods may use now."""
    node = plugin.tree.get(name)
    assert node is not None, "only quotas in force are asked for"
    return {
        "name": name,
        "parentName": node.parent,
        "isParent": node.is_parent,
        "tree": node.tree,
        "max": resource_list(node.max),
        "min": resource_list(node.min),
        "used": resource_list(plugin.used(name)),
        "nonPreemptibleUsed": resource_list(plugin.kept(name)),
        "request": resource_list(plugin.asked(name)),
        "sharedWeight": resource_list(_weights(node)),
        "allowLentResource": keys.allows_lending(node.labels),
        "runtime": resource_list(plugin.limit_of(name)),
    }


def pods_of(plugin: ElasticQuota, name: str) -> dict[str, Any]:
    """What the pods of a leaf take by themselves: in the sums of a parent are its children's pods."""
    taken: dict[str, int] = {}
    kept: dict[str, int] = {}
    shown: dict[str, Any] = {}
    for pod, request, preemptible in plugin.charged(name):
        add(taken, request)
        if not preemptible:
            add(kept, request)
        if len(shown) < MOST_PODS:
            shown[f"{pod.namespace}/{pod.name}"] = {"isAssigned": True, "resource": resource_list(request)}
    return {
        "selfUsed": resource_list(taken),
        "selfNonPreemptibleUsed": resource_list(kept),
        "podCache": shown,
    }


def _weights(node: QuotaNode) -> dict[str, int]:
    """As annotated, else the max."""
    try:
        given = keys.resource_list(node.annotations, keys.SHARED_WEIGHT)
        return amounts(given) if given else node.max
    except ValueError:
        return node.max
