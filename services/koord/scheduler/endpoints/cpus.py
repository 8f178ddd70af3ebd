"""``plugins/NodeNUMAResource/nodes/{node}``: the CPUs and NUMA nodes of a node, and who has what of them."""

from collections.abc import Mapping
from typing import Any

from koord.accounting.requests import resource_list
from koord.kube.protocol.cpulist import cpu_ids, format_cpus
from koord.scheduler.engine.placement import Engine
from koord.scheduler.framework.endpoints import Endpoint, EndpointError, Parameters
from koord.scheduler.numa.state import NodeState
from koord.scheduler.numa.topology import CPUTopology
from koord.scheduler.plugins.nodenumaresource.plugin import NodeNUMAResource

SOCKET = 1 << 16
"""Core ids are unique on a machine: the socket's, times this, and the core's."""


def endpoints(plugin: NodeNUMAResource, engine: Engine) -> Mapping[str, Endpoint]:
    """The plugin's pages. As the original, 500 for a node without a valid topology, known or not."""

    def node(parameters: Parameters) -> object:
        name = parameters["node"]
        if engine.cluster.index.find(name) is None:
            raise EndpointError(500, f"cannot find node {name}")
        state = plugin.books.state(name)
        if state.layout.topology is None:
            raise EndpointError(500, f"node {name}: invalid CPU topology")
        return _node(name, state, state.layout.topology, engine)

    return {"nodes/{node}": node}


def _node(name: str, state: NodeState, topology: CPUTopology, engine: Engine) -> dict[str, Any]:
    laid = state.layout
    held: dict[int, tuple[int, str]] = {}
    for allocation in state.pods.values():
        for cpu in cpu_ids(allocation.cpus):
            count, exclusive = held.get(cpu, (0, ""))
            held[cpu] = count + 1, allocation.exclusive or exclusive
    details = {
        str(cpu.id): {
            "cpuID": cpu.id,
            "coreID": cpu.socket * SOCKET + cpu.core,
            "nodeID": cpu.node,
            "socketID": cpu.socket,
            "refCount": held.get(cpu.id, (0, ""))[0],
            "exclusivePolicy": held.get(cpu.id, (0, ""))[1],
        }
        for cpu in topology.cpus
    }
    zones = range(len(laid.zones))
    return {
        "name": name,
        "cpuTopology": {
            "numCPUs": topology.count,
            "numCores": len(topology.cores),
            "numNodes": len(topology.nodes),
            "numSockets": len(topology.sockets),
            "cpuDetails": details,
        },
        "reservedCPUs": format_cpus(laid.reserved),
        "maxRefCount": 1,
        "policy": laid.bind,
        "numaTopologyPolicy": laid.policy,
        "numaNodeResources": [_zone(zone.id, zone.allocatable) for zone in laid.zones],
        "amplificationRatios": {"cpu": laid.ratio} if laid.ratio is not None and laid.ratio > 1.0 else {},
        "remainingNUMANodeResources": [_zone(laid.zones[index].id, state.zone_free(index)) for index in zones],
        "allocatedNUMANodeResources": [_zone(laid.zones[index].id, state.zone_used(index)) for index in zones],
        "availableCPUs": format_cpus(state.free),
        "allocatedCPUs": {cpu: detail for cpu, detail in details.items() if detail["refCount"]},
        "allocatedPods": [_pod(uid, state, engine) for uid in sorted(state.pods)],
    }


def _zone(id_: int, amounts: Mapping[str, int]) -> dict[str, Any]:
    return {"node": id_, "resources": resource_list(amounts)}


def _pod(uid: str, state: NodeState, engine: Engine) -> dict[str, Any]:
    allocation = state.pods[uid]
    pod = engine.counted(uid)
    return {
        "uid": uid,
        "namespace": pod.ref.namespace if pod is not None else "",
        "name": pod.ref.name if pod is not None else "",
        "cpuset": format_cpus(allocation.cpus),
        "cpuExclusivePolicy": allocation.exclusive,
        "numaNodeResources": [_zone(zone, amounts) for zone, amounts in allocation.zones],
    }
