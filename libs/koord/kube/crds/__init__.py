"""The custom resources koord brings along, as package data that kustomize, too, refers to.

Queue and QueueUnit have full schemas, ElasticQuota, its profile and PodGroup are Koordinator's (quota and PodGroup
without status sub-resource). The job kinds are stand-ins for clusters without the real operators: they keep every
field.
"""

from importlib import resources
from typing import Any


def load() -> list[dict[str, Any]]:
    """Every CustomResourceDefinition, decoded, by file name."""
    import yaml  # here: only who installs CRDs pays for the import

    files = [item for item in resources.files(__name__).iterdir() if item.name.endswith(".yaml")]
    return [yaml.safe_load(item.read_text("utf-8")) for item in sorted(files, key=lambda item: item.name)]
