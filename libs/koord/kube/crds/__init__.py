"""The custom resources koord brings along, as package data that kustomize, too, refers to.

Queue and QueueUnit have full schemas, ElasticQuota, its profile, PodGroup, NodeMetric, NodeResourceTopology and
ScheduleExplanation are Koordinator's (quota, PodGroup and NodeResourceTopology without status sub-resource). Where
Koordinator's own are there already they stay. The job kinds are stand-ins for clusters without the real operators:
they keep every field.
"""

from importlib import resources
from typing import Any, Final

KUSTOMIZATION: Final = "kustomization.yaml"
"""Names the definitions that a deployment installs: koord's own, without the job kinds' stand-ins."""


def load() -> list[dict[str, Any]]:
    """Every CustomResourceDefinition, decoded, by file name."""
    import yaml  # here: only who installs CRDs pays for the import

    folder = resources.files(__name__).iterdir()
    files = [item for item in folder if item.name.endswith(".yaml") and item.name != KUSTOMIZATION]
    return [yaml.safe_load(item.read_text("utf-8")) for item in sorted(files, key=lambda item: item.name)]
