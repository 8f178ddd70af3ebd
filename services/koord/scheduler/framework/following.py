"""The points that follow the choice of a node, or that none was found.

What a pod is given there, what is written before it is bound, who has to go for it.
"""

import abc
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import msgspec

from koord.accounting.takes import Take
from koord.kube.resources import Resource
from koord.scheduler.engine.cluster import Cluster
from koord.scheduler.framework.plugin import Plugin
from koord.scheduler.framework.subjects import AssignedPod, PodRef, Template, Terms

if TYPE_CHECKING:  # the engine stands on the contract
    from koord.scheduler.engine.diagnosis import Diagnosis
    from koord.scheduler.engine.placement import Engine, PodInfo


class Allocation(msgspec.Struct, frozen=True):
    """What a plugin gave a pod on its node, besides amounts.

    ``annotations`` are written to the pod together with its binding. ``takes`` are amounts and ``slots`` are single
    things (``cpu/<node>/<id>``) claimed in the ledger with it, so that no other scheduler gives away the same.
    """

    annotations: Mapping[str, str] = {}
    takes: tuple[Take, ...] = ()
    slots: tuple[str, ...] = ()


class ReservePlugin(Plugin):
    """Gives a pod certain things of the chosen node: cpus, devices, volumes. One pod at a time, after the choice."""

    reserves_what_it_filters: ClassVar[bool] = False
    """Reserve is asked wherever Filter is: the original's plugin has no Reserve, so no configuration lists it."""

    @abc.abstractmethod
    def reserve_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """Terms of the class, or None: its pods get nothing from this plugin."""

    def reserves(self, terms: Terms) -> bool:
        """Whether pods of the class may get something on any row now; asked before each placement, so keep it below a
        microsecond. False: ``reserve`` is not called, and equal pods are placed in runs."""
        return True

    def looks_ahead(self, terms: Terms) -> bool:
        """Whether equal pods may be placed in runs although each is given something.

        The plugin's Filter and Score answer then, in a window with ``counts``, as if each row had given so many more
        pods of the class what ``reserve`` would have given them one after the other. And ``reserve`` looks at nothing
        but the plugin's own books: the pods of a run are given their things in their order before any of them counts in
        the cluster's columns or is told as ``assigned``.
        """
        return False

    @abc.abstractmethod
    def reserve(self, pod: PodRef, terms: Terms, row: int) -> Allocation | str:
        """Give the pod what it needs on that row and remember it; a text: why that is not possible (the next best row
        is tried). Follows the choice at once, before the pod is told as ``assigned``."""

    @abc.abstractmethod
    def unreserve(self, uid: str) -> None:
        """Take back what :meth:`reserve` gave. Must do nothing for a pod that has nothing, and may be called twice.

        Not called for a pod that was seen bound: then its annotations say what it has, in ``assigned``, and
        ``unassigned`` ends that.
        """


class Write(msgspec.Struct, frozen=True):
    """A JSON merge patch of one object, or of its ``subresource``; ``uid`` and ``resource_version``, where set, are
    preconditions."""

    resource: Resource
    namespace: str
    name: str
    body: bytes
    uid: str = ""
    resource_version: str = ""
    subresource: str = ""


class PreBind(msgspec.Struct, frozen=True):
    """What must be written before a pod is bound, and how long (seconds) it may take until that has its effect."""

    writes: tuple[Write, ...]
    timeout_s: float


class PreBindPlugin(Plugin):
    """Has something of the pod's in the API before the pod is bound: volumes. Its room is claimed meanwhile.

    A failure gives everything back (``unreserve`` is called) and the pod is tried again after backing off.
    """

    @abc.abstractmethod
    def prebind(self, pod: PodRef, node: str) -> PreBind | str | None:
        """Asked once the pod's claim was accepted; None: it can be bound at once; a text: why it cannot be bound."""

    @abc.abstractmethod
    def prebound(self, uid: str) -> "bool | str | PreBind":
        """Whether the pod can be bound now (it is not asked again then); a text: why it never will be.

        A PreBind: more writes, which had to wait for the earlier ones, and the time it may take from now on.

        Asked each second, and when an object that the plugin watches changed, from when ``prebind`` wanted to wait.
        """


class Preempt(msgspec.Struct, frozen=True):
    """The pod is to wait for ``node``; ``victims`` there have to go. ``violating``: uids of those that go although a
    disruption budget has no room; ``budgets`` (``ns/name``) by uid: those that the others take from."""

    node: str
    victims: tuple[AssignedPod, ...] = ()
    violating: frozenset[str] = frozenset()
    budgets: Mapping[str, tuple[str, ...]] = {}


class StandBy(msgspec.Struct, frozen=True):
    """Nothing is to be done for the pod now, but the node that it waits for stays its own; ``text`` says why."""

    text: str


class Release(msgspec.Struct, frozen=True):
    """Something that keeps the pod from every node is to be given back in the API; ``text`` says so."""

    writes: tuple[Write, ...]
    text: str


class RefusedPlugin(Plugin):
    """Hears of every pod that found no place (AfterPostFilter, and the original's error handlers)."""

    @abc.abstractmethod
    def refused(self, pod: "PodInfo", diagnosis: "Diagnosis") -> None:
        """Told after everything else, PostFilter's text included; an error of the plugin is logged and counted."""


class PostFilterPlugin(Plugin):
    """Looks for a way out when a pod fits nowhere. The plugins are asked in order until one has one."""

    def begun(self, uid: str) -> None:
        """Victims that it named for the pod are asked to go; not all of them have been yet."""

    def finished(self, uid: str) -> None:
        """All of them have been, or nothing more is heard of it, or the pod is gone. May come without a beginning."""

    @abc.abstractmethod
    def post_filter(
        self, pod: "PodInfo", engine: "Engine", diagnosis: "Diagnosis"
    ) -> Preempt | StandBy | Release | str | None:
        """What to do for the pod; a text: why nothing can be done, added to the pod's message; None: nothing to say.

        May take milliseconds. May take pods off the engine's books to see, and must leave them as they were.
        """

    def candidates(
        self, pod: "PodInfo", engine: "Engine", diagnosis: "Diagnosis"
    ) -> Sequence[Preempt] | StandBy | Release | str | None:
        """As :meth:`post_filter`, with all nodes that it chooses from: asked where an extender has a say in it."""
        found = self.post_filter(pod, engine, diagnosis)
        return (found,) if isinstance(found, Preempt) else found

    def revised(self, found: Preempt, victims: tuple[AssignedPod, ...]) -> Preempt:
        """``found`` with the ``victims`` that an extender chose there, most important first."""
        return msgspec.structs.replace(found, victims=victims)
