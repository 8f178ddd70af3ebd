"""``plugins/ElasticQuota/quotas[/{name}]``: the quotas as the scheduler checks them (spec 20 section 5).

Requests and shares are the quota service's: its runtime is the limit here.
"""

from collections.abc import Mapping
from typing import Any

from koord.accounting.requests import resource_list
from koord.kube.protocol import quota as keys
from koord.scheduler.framework.endpoints import Endpoint, EndpointError, Parameters
from koord.scheduler.plugins.elasticquota import ElasticQuota

MOST_QUOTAS = 1000
"""Quotas of one answer; ``after`` asks for those behind a name."""


def endpoints(plugin: ElasticQuota) -> Mapping[str, Endpoint]:
    """The plugin's pages."""
    tree = plugin.tree

    def one(parameters: Parameters) -> object:
        name = parameters["name"]
        if name not in tree:
            raise EndpointError(404, f"cannot find quota {name}")
        return quota(plugin, name)

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
        "runtime": resource_list(plugin.limit_of(name)),
    }
