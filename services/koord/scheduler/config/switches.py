"""Flags and feature gates of the original's scheduler (spec 10 section 2.3): which koord honours, and what of the rest.

``honoured``: koord does what it says. ``moot``: accepted; koord is built so that it changes nothing, a value other than
the default gives a warning. ``absent``: what it asks for is not there in koord; any value but the default is an error.
"""

import re
from collections.abc import Mapping, Sequence
from math import inf, isfinite
from typing import Any

import msgspec

from koord.kube.protocol.gotext import DurationError, go_bool, go_duration
from koord.scheduler.config.errors import ConfigError, Problem, invalid
from koord.scheduler.config.flags import FLAGS, Flag, Kind, Support, Value

GATES_FLAG = "feature-gates"


class Gate(msgspec.Struct, frozen=True):
    """A feature gate."""

    name: str
    default: bool
    support: Support
    note: str


_ORIGINALS_CACHE = "koord reads nothing through informers"

GATES: tuple[Gate, ...] = (
    Gate("ResizePod", False, "honoured", "setting scheduler.feature_gates"),
    Gate("LazyReservationRestore", False, "moot", "a way to save time in the original"),
    Gate("OmitNodeLabelsForReservation", False, "absent", "there are no reservations yet"),
    Gate("SkipReservationFitsNode", False, "absent", "there are no reservations yet"),
    Gate("DevicePluginAdaption", False, "absent", "DeviceShare is not there yet"),
    Gate("CleanExpiredReservationAllocated", False, "absent", "there are no reservations yet"),
    Gate("DynamicSchedulerCheck", True, "moot", "a Binding's preconditions make the API server check"),
    Gate("CrossSchedulerNomination", False, "moot", "room that others' pods are nominated to is kept, always"),
    Gate("SkipFilterWithNominatedPods", False, "honoured", "a node may take a pod because of who is nominated there"),
    Gate("SyncBarrier", False, "moot", "the gateway has a barrier of its own, always on"),
    Gate("GangPendingPodsConditionPatch", True, "moot", "members always say what their gang lacks"),
    Gate("EnableInlineBatchSchedule", False, "honoured", "setting scheduler.feature_gates"),
    Gate("EnableBatchScheduleNodeSnapshot", True, "moot", "there is no snapshot to take"),
    Gate("PriorityTransformer", False, "honoured", "setting scheduler.feature_gates or .transformers"),
    Gate("PreemptionPolicyTransformer", False, "honoured", "setting scheduler.feature_gates or .transformers"),
    Gate("ReplaceResourcesTransformer", False, "honoured", "setting scheduler.feature_gates or .transformers"),
    Gate("MultiQuotaTree", False, "moot", "several quota trees always work"),
    Gate("CompatibleCSIStorageCapacity", False, "moot", _ORIGINALS_CACHE),
    Gate("DisableCSIStorageCapacityInformer", False, "moot", _ORIGINALS_CACHE),
    Gate("CompatiblePodDisruptionBudget", False, "moot", _ORIGINALS_CACHE),
    Gate("DisablePodDisruptionBudgetInformer", False, "moot", _ORIGINALS_CACHE),
    Gate("DisableDynamicResourceAllocationInformer", False, "moot", _ORIGINALS_CACHE),
    Gate("StorageCapacityScoring", False, "moot", "VolumeBindingArgs.shape turns it on"),
    Gate("SchedulerQueueingHints", True, "moot", "upstream has it locked"),
    Gate("SchedulerPopFromBackoffQ", True, "moot", "koord always does so"),
    Gate("SchedulerAsyncPreemption", True, "moot", "nothing waits for the API server in koord"),
    Gate("NominatedNodeNameForExpectation", True, "honoured", "of pods that wait for something before their binding"),
    Gate("DynamicResourceAllocation", True, "moot", "upstream has it locked"),
    Gate("OpportunisticBatching", True, "moot", "equal pods always share their work"),
    Gate("SchedulerAsyncAPICalls", False, "moot", "nothing waits for the API server in koord"),
)

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")


class Switches(msgspec.Struct, frozen=True):
    """Every flag and gate with its value; warnings for those that were set and change nothing. ``settings``: what those
    that were set come to, as in koord's settings file."""

    flags: dict[str, Value]
    gates: dict[str, bool]
    warnings: tuple[str, ...] = ()
    settings: Mapping[str, Any] = {}


def read_switches(arguments: Sequence[str]) -> Switches:
    """The command line of the original's Deployment, each argument ``--name=value``, ``--name`` or ``-v=4``.

    ConfigError names every flag that is unknown, whose value is wrong, or that asks for what koord does not have.
    """
    return _Reader().read(arguments)


class _Reader:
    def __init__(self) -> None:
        self._by_name = {flag.name: flag for flag in FLAGS}
        self._by_name |= {flag.short: flag for flag in FLAGS if flag.short}
        self._gates = {gate.name: gate for gate in GATES}
        self._problems: list[Problem] = []
        self._warnings: list[str] = []
        self._settings: dict[str, Any] = {}

    def read(self, arguments: Sequence[str]) -> Switches:
        """All arguments."""
        flags = {flag.name: flag.default for flag in FLAGS}
        gates = {gate.name: gate.default for gate in GATES}
        left = list(arguments)
        while left:
            argument = left.pop(0)
            name, given, text = argument.lstrip("-").partition("=")
            where = f"--{name}" if len(name) > 1 else f"-{name}"
            flag = self._by_name.get(name)
            if not argument.startswith("-") or not name:
                self._problems.append(invalid("", argument, "must be a flag"))
            elif name == GATES_FLAG or (flag is not None and flag.kind != "bool" and not given):
                if not given:
                    text = left.pop(0) if left else ""
                if name == GATES_FLAG:
                    self._read_gates(text, gates)
                else:
                    assert flag is not None
                    self._set(flag, where, text, flags)
            elif flag is None:
                self._problems.append(Problem(where, "unknown flag"))
            else:
                self._set(flag, where, text if given else "true", flags)
        if self._problems:
            raise ConfigError(self._problems)
        return Switches(flags, gates, tuple(self._warnings), self._settings)

    def _set(self, flag: Flag, where: str, text: str, flags: dict[str, Value]) -> None:
        try:
            value = _value(flag.kind, text)
        except ValueError as error:
            self._problems.append(invalid(where, text, str(error)))
            return
        flags[flag.name] = value
        if flag.setting:
            self._put(flag.setting, _pairs(text) if flag.kind == "pairs" else value)
        if value != flag.default:
            self._judge(flag.support, where, flag.note)

    def _read_gates(self, text: str, gates: dict[str, bool]) -> None:
        for part in text.split(","):
            name, given, word = part.strip().partition("=")
            if not name:
                continue
            where = f"--{GATES_FLAG}: {name}"
            gate, value = self._gates.get(name), go_bool(word) if given else None
            if value is None:
                self._problems.append(invalid(where, word, "must be true or false, as in Name=true"))
            elif gate is None:
                # kube-scheduler has some hundred more, most of them of other components.
                self._warnings.append(f"{where}: unknown to koord, has no effect")
            else:
                gates[name] = value
                if gate.support == "honoured":
                    self._put(f"scheduler.feature_gates.{name}", value)
                if value != gate.default:
                    self._judge(gate.support, where, gate.note)

    def _put(self, path: str, value: object) -> None:
        *above, last = path.split(".")
        place = self._settings
        for name in above:
            place = place.setdefault(name, {})
        place[last] = value

    def _judge(self, support: Support, where: str, note: str) -> None:
        if support == "absent":
            self._problems.append(Problem(where, f"not there in koord: {note}"))
        elif support == "moot":
            self._warnings.append(f"{where}: has no effect: {note}")


def _value(kind: Kind, text: str) -> Value:
    """The value of a flag; ValueError says the rule."""
    if kind == "bool":
        value = go_bool(text)
        if value is None:
            raise ValueError("must be true or false")
        return value
    if kind == "whole":
        if not _WHOLE.fullmatch(text):
            raise ValueError("must be a whole number")
        return int(text)
    if kind == "number":
        try:
            number = float(text)
        except ValueError:
            number = inf
        if not isfinite(number):
            raise ValueError("must be a number")
        return number
    if kind == "pairs":
        _pairs(text)
    if kind == "duration":
        try:
            return go_duration(text) / 1e9
        except DurationError as error:
            raise ValueError(str(error)) from error
    return text


def _pairs(text: str) -> dict[str, str]:
    """``name=value`` with commas between; ValueError says the rule."""
    found: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, given, value = part.partition("=")
        if not given or not name or not value:
            raise ValueError("must be name=value, with commas between")
        found[name] = value
    return found
