"""A job's priority: annotation, then priority classes, then plain integers (spec 70 section 3.4)."""

from collections.abc import Mapping, Sequence

import msgspec

from koord.kube.jobs.kind import PrioritySource
from koord.kube.protocol.queue import queue_priority


class ResolvedPriority(msgspec.Struct, frozen=True):
    """``value`` None: nothing sets one. ``unknown`` lists (field, class) that do not exist; ``problem`` a bad text."""

    value: int | None
    class_name: str = ""
    unknown: tuple[tuple[str, str], ...] = ()
    problem: str = ""


def resolve(
    annotations: Mapping[str, str], sources: Sequence[PrioritySource], classes: Mapping[str, int]
) -> ResolvedPriority:
    """The priority of a job. ``classes`` maps PriorityClass names to values.

    The first source that names a class names the unit's class; the first that leads to a number gives the value. An
    unknown class leaves its source's integer; the annotation, where it is an integer, overrides every value.
    """
    own, problem = queue_priority(annotations)
    class_name = next((source.class_name for source in sources if source.class_name), "")
    value: int | None = None
    unknown: list[tuple[str, str]] = []
    for source in sources:
        if source.class_name and source.class_name not in classes:
            unknown.append((source.field, source.class_name))
        value = classes.get(source.class_name, source.value) if source.class_name else source.value
        if value is not None:
            break
    return ResolvedPriority(value if own is None else own, class_name, tuple(unknown), problem)
