"""What ReservePlugins gave to planned pods: cpus, devices, volumes. All of a pod's or nothing."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from koord.accounting.takes import Take
from koord.scheduler.engine.timing import SUCCESS, UNSCHEDULABLE, Timing
from koord.scheduler.framework.contract import AssignedPod, PluginError, PodRef, ReservePlugin, Terms

ReserveStep = tuple[ReservePlugin, Terms]


class Refusal(NamedTuple):
    """A plugin has nothing to give on a row that passed all filters. ``resolvable``: taking pods away may help."""

    plugin: str
    text: str
    row: int
    resolvable: bool = False


class Given(NamedTuple):
    """What all plugins together gave a pod."""

    annotations: Mapping[str, str]
    takes: tuple[Take, ...]
    slots: tuple[str, ...]


NONE_GIVEN: Final = Given({}, (), ())


class Reservations:
    """By pod, the plugins to ask back; ``errors`` is where those of taking back go."""

    def __init__(self, errors: deque[PluginError], timing: Timing) -> None:
        self._errors = errors
        self._timing = timing
        self._givers: dict[str, tuple[ReservePlugin, ...]] = {}

    def give(self, steps: Sequence[ReserveStep], pod: PodRef, row: int) -> Given | Refusal:
        """Ask the plugins in their order; if one refuses, the earlier ones take back. PluginError: one raised."""
        asked: list[ReservePlugin] = []
        annotations: dict[str, str] = {}
        takes: tuple[Take, ...] = ()
        slots: tuple[str, ...] = ()
        timing = self._timing
        for plugin, terms in steps:
            asked.append(plugin)
            begun = timing.begun() if timing.on else 0.0
            try:
                allocation = plugin.reserve(pod, terms, row)
            except Exception as error:
                self._undo(asked, pod.uid)
                raise PluginError(plugin.name, "Reserve", error) from error
            if begun:
                status = UNSCHEDULABLE if isinstance(allocation, str) else SUCCESS
                timing.took(plugin.name, "Reserve", begun, status)
            if isinstance(allocation, str):
                self._undo(asked, pod.uid)
                return Refusal(plugin.name, allocation, row)
            annotations.update(allocation.annotations)
            takes += allocation.takes
            slots += allocation.slots
        self._givers[pod.uid] = tuple(asked)
        return Given(annotations, takes, slots)

    def give_run(self, steps: Sequence[ReserveStep], pods: Sequence[AssignedPod], rows: Sequence[int]) -> list[Given]:
        """Ask for many pods, the i-th on the i-th row, in their order; what the first of them got, until one got
        nothing or a plugin raised."""
        given: list[Given] = []
        if len(steps) > 1:
            for pod, row in zip(pods, rows, strict=True):
                try:
                    one = self.give(steps, pod.ref, row)
                except PluginError:
                    break  # it is asked again for this pod alone, and named then
                if isinstance(one, Refusal):
                    break
                given.append(one)
            return given
        [(plugin, terms)] = steps
        givers, reserve, timing = (plugin,), plugin.reserve, self._timing
        for pod, row in zip(pods, rows, strict=True):
            ref = pod.ref
            begun = timing.begun() if timing.on else 0.0
            try:
                allocation = reserve(ref, terms, row)
            except Exception:
                allocation = ""  # as above
            if isinstance(allocation, str):
                self._undo(givers, ref.uid)
                break
            if begun:
                timing.took(plugin.name, "Reserve", begun)
            self._givers[ref.uid] = givers
            given.append(Given(allocation.annotations, allocation.takes, allocation.slots))
        return given

    def take_back(self, uid: str) -> None:
        """The pod is not to be bound after all."""
        self._undo(self._givers.pop(uid, ()), uid)

    def settle(self, uid: str) -> None:
        """The pod was seen bound: its annotations say what it has from now on."""
        self._givers.pop(uid, None)

    def _undo(self, plugins: Sequence[ReservePlugin], uid: str) -> None:
        for plugin in reversed(plugins):
            try:
                plugin.unreserve(uid)
            except Exception as error:
                self._errors.append(PluginError(plugin.name, "Unreserve", error))
