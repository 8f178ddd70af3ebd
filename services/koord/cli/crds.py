"""koord's CustomResourceDefinitions on a cluster that is not ours: which are missing, and making those, if asked to.

What is there already stays as it is: TFJob or PodGroup may belong to somebody else's operator.
"""

import asyncio
from typing import Any

from koord.kube import crds
from koord.localcluster.clusterapi import ApiError
from koord.localcluster.httpapi import HttpClusterApi

_DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
_ESTABLISHED_S = 60.0


async def missing(api: HttpClusterApi) -> list[dict[str, Any]]:
    """The definitions that the cluster lacks."""
    items, _ = await api.list(_DEFINITIONS)
    there = {item["metadata"]["name"] for item in items}
    return [definition for definition in crds.load() if definition["metadata"]["name"] not in there]


async def install(api: HttpClusterApi, definitions: list[dict[str, Any]]) -> None:
    """Make them, and wait until the server serves them; ApiError, or TimeoutError after a minute."""
    for definition in definitions:
        try:
            await api.create(_DEFINITIONS, None, definition)
        except ApiError as error:
            if error.code != 409:
                raise
    async with asyncio.timeout(_ESTABLISHED_S):
        for definition in definitions:
            await _served(api, definition["metadata"]["name"])


async def _served(api: HttpClusterApi, name: str) -> None:
    while not _established(await api.get(_DEFINITIONS, None, name)):  # noqa: ASYNC110 - the server is asked
        await asyncio.sleep(0.05)


def _established(definition: dict[str, Any]) -> bool:
    conditions = (definition.get("status") or {}).get("conditions") or ()
    return any(entry["type"] == "Established" and entry["status"] == "True" for entry in conditions)
