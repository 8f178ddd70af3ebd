"""Which row an event is about, and what a filter says of it now: what most queueing hints come down to.

A pod was rejected everywhere. If the node that something happened to takes it now, the event helps; if not, nothing
that this plugin looks at changed for the better.
"""

import numpy as np

from koord.kube.nodemetrics import NodeMetric
from koord.scheduler.engine.cluster import Cluster, NodeInfo
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import AssignedPod, FilterPlugin, Template


def node_of(subject: object) -> str | None:
    """The name of the node that an event's subject is, or is on; None if it is about no node."""
    if isinstance(subject, AssignedPod):
        return subject.node
    if isinstance(subject, NodeInfo):
        return subject.name
    return subject.metadata.name if isinstance(subject, NodeMetric) else None


def takes_now(plugin: FilterPlugin, cluster: Cluster, template: Template, subject: object) -> bool:
    """Whether the plugin lets a pod of the class onto the subject's node now; True if there is no telling."""
    name = node_of(subject)
    if template.only and name is not None and name != template.only:
        return False
    terms = None if name is None else plugin.filter_terms(template, cluster)
    if name is None or terms is None:
        return True
    row = cluster.index.find(name)
    if row is None:
        return False
    return bool(plugin.filter(terms, Window.some(cluster, np.array([row], dtype=np.int64)))[0])
