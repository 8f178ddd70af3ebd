"""The pages of all plugins: what the built-in ones show, and what others show by :class:`EndpointPlugin`."""

from collections.abc import Callable, Mapping

from koord.scheduler.endpoints import cpus, gangs, quotas
from koord.scheduler.engine.placement import Engine
from koord.scheduler.framework.contract import Plugin
from koord.scheduler.framework.endpoints import Endpoint, EndpointPlugin
from koord.scheduler.plugins.coscheduling import Coscheduling
from koord.scheduler.plugins.elasticquota import ElasticQuota
from koord.scheduler.plugins.nodenumaresource.plugin import NodeNUMAResource


def endpoints_of(plugin: Plugin, engine: Engine, created: Callable[[str], str]) -> Mapping[str, Endpoint]:
    """What a plugin shows; nothing is the rule. ``created``: when the PodGroup of an id was created."""
    match plugin:
        case EndpointPlugin():
            return plugin.endpoints()
        case NodeNUMAResource():
            return cpus.endpoints(plugin, engine)
        case Coscheduling():
            return gangs.endpoints(plugin, engine, created)
        case ElasticQuota():
            return quotas.endpoints(plugin)
        case _:
            return {}


def all_endpoints(engine: Engine, created: Callable[[str], str]) -> dict[str, Endpoint]:
    """By pattern below ``/apis/v1/plugins/``; of plugins with one name the first counts."""
    found: dict[str, Endpoint] = {}
    for plugin in engine.plugins:
        for pattern, endpoint in endpoints_of(plugin, engine, created).items():
            found.setdefault(f"{plugin.name}/{pattern.strip('/')}", endpoint)
    return found
