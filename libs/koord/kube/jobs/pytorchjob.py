"""PyTorchJob of Kubeflow's training operator; its workers may be elastic."""

from typing import Final

from koord.kube.jobs.kubeflow import KubeflowJob
from koord.kube.resources import PYTORCHJOBS

PYTORCHJOB: Final = KubeflowJob(
    resource=PYTORCHJOBS,
    suffix="-py-qu",
    roles_field="pytorchReplicaSpecs",
    roles=("Master", "Worker"),
    elastic=True,
)
