"""What every plugin has, whatever points it implements."""

import abc
from collections.abc import Iterable, Mapping
from typing import ClassVar

from koord.kube.pods import PodSpec
from koord.scheduler.engine.cluster import Cluster, RowColumn
from koord.scheduler.framework.events import ALL_EVENTS, ClusterEvent
from koord.scheduler.framework.subjects import Template, Terms


class Plugin(abc.ABC):
    """What every plugin has. ``events`` are those that may help a pod that this plugin rejected.

    ``reads_images``: the plugin looks at the images of containers, so pods with other images are other classes; without
    any such plugin the images are left out of the template's spec.

    ``reads_amounts``: its terms depend on what pods ask for: resources of containers, overhead, the footprint. Where it
    is False, terms are made once for all pods that are alike but for these.

    ``reads_name``: its terms depend on the one node that a pod's affinity names, as it does for a DaemonSet. Where no
    plugin needs it, pods that are alike but for this node share their terms.

    ``epoch``: a plugin whose terms depend on more than the template (a Service that selects the pod) defines it for
    itself and moves it when terms made before, None included, may be others now; they are made anew then, and only if
    they are not equal the class is compiled again.
    """

    name: ClassVar[str]
    pod_keys: ClassVar[tuple[str, ...]] = ()
    reads_images: ClassVar[bool] = False
    reads_amounts: ClassVar[bool] = True
    reads_name: bool = False
    epoch: int = 0
    events: ClassVar[frozenset[ClusterEvent]] = ALL_EVENTS

    def attach(self, cluster: Cluster) -> None:  # noqa: B027 (most plugins keep nothing)
        """Called once, before anything else: take columns (``cluster.column``), keep the cluster to ``touch`` rows."""

    def label_keys(self, spec: PodSpec) -> Iterable[str]:
        """Labels by which pods of this spec select other pods: pods to place are told apart by them from now on."""
        return ()

    def per_pod(self, terms: Terms) -> Mapping[RowColumn, float]:
        """Locality ``usage``: what one more pod of the class adds to the plugin's own columns on its row.

        ``terms`` are those of the filter or the score. Must be whole numbers (below 2^53 in sum, so that they add up
        exactly) and equal what ``assigned`` does to the columns. A plugin whose columns change in another way when a
        pod comes (not by a fixed amount) has locality ``cluster``.
        """
        return {}

    def remarks(self, template: Template) -> Iterable[str]:
        """What pods of the class say that means nothing and is passed over: field, rule, text, what is done instead.
        Each is an Event ``InvalidField`` of each pod. Asked once for a class."""
        return ()

    def helps(self, template: Template, event: ClusterEvent, subject: object) -> bool:
        """Whether an event of ``events`` may let a pod of this class pass, which this plugin rejected.

        ``subject`` is what the event is about: the :class:`AssignedPod` that came or went, the node's ``NodeInfo`` as
        it is now, the object of a watch; None if it is not told. In doubt True.
        """
        return True
