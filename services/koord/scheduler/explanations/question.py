"""Whom a question is about: a pod, the pods of a job, or the members of a gang or gang group (spec 10 section 2.10).

A pod of that name comes first; else pods that carry the key in their label, else members of the gang or gang group with
that id, else pods that an object of that name owns. Pure.
"""

from collections.abc import Callable, Iterable

from koord.kube.protocol.scheduler import QUESTIONED_OBJECT_KEY
from koord.scheduler.gang.book import Gang
from koord.scheduler.podview import PodView


class Search:
    """Looks at every pod once, for any number of ``keys``; ``gang_of`` tells a pod's gang by its uid."""

    def __init__(self, keys: Iterable[str], gang_of: Callable[[str], Gang | None]) -> None:
        self._found: dict[str, tuple[list[PodView], list[PodView], list[PodView]]] = {key: ([], [], []) for key in keys}
        self._gang_of = gang_of

    def look(self, pods: Iterable[PodView]) -> None:
        """Look at some pods."""
        found = self._found
        for pod in pods:
            meta = pod.metadata
            labelled = found.get(meta.labels.get(QUESTIONED_OBJECT_KEY, "")) if meta.labels else None
            if labelled is not None:
                labelled[0].append(pod)
            gang = self._gang_of(meta.uid)
            if gang is not None:
                for id_ in {gang.ref.id, gang.ref.group_id}:
                    if id_ in found:
                        found[id_][1].append(pod)
            for name in {owner.name for owner in meta.owner_references}:
                owned = found.get(f"{meta.namespace}/{name}")
                if owned is not None:
                    owned[2].append(pod)

    def pods(self, key: str) -> list[PodView]:
        """The pods that were found for a key, by name."""
        for pods in self._found[key]:
            if pods:
                return sorted(pods, key=lambda pod: pod.key)
        return []
