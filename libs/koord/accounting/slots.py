"""Slots: things of which one pod at a time may have each; their names in the ledger (spec 20 section 3.12).

A scheduler claims them with the pod; whoever sees a running pod reads them from it (:func:`pod_slots`), so that a
ledger that was lost knows again who has what.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from koord.kube.pods import Container
from koord.kube.protocol.cpulist import cpu_ids
from koord.kube.protocol.numa import RESOURCE_STATUS, resource_status

ANY_ADDRESS = "0.0.0.0"


class HostPort(NamedTuple):
    """A port of the node that a container takes."""

    protocol: str
    port: int
    ip: str


def host_ports(containers: Iterable[Container], init_containers: Iterable[Container] = ()) -> tuple[HostPort, ...]:
    """What the containers, and the init containers that stay, take of the node; an unnamed address is every one."""
    staying = [*containers, *(init for init in init_containers if init.restart_policy == "Always")]
    found = {
        HostPort(port.protocol or "TCP", port.host_port, port.host_ip or ANY_ADDRESS)
        for container in staying
        for port in container.ports
        if port.host_port > 0
    }
    return tuple(sorted(found))


def port_slot(node: str, port: HostPort) -> str:
    """A port of a node; one of a single address is a slot of its own."""
    item = f"port/{node}/{port.protocol}/{port.port}"
    return item if port.ip == ANY_ADDRESS else f"{item}/{port.ip}"


def cpu_slot(node: str, cpu: int | str) -> str:
    """A CPU of a node that a pod has for itself."""
    return f"cpu/{node}/{cpu}"


def claim_slot(key: str) -> str:
    """A PersistentVolumeClaim (``namespace/name``) that one pod at a time may use."""
    return f"claim/{key}"


def device_slot(driver: str, pool: str, device: str) -> str:
    """A device of a ResourceSlice that one claim at a time may have."""
    return f"device/{driver}/{pool}/{device}"


def pod_slots(
    node: str, namespace: str, ports: Iterable[HostPort], claims: Iterable[str], annotations: Mapping[str, str] | None
) -> tuple[str, ...]:
    """What a pod on ``node`` has: ``ports``, its ``claims`` (names; those that many may use are nobody's to claim, so
    it does no harm that the first one seen has them), and the CPUs that its annotation names. An annotation that cannot
    be read names none."""
    slots = [port_slot(node, port) for port in ports]
    slots += [claim_slot(f"{namespace}/{name}") for name in claims]
    if annotations is not None and RESOURCE_STATUS in annotations:
        with suppress(ValueError):
            slots += [cpu_slot(node, cpu) for cpu in cpu_ids(resource_status(annotations).cpus)]
    return tuple(slots)
