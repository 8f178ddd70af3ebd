"""What the fake nodes look like and how long their pods take."""

from typing import Annotated

import msgspec

from koord.kube.quantity import QuantityError, parse

Count = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]


class KubeletOptions(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Options of the fake nodes and kubelets; amounts are Kubernetes quantities, times are seconds.

    The last `gpu_nodes` of the `nodes` have `gpus_per_node` pieces of `nvidia.com/gpu`. `start_s` and `run_s` hold for
    pods without the annotations (`machine.py`). Pods of a node that is gone for `gc_delay_s` are deleted (0: never).
    Each node's Lease is renewed every `lease_s` (0: there are none): the node lifecycle controller of a real cluster
    taints a node that it has not heard of for 50 s.
    `name_pattern` is a format with one number, from 1 on.
    """

    nodes: Count = 10
    cpu: str = "32"
    memory: str = "128Gi"
    pods: str = "110"
    ephemeral_storage: str = "500Gi"
    gpu_nodes: Count = 0
    gpus_per_node: Count = 8
    zones: Annotated[int, msgspec.Meta(ge=1)] = 3
    instance_type: str = "fake.large"
    gpu_instance_type: str = "fake.gpu"
    name_pattern: str = "node-{:05d}"
    labels: dict[str, str] = {}
    heartbeat_s: Annotated[float, msgspec.Meta(gt=0)] = 300.0
    lease_s: Seconds = 0.0
    start_s: Seconds = 0.2
    run_s: Seconds = 1.0
    stop_s: Seconds = 0.1
    gc_delay_s: Seconds = 5.0

    def __post_init__(self) -> None:
        if self.gpu_nodes > self.nodes:
            raise ValueError(f"gpu_nodes: {self.gpu_nodes} is more than nodes ({self.nodes})")
        for field in ("cpu", "memory", "pods", "ephemeral_storage"):
            try:
                parse(getattr(self, field))
            except QuantityError as error:
                raise ValueError(f"{field}: {error}") from None
        try:
            distinct = self.name_pattern.format(1) != self.name_pattern.format(2)
        except (IndexError, KeyError, ValueError):
            distinct = False
        if not distinct:
            raise ValueError(f"name_pattern: {self.name_pattern!r} must be a format of one number, like node-{{:05d}}")
