"""Names of older releases and what they are called now (spec 10 sections 2.6 and 3.1)."""

from collections.abc import Mapping
from typing import Final

from koord.kube.protocol import qos

BATCH: Final[Mapping[str, str]] = {
    "koordinator.sh/batch-cpu": qos.BATCH_CPU,
    "koordinator.sh/batch-memory": qos.BATCH_MEMORY,
}

DEVICES: Final[Mapping[str, str]] = {
    f"kubernetes.io/{name}": f"koordinator.sh/{name}"
    for name in ("rdma", "fpga", "gpu", "gpu-core", "gpu-memory", "gpu-memory-ratio")
}

ALL: Final[Mapping[str, str]] = {**BATCH, **DEVICES}
