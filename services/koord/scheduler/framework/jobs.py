"""The points that look beyond one pod: a plan for a whole job, which pod comes next, what a pod takes where it goes.

The original calls them FindOneNode, NextPod and ResizePod (spec 10 section 3.4).
"""

import abc
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import msgspec

from koord.scheduler.engine.cluster import Cluster
from koord.scheduler.framework.plugin import Plugin
from koord.scheduler.framework.subjects import PodRef, Template, Terms

if TYPE_CHECKING:  # the engine stands on this package
    from koord.scheduler.engine.placement import Engine, PodInfo


class JobPlan(msgspec.Struct, frozen=True):
    """Where the pods of a job go: ``nodes`` by the pods' uids. ``pods``: uids of all that have to be in it; a plan that
    lacks one of them is an error. Pods that have a node by now, or are gone, are skipped."""

    nodes: Mapping[str, str]
    pods: tuple[str, ...] = ()


class PlanPlugin(Plugin):
    """Plans whole jobs (FindOneNode). Of several in a profile the first is asked.

    Whoever is tried brings its job with it: with the gate EnableInlineBatchSchedule all pods of the plan are placed
    and claimed together, each on its node after every filter there; without it the pod alone, on its node or nowhere.

    ``plan_resolvable``: where the plugin answers with a text, taking other pods away may help.
    """

    plan_resolvable: ClassVar[bool] = False

    @abc.abstractmethod
    def plans(self, template: Template) -> bool:
        """Whether the plugin may have a plan for pods of this class. Kept with the class, so that classes without one
        cost nothing."""

    @abc.abstractmethod
    def plan(self, pod: "PodInfo", engine: "Engine", waiting: Mapping[str, "PodInfo"]) -> JobPlan | str | None:
        """The plan of the pod's job, this pod in it; a text: why the pod cannot be placed; None: no plan, the pod is
        placed as usual.

        ``waiting`` has all pods by uid that this scheduler has to place, those included that are planned but not seen
        bound (``engine.assumed``). May take milliseconds, and must leave the engine as it was.
        """


class NextPodPlugin(Plugin):
    """Says which pod is tried next (NextPod). One in the process: a second one is not asked."""

    @abc.abstractmethod
    def next_pod(self, waiting: Mapping[str, "PodInfo"]) -> str | None:
        """The uid of the pod to try next, before all that the queue has; None: the queue's order.

        Asked again until it says None or names a pod that cannot be tried now (it is gated, under way, unknown, or
        another replica's).
        """


class ResizePlugin(Plugin):
    """Changes what a pod takes on the node that was chosen for it (ResizePod); gate ResizePod.

    It holds until the API shows the pod there: from then on the pod counts with what its spec says.
    """

    @abc.abstractmethod
    def resize_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """Terms of the class, or None: its pods stay as they are."""

    @abc.abstractmethod
    def resize(self, pod: PodRef, terms: Terms, request: Mapping[str, int], node: str) -> Mapping[str, int] | None:
        """What the pod requests on ``node`` instead of ``request`` (cpu in milli-cores, the rest in whole base units),
        None: the same. Where that has no room the next best node is tried."""
