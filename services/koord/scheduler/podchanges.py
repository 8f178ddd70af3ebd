"""What an update of a pod changes: most change nothing that scheduling looks at."""

from collections.abc import Iterable, Mapping

from koord.kube.protocol.scheduler import BIND_SETTLED
from koord.scheduler.podview import PodView


def differs(old: PodView, new: PodView) -> bool:
    """Whether an update of a pending pod can change its placement."""
    return (
        old.shape is not new.shape
        or old.only != new.only
        or old.metadata.labels != new.metadata.labels
        or _notes_differ(old.metadata.annotations, new.metadata.annotations)
        or old.spec.priority != new.spec.priority
        or old.spec.scheduling_gates != new.spec.scheduling_gates
        or old.images != new.images
    )


def counts_anew(old: PodView, new: PodView, keys: Iterable[str]) -> bool:
    """Whether an update of a pod on its node changes anything that is kept of it; ``keys``: annotations that are."""
    return (
        old.shape is not new.shape
        or old.metadata.labels != new.metadata.labels
        or old.status.conditions != new.status.conditions
        or old.status.start_time != new.status.start_time
        or old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
        or old.spec.priority != new.spec.priority
        or _differ_in(keys, old.metadata.annotations, new.metadata.annotations)
    )


def _notes_differ(old: Mapping[str, str], new: Mapping[str, str]) -> bool:
    """Without the gateway's settling: a barrier settles all that waits, which is no reason to try all of it again."""
    return old != new and any(old.get(key) != new.get(key) for key in old.keys() | new.keys() if key != BIND_SETTLED)


def _differ_in(keys: Iterable[str], old: Mapping[str, str], new: Mapping[str, str]) -> bool:
    return old != new and any(old.get(key) != new.get(key) for key in keys)
