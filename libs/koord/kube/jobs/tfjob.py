"""TFJob of Kubeflow's training operator."""

from typing import Final

from koord.kube.jobs.kubeflow import KubeflowJob
from koord.kube.resources import TFJOBS

TFJOB: Final = KubeflowJob(
    resource=TFJOBS,
    suffix="-tf-qu",
    roles_field="tfReplicaSpecs",
    roles=("Chief", "Master", "PS", "Worker", "Evaluator"),
)
