"""Follow all objects of a resource for ever, over watches that may break.

A watch that ends is taken up again at the last version seen; when the server no longer holds that version (410), all
objects are read anew and those that were not seen are reported as missing, so that a follower never keeps a ghost.
"""

import asyncio
from collections.abc import Callable
from typing import NoReturn

from koord.localcluster.clusterapi import ApiError, ClusterApi, WatchEvents
from koord.telemetry.logs import get_logger

_log = get_logger(__name__)

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0

Key = tuple[str, str]
"""Namespace ("" when cluster-scoped) and name."""


async def follow(
    api: ClusterApi,
    resource: str,
    *,
    on_events: Callable[[WatchEvents], None],
    on_complete: Callable[[set[Key]], None],
    label_selector: str | None = None,
    field_selector: str | None = None,
) -> NoReturn:
    """Call `on_events` with every batch (bookmarks included), in order.

    `on_complete` gets the keys of all objects there are whenever a full read has been delivered: what the follower
    holds beyond them is gone.
    """
    version: str | None = None
    pause = _FIRST_PAUSE_S
    told = ""
    while True:
        seen: set[Key] | None = set() if version is None else None
        trouble = ""
        try:
            async for batch in api.watch(
                resource, resource_version=version, label_selector=label_selector, field_selector=field_selector
            ):
                pause, told = _FIRST_PAUSE_S, ""
                complete = False
                if seen is not None:
                    for event in batch:
                        if event.type == "BOOKMARK":
                            complete = True
                        elif event.type == "DELETED":
                            seen.discard((event.namespace, event.name))
                        else:
                            seen.add((event.namespace, event.name))
                on_events(batch)
                if complete and seen is not None:
                    on_complete(seen)
                    seen = None
                if seen is None:
                    version = str(batch[-1].resource_version)
        except ApiError as error:
            if error.code == 410:
                version = None
                continue
            trouble = error.message
        except OSError as error:
            trouble = str(error)
        if trouble and trouble != told:
            _log.warning("watch interrupted", resource=resource, error=trouble)
            told = trouble
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE_S)
