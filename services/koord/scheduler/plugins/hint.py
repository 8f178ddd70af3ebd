"""SchedulingHint: somebody who planned ahead names the nodes that a pod must, or should, go to. Spec 10 section 3.13.

A text that cannot be read makes the pod unschedulable with the reason, where the original only fails the attempt.
"""

from collections.abc import Mapping
from typing import ClassVar, Final

import msgspec

from koord.kube.protocol.nodekeys import decode_value
from koord.scheduler.config.koordinatorargs import SchedulingHintArgs
from koord.scheduler.engine.cluster import Cluster
from koord.scheduler.framework.contract import PreferPlugin, PreFilterPlugin, Template, Terms
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.plugins.rows import node_of

HINT: Final = "internal.scheduling.koordinator.sh/scheduling-hint"
LEGACY_HINT: Final = "scheduling.koordinator.sh/scheduling-hint"
"""Read if the other annotation is absent or empty."""


class Hint(msgspec.Struct, frozen=True, rename="camel"):
    """``node_names``: only these; ``preferred_node_names``: the first of them that can take the pod, if one can."""

    node_names: tuple[str, ...] = ()
    preferred_node_names: tuple[str, ...] = ()


class SchedulingHint(PreFilterPlugin, PreferPlugin):
    """Narrows the nodes by annotation, and tries some before all others."""

    name: ClassVar[str] = "SchedulingHint"
    reads_amounts: ClassVar[bool] = False
    pod_keys: ClassVar[tuple[str, ...]] = (HINT, LEGACY_HINT)
    events: ClassVar[frozenset[ClusterEvent]] = frozenset((ClusterEvent.NODE_ADD,))
    prefilter_resolvable: ClassVar[bool] = False

    def __init__(self, args: SchedulingHintArgs | None = None) -> None:
        self._most = (args or SchedulingHintArgs()).max_hint_nodes

    def attach(self, cluster: Cluster) -> None:
        """Keeps the cluster for its hint to the queue."""
        self._cluster = cluster

    def prefilter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """The names, or why they cannot be read."""
        try:
            hint = hint_of(template.annotations)
        except ValueError as error:
            return str(error)
        return frozenset(hint.node_names) if hint is not None and hint.node_names else None

    def helps(self, template: Template, event: ClusterEvent, subject: object) -> bool:
        """Only a node that the hint names does. The original wakes the pod at whatever happens."""
        terms = self.prefilter_terms(template, self._cluster)
        name = node_of(subject)
        return name is None or (isinstance(terms, frozenset) and name in terms)

    def prefilter(self, terms: Terms) -> str | None:
        """What is wrong with the annotation."""
        return terms if isinstance(terms, str) else None

    def node_names(self, terms: Terms) -> frozenset[str] | None:
        """Exactly these."""
        return terms if isinstance(terms, frozenset) else None

    def prefer_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """The names in order, at most so many as the arguments say."""
        try:
            hint = hint_of(template.annotations)
        except ValueError:
            return None
        return hint.preferred_node_names[: self._most] or None if hint is not None else None

    def preferred_nodes(self, terms: Terms) -> tuple[str, ...]:
        """These, in order."""
        assert isinstance(terms, tuple)
        return terms


def hint_of(annotations: Mapping[str, str]) -> Hint | None:
    """What a pod's annotations say. ValueError names the annotation and the rule."""
    for key in (HINT, LEGACY_HINT):
        text = annotations.get(key)
        if text:
            return decode_value(key, text, Hint)
    return None
