"""The placement loop: pods in queue order onto nodes, with results equal to placing them one at a time.

A pod that is placed is *assumed*: its room is taken in the columns at once, so the next pod sees it. A run of pods of
one class is placed with a heap of best rows, each row's next keys being computed ahead; rows that no pod of the run
touched keep their keys, so taking the heap's top is exactly what an argmax over all rows would choose.
"""

import heapq
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from time import perf_counter
from types import MappingProxyType

import msgspec
import numpy as np

from koord.accounting.takes import Take
from koord.columns.matrix import Ints
from koord.scheduler.engine.classes import Program, SchedulingClass
from koord.scheduler.engine.cluster import TIE_BITS, Cluster, NodeChange, NodeInfo
from koord.scheduler.engine.diagnosis import Diagnosis, diagnose, failed, nodeless, rejected
from koord.scheduler.engine.evaluation import Evaluation
from koord.scheduler.engine.verdict import Verdicts
from koord.scheduler.framework.contract import AssignedPod, AssignPlugin, Plugin, PluginError, PodRef
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.framework.profile import Profile

RUN_MINIMUM = 4
RUN_MAXIMUM = 256
_NOTHING: Mapping[str, str] = MappingProxyType({})


class PodInfo(msgspec.Struct, gc=False, eq=False):
    """One pod to place. Equality is identity; the class is shared. ``owner`` is the kind of its controller."""

    ref: PodRef
    class_: SchedulingClass
    priority: int = 0
    owner: str = ""

    @property
    def uid(self) -> str:
        """The pod's uid."""
        return self.ref.uid

    def planned(self, node: str, now: float) -> AssignedPod:
        """The pod as it counts from its planning at ``now`` (epoch seconds) on."""
        template = self.class_.template
        return AssignedPod(
            self.ref, template.spec, template.footprint, node, self.priority, now, 0.0, 0.0, self.owner, False, True
        )


class Placed(msgspec.Struct, frozen=True, gc=False):
    """Where a pod goes, at which total score, and what plugins gave it there: annotations to write with its binding,
    and what to claim in the ledger besides its amounts."""

    node: str
    score: int
    annotations: Mapping[str, str] = _NOTHING
    takes: tuple[Take, ...] = ()


Outcome = Placed | Diagnosis


class Engine:
    """The cluster, the profiles, and the classes evaluated last. Not thread-safe; no I/O.

    Plugins are attached here, and told of nodes and of pods that have a node: each instance once, in however many
    profiles it is. ``profile`` is the first one.
    """

    def __init__(self, cluster: Cluster, *profiles: Profile, keep: int = 256) -> None:
        self.cluster = cluster
        self.profiles = profiles
        self.profile = profiles[0]
        self.plugins: tuple[Plugin, ...] = tuple(dict.fromkeys(p for profile in profiles for p in profile.plugins))
        self._assigning = tuple(dict.fromkeys(p for profile in profiles for p in profile.assigning))
        self._noding = tuple(dict.fromkeys(p for profile in profiles for p in profile.noding))
        self._ticking = tuple(dict.fromkeys(p for profile in profiles for p in profile.ticking))
        self._touching = any(type(p).reassigned is AssignPlugin.reassigned for p in self._assigning)
        self._assigned: dict[str, AssignedPod] = {}
        self.verdicts = Verdicts()
        self._keep = keep
        self._evaluations: OrderedDict[int, tuple[SchedulingClass, Evaluation]] = OrderedDict()
        self._diagnoses: dict[int, tuple[int, Diagnosis]] = {}
        self._assumed: dict[str, PodInfo] = {}
        self.errors: deque[PluginError] = deque(maxlen=100)
        """Errors of plugins that keep books, for whoever logs; a pod is placed all the same."""
        for plugin in self.plugins:
            plugin.attach(cluster)
        for row, node in enumerate(cluster.nodes):
            if node is not None:
                self._told_of(row, node)

    # Placing --------------------------------------------------------------------------------------------------------

    def place(
        self, pods: Sequence[PodInfo], outcomes: list[Outcome], *, until: float = float("inf"), now: float = 0.0
    ) -> int:
        """Place ``pods`` in order, appending to ``outcomes``, until done or ``perf_counter()`` passes ``until``.

        ``now`` (epoch seconds) is when they count as planned. Answers how many were handled (at least one); call again
        with the rest.
        """
        count = len(pods)
        start = 0
        while start < count:
            class_ = pods[start].class_
            stop = start + 1
            bound = min(count, start + RUN_MAXIMUM)
            while stop < bound and pods[stop].class_ is class_:
                stop += 1
            if stop - start >= RUN_MINIMUM:
                start += self._place_run(class_, pods[start:stop], outcomes, now)
            else:
                outcomes.append(self.place_one(pods[start], now))
                start += 1
            if perf_counter() >= until:
                break
        return start

    def place_one(self, pod: PodInfo, now: float = 0.0) -> Outcome:
        """Place one pod and assume it, or say why not. ``now`` (epoch seconds): when it counts as planned."""
        class_ = pod.class_
        if not len(self.cluster):
            return nodeless(plugin.name for plugin in class_.profile.filters)
        try:
            evaluation = self.evaluation(class_)
            if evaluation.program.prefilters:
                refusal = self._prefilter(evaluation.program)
                if refusal is not None:
                    return refusal
            keys = evaluation.refresh(self.cluster)
        except PluginError as error:
            return failed(self.cluster, error)
        row = int(keys.argmax()) if len(keys) else -1
        if row < 0 or keys[row] < 0:
            return self._diagnose(class_, evaluation.program)
        node = self.cluster.index.name(row)
        assert node is not None, "only live rows are feasible"
        score = int(keys[row]) >> TIE_BITS
        self.assume(pod, node, now)
        return Placed(node, score)

    def _place_run(self, class_: SchedulingClass, pods: Sequence[PodInfo], outcomes: list[Outcome], now: float) -> int:
        """Place pods of one class; answers how many were handled (a plugin may end a run early)."""
        cluster = self.cluster
        try:
            evaluation = self.evaluation(class_)
            program = evaluation.program
            keys = evaluation.refresh(cluster)
            if not program.row_local or not evaluation.fixed_extremes or not len(cluster):
                outcomes.append(self.place_one(pods[0], now))
                return 1
            ranking = _Ranking(cluster, evaluation, class_, keys, len(pods))
        except PluginError as error:
            outcomes.extend([failed(cluster, error)] * len(pods))
            return len(pods)
        # A plugin that judges each pod by its books must know of the one before; the others are told when the columns
        # are as one by one, because rows are looked ahead from what the columns were at the beginning.
        judging: list[Plugin] = [plugin for plugin, _ in program.prefilters]
        at_once = [plugin for plugin in self._assigning if plugin in judging]
        later = [plugin for plugin in self._assigning if plugin not in judging]
        placed: list[AssignedPod] = []
        rows: list[int] = []
        refusal: Diagnosis | None = None
        index = cluster.index
        handled = 0
        for pod in pods:
            if program.prefilters:
                try:
                    refusal = self._prefilter(program)
                except PluginError as error:
                    refusal = failed(cluster, error)
                if refusal is not None:
                    break
            try:
                best = ranking.take()
            except PluginError as error:
                refusal = failed(cluster, error)
                break
            if best is None:
                break
            key, row = best
            node = index.name(row)
            assert node is not None, "only live rows are feasible"
            planned = pod.planned(node, now)
            placed.append(planned)
            rows.append(row)
            for plugin in at_once:
                self._tell(plugin, planned)
            outcomes.append(Placed(node, key >> TIE_BITS))
            handled += 1
        if placed:
            cluster.assign_run([pod.ref.uid for pod in placed], class_.template.footprint, rows)
            for pod, planned in zip(pods, placed, strict=False):
                self._assumed[pod.ref.uid] = pod
                self._assigned[pod.ref.uid] = planned
                for plugin in later:
                    self._tell(plugin, planned)
        if handled == len(pods):
            return handled
        if refusal is None:
            refusal = self._diagnose(class_, program)
        # What stopped this pod stops every later one of the run: nothing is given back in between.
        outcomes.extend([refusal] * (len(pods) - handled))
        return len(pods)

    # Books ----------------------------------------------------------------------------------------------------------

    def assume(self, pod: PodInfo, node: str, now: float = 0.0) -> None:
        """Count a planned pod on its node."""
        self._assumed[pod.ref.uid] = pod
        self.count(pod.planned(node, now))

    def forget(self, uid: str) -> bool:
        """Take a planned pod back; False if it was not planned here (or was confirmed)."""
        if self._assumed.pop(uid, None) is None:
            return False
        self.uncount(uid)
        return True

    def confirm(self, uid: str) -> bool:
        """The API shows the pod on its node: it is counted like any other from now on, not to be forgotten."""
        return self._assumed.pop(uid, None) is not None

    def assumed(self, uid: str) -> bool:
        """Whether the pod is planned and not seen bound."""
        return uid in self._assumed

    @property
    def assumed_count(self) -> int:
        """How many pods are planned and not seen bound."""
        return len(self._assumed)

    def count(self, pod: AssignedPod) -> None:
        """A pod has a node now, or it changed there: the columns and the plugins that keep books learn of it.

        What was counted of the pod before is given back first. The node may be unknown yet.
        """
        uid = pod.ref.uid
        old = self._assigned.get(uid)
        if old is not None and old.node == pod.node:
            self._retell(old, pod)
            return
        if old is not None:
            self._untell(old)
        self.cluster.assign(uid, pod.footprint, pod.node)
        self._assigned[uid] = pod
        for plugin in self._assigning:
            self._tell(plugin, pod)

    def uncount(self, uid: str) -> AssignedPod | None:
        """A pod has its node no longer; answers what was counted of it."""
        old = self._assigned.pop(uid, None)
        if old is not None:
            self.cluster.unassign(uid)
            self._untell(old)
        return old

    def counted(self, uid: str) -> AssignedPod | None:
        """The pod as it counts now, None if it has no node."""
        return self._assigned.get(uid)

    def _tell(self, plugin: AssignPlugin, pod: AssignedPod) -> None:
        try:
            plugin.assigned(pod)
        except Exception as error:
            self.errors.append(PluginError(plugin.name, "Reserve", error))

    def _retell(self, old: AssignedPod, pod: AssignedPod) -> None:
        slot = self.cluster.assign(pod.ref.uid, pod.footprint, pod.node)
        self._assigned[pod.ref.uid] = pod
        for plugin in self._assigning:
            try:
                plugin.reassigned(old, pod)
            except Exception as error:
                self.errors.append(PluginError(plugin.name, "Reserve", error))
        if self._touching and slot.row >= 0:
            self.cluster.touch(slot.row)

    def _untell(self, pod: AssignedPod) -> None:
        for plugin in self._assigning:
            try:
                plugin.unassigned(pod)
            except Exception as error:
                self.errors.append(PluginError(plugin.name, "Unreserve", error))

    # Time and nodes -------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> list[ClusterEvent]:
        """Tell plugins the time (epoch seconds), before anything is placed and about every second; which events for
        rejected pods that amounts to."""
        events: list[ClusterEvent] = []
        for plugin in self._ticking:
            try:
                events.extend(plugin.tick(now))
            except Exception as error:
                self.errors.append(PluginError(plugin.name, "Tick", error))
        return events

    def set_node(self, node: NodeInfo) -> NodeChange:
        """Add or update a node, in the columns and for the plugins; ``problems`` are what these found not valid."""
        change = self.cluster.set_node(node)
        if not change.any:
            return change
        problems = self._told_of(change.row, node)
        return msgspec.structs.replace(change, problems=problems) if problems else change

    def remove_node(self, name: str) -> int | None:
        """Forget a node and return its row; its pods wait in case it comes back."""
        row = self.cluster.remove_node(name)
        if row is not None:
            for plugin in self._noding:
                try:
                    plugin.node_removed(row, name)
                except Exception as error:
                    self.errors.append(PluginError(plugin.name, "NodeRemoved", error))
        return row

    def _told_of(self, row: int, node: NodeInfo) -> tuple[str, ...]:
        problems: list[str] = []
        for plugin in self._noding:
            try:
                plugin.node_set(row, node)
            except ValueError as error:
                problems.append(str(error))
            except Exception as error:
                self.errors.append(PluginError(plugin.name, "NodeSet", error))
        return tuple(problems)

    # Asking ---------------------------------------------------------------------------------------------------------

    def evaluation(self, class_: SchedulingClass) -> Evaluation:
        """The kept ranking of a class, made if need be. PluginError: a plugin failed on the class."""
        key = id(class_)
        entry = self._evaluations.get(key)
        if entry is not None and entry[1].program.version == class_.template.footprint.version:
            self._evaluations.move_to_end(key)
            return entry[1]
        program = class_.compiled(self.cluster, self.verdicts)
        evaluation = Evaluation(program)
        self._evaluations[key] = (class_, evaluation)
        # One ranking takes 8 bytes a row: at most some 40 MB of them.
        if len(self._evaluations) > max(16, min(self._keep, 5_000_000 // len(self.cluster.alive))):
            dropped, _ = self._evaluations.popitem(last=False)
            self._diagnoses.pop(dropped, None)
        return evaluation

    def explain(self, class_: SchedulingClass) -> Diagnosis:
        """A fresh diagnosis, also of a class that fits (``feasible`` > 0)."""
        if not len(self.cluster):
            return nodeless(plugin.name for plugin in class_.profile.filters)
        try:
            program = self.evaluation(class_).program
            refusal = self._prefilter(program)
        except PluginError as error:
            return failed(self.cluster, error)
        return refusal if refusal is not None else diagnose(program, self.cluster)

    def _prefilter(self, program: Program) -> Diagnosis | None:
        for plugin, terms in program.prefilters:
            try:
                text = plugin.prefilter(terms)
            except Exception as error:
                raise PluginError(plugin.name, "PreFilter", error) from error
            if text is not None:
                return rejected(self.cluster, plugin.name, text)
        return None

    def _diagnose(self, class_: SchedulingClass, program: Program) -> Diagnosis:
        """The diagnosis as of the journal's end, kept until something changes: many equal pods cost one."""
        position = self.cluster.journal.end
        kept = self._diagnoses.get(id(class_))
        if kept is not None and kept[0] == position:
            return kept[1]
        made = diagnose(program, self.cluster)
        self._diagnoses[id(class_)] = (position, made)
        return made


class _Ranking:
    """The best rows of one class for a run of at most ``wanted`` pods, with the keys of what comes after each."""

    def __init__(
        self, cluster: Cluster, evaluation: Evaluation, class_: SchedulingClass, keys: Ints, wanted: int
    ) -> None:
        self._cluster = cluster
        self._evaluation = evaluation
        self._footprint = class_.template.footprint
        # Each pod uses at most one row that was untouched before it, so the best `wanted` rows always hold the choice.
        if len(keys) > wanted:
            best = np.argpartition(keys, len(keys) - wanted)[len(keys) - wanted :]
        else:
            best = np.arange(len(keys))
        best = best[keys[best] >= 0]
        order = best[np.argsort(-keys[best])]
        self._heap: list[tuple[int, int]] = list(zip((-keys[order]).tolist(), order.tolist(), strict=True))
        self._ahead: dict[int, list[int]] = {}
        self._level: dict[int, int] = {}
        if len(order):
            depth = int(min(8, max(1, 2 * wanted // len(order) + 1)))
            rows = np.repeat(order, depth)
            counts = np.tile(np.arange(1, depth + 1, dtype=np.float64), len(order))
            ahead = evaluation.ahead(cluster, self._footprint, rows, counts).reshape(len(order), depth).tolist()
            self._ahead = dict(zip(order.tolist(), ahead, strict=True))

    def take(self) -> tuple[int, int] | None:
        """Key and row of the best choice, which is used up by this; None: no row is feasible."""
        heap = self._heap
        if not heap:
            return None
        negative, row = heap[0]
        level = self._level.get(row, 0)
        ahead = self._ahead[row]
        if level == len(ahead):
            depth = min(2 * level, 256)
            counts = np.arange(level + 1, level + depth + 1, dtype=np.float64)
            rows = np.full(depth, row, dtype=np.int64)
            ahead.extend(self._evaluation.ahead(self._cluster, self._footprint, rows, counts).tolist())
        self._level[row] = level + 1
        following = ahead[level]
        if following >= 0:
            heapq.heapreplace(heap, (-following, row))
        else:
            heapq.heappop(heap)
        return -negative, row
