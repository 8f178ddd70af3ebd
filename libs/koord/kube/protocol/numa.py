"""Keys by which pods ask for CPUs of their own and NUMA alignment, and by which they are told (spec 10 section 2.5).

Parsers raise ValueError that names the key and the rule; an absent key is the empty answer.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from koord.kube.meta import ResourceList
from koord.kube.protocol.cpulist import format_cpus
from koord.kube.protocol.nodekeys import cpus_of, decode_value

PREFIX: Final = "scheduling.koordinator.sh/"
RESOURCE_SPEC: Final = PREFIX + "resource-spec"
RESOURCE_STATUS: Final = PREFIX + "resource-status"
NUMA_TOPOLOGY_SPEC: Final = PREFIX + "numa-topology-spec"

DEFAULT: Final = "Default"
FULL_PCPUS: Final = "FullPCPUs"
SPREAD_BY_PCPUS: Final = "SpreadByPCPUs"
CONSTRAINED_BURST: Final = "ConstrainedBurst"
_BIND_POLICIES: Final = ("", DEFAULT, FULL_PCPUS, SPREAD_BY_PCPUS, CONSTRAINED_BURST)

PCPU_LEVEL: Final = "PCPULevel"
NUMA_NODE_LEVEL: Final = "NUMANodeLevel"
_EXCLUSIVE_POLICIES: Final = ("", "None", PCPU_LEVEL, NUMA_NODE_LEVEL)

NO_POLICY: Final = "None"
BEST_EFFORT: Final = "BestEffort"
RESTRICTED: Final = "Restricted"
SINGLE_NUMA_NODE: Final = "SingleNUMANode"
TOPOLOGY_POLICIES: Final = (BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE)

REQUIRED: Final = "Required"
PREFERRED: Final = "Preferred"

_dicts = msgspec.json.Decoder(dict[str, Any])


class ResourceSpec(msgspec.Struct, frozen=True, rename="camel"):
    """How a pod wants its CPUs. ``problems`` names texts that are no policy; they ask for nothing."""

    required: str = msgspec.field(name="requiredCPUBindPolicy", default="")
    preferred: str = msgspec.field(name="preferredCPUBindPolicy", default="")
    exclusive: str = msgspec.field(name="preferredCPUExclusivePolicy", default="")

    @property
    def problems(self) -> tuple[str, ...]:
        """What is no policy: key, field, text, rule, and what is done instead."""
        found = []
        for field, text, known in (
            ("requiredCPUBindPolicy", self.required, _BIND_POLICIES),
            ("preferredCPUBindPolicy", self.preferred, _BIND_POLICIES),
            ("preferredCPUExclusivePolicy", self.exclusive, _EXCLUSIVE_POLICIES),
        ):
            if text not in known:
                rule = f"must be one of {', '.join(filter(None, known))}"
                found.append(f'{RESOURCE_SPEC}: {field} {rule}, got "{text[:100]}"; it asks for nothing')
        return tuple(found)


class NUMATopologySpec(msgspec.Struct, frozen=True, rename="camel"):
    """How a pod wants to be aligned; ``policy`` "" is no wish. ``exclusive``: whether it wants NUMA nodes alone."""

    policy: str = msgspec.field(name="numaTopologyPolicy", default="")
    exclusive: str = msgspec.field(name="singleNUMANodeExclusive", default="")


class NUMANodeResource(msgspec.Struct, frozen=True):
    """What a pod has of one NUMA node."""

    node: int
    resources: ResourceList = {}


class ResourceStatus(msgspec.Struct, frozen=True):
    """What a pod was given: ``cpus`` is a mask, 0 for none of its own."""

    cpus: int = 0
    zones: tuple[NUMANodeResource, ...] = ()


class _Status(msgspec.Struct, rename="camel"):
    cpuset: str = ""
    numa_node_resources: list[NUMANodeResource] = []


def resource_spec(annotations: Mapping[str, str]) -> ResourceSpec:
    """What the pod says of its CPUs. ValueError: it cannot be read; texts that are no policy are in ``problems``."""
    text = annotations.get(RESOURCE_SPEC)
    return decode_value(RESOURCE_SPEC, text, ResourceSpec) if text else ResourceSpec()


def numa_topology_spec(annotations: Mapping[str, str]) -> NUMATopologySpec:
    """What the pod says of its alignment; the policy ``None`` is no wish. ValueError names the key and the rule."""
    text = annotations.get(NUMA_TOPOLOGY_SPEC)
    if not text:
        return NUMATopologySpec()
    value = decode_value(NUMA_TOPOLOGY_SPEC, text, NUMATopologySpec)
    if value.policy == NO_POLICY:
        value = msgspec.structs.replace(value, policy="")
    if value.policy not in ("", *TOPOLOGY_POLICIES):
        rule = f"numaTopologyPolicy must be one of {', '.join(TOPOLOGY_POLICIES)}"
        raise ValueError(f'{NUMA_TOPOLOGY_SPEC}: {rule}, got "{value.policy[:100]}"')
    if value.exclusive not in ("", PREFERRED, REQUIRED):
        rule = f"singleNUMANodeExclusive must be {PREFERRED} or {REQUIRED}"
        raise ValueError(f'{NUMA_TOPOLOGY_SPEC}: {rule}, got "{value.exclusive[:100]}"')
    return value


def resource_status(annotations: Mapping[str, str]) -> ResourceStatus:
    """What the pod was given. ValueError names the key and the rule."""
    text = annotations.get(RESOURCE_STATUS)
    if not text:
        return ResourceStatus()
    value = decode_value(RESOURCE_STATUS, text, _Status)
    return ResourceStatus(cpus_of(f"{RESOURCE_STATUS}: cpuset", value.cpuset), tuple(value.numa_node_resources))


def write_resource_status(cpus: int, zones: Sequence[tuple[int, Mapping[str, str]]]) -> str:
    """The annotation's text: ``cpus`` as a mask, amounts of NUMA nodes in canonical form; empty fields left out."""
    value: dict[str, Any] = {}
    if cpus:
        value["cpuset"] = format_cpus(cpus)
    if zones:
        value["numaNodeResources"] = [{"node": node, "resources": resources} for node, resources in zones]
    return msgspec.json.encode(value).decode()


def completed_resource_spec(text: str, policy: str, *, required: bool) -> str:
    """The annotation as the scheduler completes it: what it did (``policy``), where the pod left it open.

    ``required``: the node decided, so it stands as required; else ``Default`` is replaced where it was written, or the
    preference stated. Other fields stay as they were; so does the text if it says all that already.
    """
    value = _dicts.decode(text) if text else {}
    field = "requiredCPUBindPolicy"
    if not required and value.get(field) != DEFAULT:
        if value.get(field) or value.get("preferredCPUBindPolicy") not in (None, "", DEFAULT):
            return text
        field = "preferredCPUBindPolicy"
    if value.get(field) == policy:
        return text
    value[field] = policy
    return msgspec.json.encode(value).decode()
