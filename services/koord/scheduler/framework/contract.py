"""The plugin contract: what a scheduler plugin is, point by point. Third parties import from here alone.

A plugin is installed by an entry point of the group ``koord.scheduler.plugins`` whose value is a callable that takes
the plugin's settings (a mapping, ``{}`` without any) and returns a :class:`Plugin`. It implements the points it wants
by deriving from the classes below.

**Classes, not pods.** Pods whose scheduling-relevant spec is equal share one *scheduling class*; a plugin compiles the
class once into *terms* (any hashable value; None: the plugin has nothing to do with this class) and is asked with these
terms from then on. Equal terms must mean equal answers. Labels and annotations that the plugin reads must be named in
``pod_keys``: only those are in the template, and only those tell classes apart.

**Rows, not nodes.** Filter and score get a :class:`Window` and answer for all of its rows in one array of
``window.size``. The same call serves all nodes, the few that changed, and rows as they would be with more pods on them;
an answer for a row must therefore not depend on which other rows are in the window.

**Locality** says what an answer depends on, and so how long it may be kept:

* ``node``: on the node object alone (labels, taints, allocatable). Kept until the node changes, shared by all classes
  with equal terms.
* ``usage``: on the row's own amounts and columns as well. Recomputed for a row whenever a pod comes to it or leaves, or
  somebody touched it. Runs of equal pods are looked ahead: :meth:`Plugin.per_pod` says what each adds to the columns.
* ``cluster``: on other rows too (how many pods of a kind a zone has). The plugin counts for itself and says by a
  version number when any answer changed; its answers for all rows are kept until then, and only they are recomputed.

**State.** A plugin that needs more than the columns of the cluster keeps its own: :class:`NodePlugin` is told of nodes,
:class:`AssignPlugin` of pods that have a node, :class:`WatchPlugin` of other objects; :meth:`Plugin.attach` hands it
the cluster, of which it takes columns and which it tells the rows that it changed.

The points themselves are in ``choosing``, ``keeping``, ``following`` and ``jobs``, what every plugin has in ``plugin``,
and what the points speak of in ``subjects``, all of this package.

A plugin that raises makes the pod unschedulable with the plugin's name in the message; the loop goes on.
"""

from koord.scheduler.framework.choosing import (
    FilterPlugin,
    PreEnqueuePlugin,
    PreferPlugin,
    PreFilterPlugin,
    ScorePlugin,
    TransformPlugin,
    Without,
)
from koord.scheduler.framework.following import (
    Allocation,
    PostFilterPlugin,
    PreBind,
    PreBindPlugin,
    Preempt,
    RefusedPlugin,
    Release,
    ReservePlugin,
    StandBy,
    Write,
)
from koord.scheduler.framework.jobs import (
    JobPlan,
    NextPodPlugin,
    PlanPlugin,
    ResizePlugin,
)
from koord.scheduler.framework.keeping import (
    AssignPlugin,
    NodePlugin,
    TickPlugin,
    Watch,
    WatchPlugin,
)
from koord.scheduler.framework.plugin import (
    Plugin,
)
from koord.scheduler.framework.subjects import (
    AssignedPod,
    Locality,
    Pending,
    PluginError,
    PodRef,
    Reason,
    Template,
    Terms,
)

__all__ = [
    "Allocation",
    "AssignPlugin",
    "AssignedPod",
    "FilterPlugin",
    "JobPlan",
    "Locality",
    "NextPodPlugin",
    "NodePlugin",
    "Pending",
    "PlanPlugin",
    "Plugin",
    "PluginError",
    "PodRef",
    "PostFilterPlugin",
    "PreBind",
    "PreBindPlugin",
    "PreEnqueuePlugin",
    "PreFilterPlugin",
    "Preempt",
    "PreferPlugin",
    "Reason",
    "RefusedPlugin",
    "Release",
    "ReservePlugin",
    "ResizePlugin",
    "ScorePlugin",
    "StandBy",
    "Template",
    "Terms",
    "TickPlugin",
    "TransformPlugin",
    "Watch",
    "WatchPlugin",
    "Without",
    "Write",
]
