"""Which pods belong together although they say nothing of it: those of a Service, a ReplicaSet or a StatefulSet.

The default constraints spread these. Services are read. ReplicaSets and StatefulSets are not: there may be ten times
as many as workloads, each with a whole pod template in it, and their controllers mark their pods with a label that says
as much as their selectors do (of a StatefulSet: within one revision).
"""

from collections.abc import Mapping

import msgspec

from koord.kube.meta import TypedObject, View
from koord.kube.selectors import IN, Requirement, Selector
from koord.scheduler.engine.podselectors import Labels

TEMPLATE_HASH = "pod-template-hash"
REVISION_HASH = "controller-revision-hash"
OF_ONE_POD = frozenset(
    (
        "statefulset.kubernetes.io/pod-name",
        "apps.kubernetes.io/pod-index",
        "batch.kubernetes.io/job-completion-index",
        "training.kubeflow.org/replica-index",
    )
)
"""Labels that are different on every pod. A Service that selects by one is the address of that pod and spreads nothing;
it is left out, so that the pods of a StatefulSet or a training job, which all have one, stay one class."""
OWNER_LABEL: Mapping[str, str] = {"ReplicaSet": TEMPLATE_HASH, "StatefulSet": REVISION_HASH}


class ServiceSpec(View, frozen=True):
    """Which pods a Service is for; without a selector for none."""

    selector: dict[str, str] | None = None


class Service(TypedObject, frozen=True):
    """A Service."""

    spec: ServiceSpec = msgspec.field(default_factory=ServiceSpec)


def spreading(service: Service | None) -> Labels:
    """The selector by which a Service spreads its pods; empty if it does not."""
    selector = {} if service is None else service.spec.selector or {}
    return {} if selector.keys() & OF_ONE_POD else selector


class Services:
    """The Services of all namespaces, found by one label that each asks for."""

    def __init__(self) -> None:
        self._posted: dict[tuple[str, str, str], dict[str, Labels]] = {}

    def set(self, namespace: str, name: str, old: Labels, new: Labels) -> bool:
        """The selector of a Service, which was ``old`` (empty: none); True if it is another one."""
        if old == new:
            return False
        if old:
            key = (namespace, *min(old.items()))
            posted = self._posted.get(key, {})
            posted.pop(name, None)
            if not posted:
                self._posted.pop(key, None)
        if new:
            self._posted.setdefault((namespace, *min(new.items())), {})[name] = new
        return True

    def selector(self, namespace: str, labels: Labels, owner: str) -> Selector:
        """What all Services of a pod with these labels ask for together, and its controller of kind ``owner``; no
        tests if it has none."""
        merged: dict[str, str] = {}
        for key, value in labels.items():
            for wanted in self._posted.get((namespace, key, value), _NONE).values():
                if all(labels.get(name) == of for name, of in wanted.items()):
                    merged.update(wanted)
        mark = OWNER_LABEL.get(owner)
        if mark is not None and mark in labels:
            merged[mark] = labels[mark]
        return Selector(tuple(Requirement(key, IN, frozenset((value,))) for key, value in sorted(merged.items())))


_NONE: Mapping[str, Labels] = {}
