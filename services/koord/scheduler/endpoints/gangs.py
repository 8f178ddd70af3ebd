"""``plugins/Coscheduling/gangs`` and ``gang/{namespace}/{name}``: gangs as they are counted (spec 20 section 5)."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from koord.scheduler.engine.placement import Engine
from koord.scheduler.framework.endpoints import Endpoint, EndpointError, Parameters
from koord.scheduler.gang.book import Gang, GangBook
from koord.scheduler.plugins.coscheduling import Coscheduling

MOST_GANGS = 500
"""Gangs of one answer; ``after`` asks for those behind an id."""
MOST_MEMBERS = 1000
"""Members of one gang that are shown in each set; the numbers are of all."""


def endpoints(plugin: Coscheduling, engine: Engine, created: Callable[[str], str]) -> Mapping[str, Endpoint]:
    """The plugin's pages. ``created`` tells when the PodGroup with a gang's id was created."""
    book = plugin.book

    def one(parameters: Parameters) -> object:
        id_ = f"{parameters['namespace']}/{parameters['name']}"
        found = book.gangs.get(id_)
        if found is None:
            raise EndpointError(404, f"cannot find gang {id_}")
        return gang(book, found, engine, created(id_))

    def all_(parameters: Parameters) -> object:
        after = parameters.get("after", "")
        ids = sorted(id_ for id_ in book.gangs if id_ > after)[:MOST_GANGS]
        return {id_: gang(book, book.gangs[id_], engine, created(id_)) for id_ in ids}

    return {"gangs": all_, "gang/{namespace}/{name}": one}


def gang(book: GangBook, found: Gang, engine: Engine, created: str) -> dict[str, Any]:
    """One gang under the original's names. ``waitTime`` is in nanoseconds; ``createTime`` is its PodGroup's, and empty
    for a gang that only annotations of pods name."""
    waiting = {uid: pod for uid, pod in found.planned.items() if uid not in found.sent}
    bound = [(pod.ref.namespace, pod.ref.name) for uid in found.bound if (pod := engine.counted(uid)) is not None]
    pending = _names(found.pending.values())
    waits = _names(waiting.values())
    is_bound = {f"{namespace}/{name}": _EMPTY for namespace, name in sorted(bound)[:MOST_MEMBERS]}
    return {
        "name": found.ref.id,
        "waitTime": round(book.wait_s(found) * 10**9),
        "createTime": created,
        "mode": found.ref.mode,
        "gangMatchPolicy": book.policy(found),
        "minRequiredNumber": found.ref.min or 0,
        "totalChildrenNum": found.ref.total or found.ref.min or 0,
        "memberCount": found.members,
        "gangGroup": list(found.ref.groups),
        "children": _names(found.planned.values()) | pending | is_bound,
        "pendingChildren": pending,
        "waitingForBindChildren": waits,
        "boundChildren": is_bound,
        "onceResourceSatisfied": book.once_satisfied(found),
        "gangGroupInfo": {
            "GangGroupId": found.ref.group_id,
            "OnceResourceSatisfied": book.once_satisfied(found),
            "WaitingGangIDs": sorted(other.ref.id for other in book.group(found) if other.planned),
        },
        "gangFrom": "GangFromPodGroupCrd" if found.pod_group else "GangFromPodAnnotation",
        "hasGangInit": found.initialised,
    }


_EMPTY: dict[str, Any] = {}


def _names(pods: Iterable[Any]) -> dict[str, dict[str, Any]]:
    return dict.fromkeys(sorted(f"{pod.namespace}/{pod.name}" for pod in pods)[:MOST_MEMBERS], _EMPTY)
