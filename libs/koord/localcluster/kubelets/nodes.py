"""The Node objects of the fake fleet, and the room that a kubelet keeps account of."""

from collections.abc import Mapping
from typing import NamedTuple

from koord.kube.meta import now_rfc3339
from koord.localcluster.clusterapi import Object, Objects
from koord.localcluster.kubelets.options import KubeletOptions

FAKE_NODE = "koord.sh/fake-node"
"""Label of the nodes that fake kubelets serve; a node that a user creates with it comes alive too."""

KUBELET_VERSION = "v1.37.1"


def node_object(number: int, options: KubeletOptions, now: float) -> Object:
    """Node `number` (from 1), Ready, as a kubelet registers it."""
    name = options.name_pattern.format(number)
    has_gpus = number > options.nodes - options.gpu_nodes
    amounts = room_of(options)
    labels = {
        FAKE_NODE: "true",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/zone": f"zone-{(number - 1) % options.zones + 1}",
        "topology.kubernetes.io/region": "local",
        "node.kubernetes.io/instance-type": options.gpu_instance_type if has_gpus else options.instance_type,
        **options.labels,
    }
    if has_gpus:
        amounts["nvidia.com/gpu"] = str(options.gpus_per_node)
        labels["nvidia.com/gpu.present"] = "true"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"podCIDR": f"10.{64 + (number >> 8) % 64}.{number & 255}.0/24", "providerID": f"koord://{name}"},
        "status": {
            "capacity": amounts,
            "allocatable": dict(amounts),
            "addresses": [{"type": "InternalIP", "address": host_ip(number)}, {"type": "Hostname", "address": name}],
            "conditions": conditions(now, now),
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "machineID": "",
                "systemUUID": "",
                "bootID": "",
                "kernelVersion": "6.18.0",
                "osImage": "koord local cluster",
                "containerRuntimeVersion": "fake://1.0",
                "kubeletVersion": KUBELET_VERSION,
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
        },
    }


def room_of(options: KubeletOptions) -> dict[str, str]:
    """The room of a node without GPUs."""
    return {
        "cpu": str(options.cpu),
        "memory": str(options.memory),
        "pods": str(options.pods),
        "ephemeral-storage": str(options.ephemeral_storage),
    }


def host_ip(number: int) -> str:
    """The address of node `number`."""
    return f"172.{16 + (number >> 16) % 16}.{number >> 8 & 255}.{number & 255}"


def conditions(now: float, since: float) -> Objects:
    """The conditions of a healthy node, with the time of this heartbeat and of the last transition."""
    beat, moved = now_rfc3339(now), now_rfc3339(since)
    healthy = (
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    )
    return [
        {
            "type": type_,
            "status": status,
            "lastHeartbeatTime": beat,
            "lastTransitionTime": moved,
            "reason": reason,
            "message": message,
        }
        for type_, status, reason, message in healthy
    ]


class Shortage(NamedTuple):
    """The first resource that a pod finds no room for; amounts as in `accounting` (cpu in thousandths)."""

    resource: str
    requested: int
    used: int
    capacity: int

    @property
    def reason(self) -> str:
        """The pod's `status.reason`, as a kubelet writes it."""
        return f"OutOf{self.resource}"

    @property
    def message(self) -> str:
        """The pod's `status.message`, as a kubelet writes it."""
        return (
            f"Pod was rejected: Node didn't have enough resource: {self.resource}, "
            f"requested: {self.requested}, used: {self.used}, capacity: {self.capacity}"
        )


class Room:
    """What a node has and what its pods use. Resources that the node does not report are not checked."""

    __slots__ = ("allocatable", "used")

    def __init__(self, allocatable: Mapping[str, int]) -> None:
        self.allocatable = dict(allocatable)
        self.used: dict[str, int] = {}

    def shortage(self, request: Mapping[str, int]) -> Shortage | None:
        """The first resource of which there is too little for `request`, pods first as in a kubelet."""
        used, allocatable = self.used, self.allocatable
        if "pods" in allocatable and used.get("pods", 0) + 1 > allocatable["pods"]:
            return Shortage("pods", 1, used.get("pods", 0), allocatable["pods"])
        for resource, amount in request.items():
            capacity = allocatable.get(resource)
            if capacity is not None and amount and used.get(resource, 0) + amount > capacity:
                return Shortage(resource, amount, used.get(resource, 0), capacity)
        return None

    def take(self, request: Mapping[str, int]) -> None:
        """Account for a pod; also one that does not fit, if it runs already."""
        used = self.used
        used["pods"] = used.get("pods", 0) + 1
        for resource, amount in request.items():
            used[resource] = used.get(resource, 0) + amount

    def free(self, request: Mapping[str, int]) -> None:
        """Undo `take`."""
        used = self.used
        used["pods"] -= 1
        for resource, amount in request.items():
            used[resource] -= amount
