"""Whether LoadAwareScheduling and the agents of the nodes agree how full a node may be. Spec 10 section 7, 50 2.2.2.

The scheduler fills nodes up to its thresholds; agents suppress and evict best-effort pods from theirs on. Where the
agents' come first, pods are placed that are evicted a moment later, and placed again. Pure: a text in, warnings out.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from koord.scheduler.config.errors import ConfigError, Problem
from koord.scheduler.config.koordinatorargs import LoadAwareSchedulingArgs
from koord.scheduler.config.text import load
from koord.scheduler.plugins.loadaware.thresholds import of_args

CONFIG_KEY = "resource-threshold-config"
"""Of the ConfigMap ``slo-controller-config``."""
_FIELDS = ("enable", "cpuSuppressThresholdPercent", "memoryEvictThresholdPercent", "cpuEvictThresholdPercent")


class Strategy(msgspec.Struct, frozen=True, rename="camel"):
    """What agents do; percentages of the node's capacity. ``cpu_evict_threshold_percent`` None: not by usage."""

    enable: bool = False
    cpu_suppress_threshold_percent: int = 65
    memory_evict_threshold_percent: int = 70
    cpu_evict_threshold_percent: int | None = None


def strategies(text: str, source: str = "") -> dict[str, Strategy]:
    """The strategies in a ConfigMap ``slo-controller-config``, YAML or JSON, by a name for people.

    ConfigError names what cannot be read. Without the key: the built-in strategy, in which agents do nothing.
    """
    data = load(text, source).get("data")
    if not isinstance(data, dict):
        raise ConfigError([Problem("data", "must be that of a ConfigMap")], source)
    body = data.get(CONFIG_KEY)
    if body is None:
        return {"all nodes": Strategy()}
    try:
        whole = msgspec.json.decode(body if isinstance(body, str) else "", type=dict[str, Any])
        cluster = _given(whole.get("clusterStrategy"))
        found = {"all nodes": msgspec.convert(cluster, Strategy)}
        for index, own in enumerate(whole.get("nodeStrategies") or ()):
            name = own.get("name") or str(index) if isinstance(own, dict) else str(index)
            found[f'nodes of "{name}"'] = msgspec.convert(cluster | _given(own), Strategy)
    except (msgspec.DecodeError, TypeError) as error:
        raise ConfigError([Problem(f"data[{CONFIG_KEY}]", str(error))], source) from error
    return found


def disagreements(args: LoadAwareSchedulingArgs, of_agents: Mapping[str, Strategy]) -> Iterator[str]:
    """What to warn of. ``args`` are completed."""
    node = of_args(args).node
    for name, strategy in of_agents.items():
        if not strategy.enable:
            continue
        for resource, percent, does in (
            ("memory", strategy.memory_evict_threshold_percent, "evict best-effort pods"),
            ("cpu", strategy.cpu_evict_threshold_percent, "evict pods"),
            ("cpu", strategy.cpu_suppress_threshold_percent, "suppress best-effort pods"),
        ):
            most = node.get(resource, 0)
            # Agents act at their threshold; to suppress at the scheduler's own is what the defaults do.
            least = percent if percent is None or does.startswith("evict") else percent + 1
            if least is not None and (not most or most >= least):
                fills = f"up to {most}%" if most else "whatever is used"
                yield f"{name}: agents {does} from {percent}% of {resource} on, but the scheduler places pods {fills}"


def _given(strategy: object) -> dict[str, Any]:
    """The fields that matter; their names match whatever their case, and null is not given."""
    if strategy is None:
        return {}
    if not isinstance(strategy, dict):
        raise TypeError("a strategy must be an object")
    names = {field.lower(): field for field in _FIELDS}
    return {names[key.lower()]: value for key, value in strategy.items() if key.lower() in names and value is not None}
