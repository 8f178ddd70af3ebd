"""PriorityClass: a name for a pod priority."""

from koord.kube.meta import TypedObject


class PriorityClass(TypedObject, frozen=True):
    """A named priority; at most one is the default for pods that name none."""

    value: int = 0
    global_default: bool = False
    preemption_policy: str = ""
    description: str = ""
