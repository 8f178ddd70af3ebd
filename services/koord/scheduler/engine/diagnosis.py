"""Why a class fits nowhere, in the words users know: ``0/N nodes are available: ...`` (spec 10 section 5)."""

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from koord.scheduler.engine.classes import Program
from koord.scheduler.engine.cluster import Cluster
from koord.scheduler.engine.fewrows import rows_of
from koord.scheduler.engine.reserving import Refusal
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import Pending, PluginError

NO_NODES = "no nodes available to schedule pods"
NOTE_LIMIT = 1024


class PluginReason(msgspec.Struct, frozen=True):
    """How many nodes one plugin refused for one reason."""

    plugin: str
    reason: str
    nodes: int
    resolvable: bool = True


class Diagnosis(msgspec.Struct, frozen=True):
    """Why a pod could not be placed. ``plugins`` are those whose events may help; ``error``: a plugin failed;
    ``again``: it is to be tried again soon, whatever happens. ``pending``: of ``plugins`` those that wait for something
    outside. ``whole``: PreFilter refused the pod as a whole, no node was looked at."""

    message: str
    plugins: frozenset[str]
    reasons: tuple[PluginReason, ...] = ()
    total: int = 0
    feasible: int = 0
    error: bool = False
    again: bool = False
    pending: frozenset[str] = frozenset()
    whole: bool = False

    @property
    def resolvable(self) -> bool:
        """Whether taking pods away from some node could help."""
        return any(reason.resolvable for reason in self.reasons)


def fit_error(total: int, reasons: Iterable[tuple[str, int]], prefilter: str = "") -> str:
    """The failure text: per reason how many nodes, sorted as text; or what PreFilter said."""
    if total == 0:
        return NO_NODES if not prefilter else f"0/0 nodes are available: {prefilter}."
    if prefilter:
        return f"0/{total} nodes are available: {prefilter}."
    parts = sorted(f"{count} {text}" for text, count in reasons if count)
    return f"0/{total} nodes are available: {', '.join(parts)}." if parts else f"0/{total} nodes are available"


def nodeless(plugins: Iterable[str]) -> Diagnosis:
    """There is no node at all; anything that any plugin waits for may help."""
    return Diagnosis(NO_NODES, frozenset(plugins))


def rejected(cluster: Cluster, plugin: str, text: str, resolvable: bool) -> Diagnosis:
    """A PreFilter plugin rejected the pod as a whole."""
    total = len(cluster)
    return Diagnosis(
        fit_error(total, (), text),
        frozenset((plugin,)),
        (PluginReason(plugin, str(text), total, resolvable),),
        total,
        pending=frozenset((plugin,)) if isinstance(text, Pending) else frozenset(),
        whole=True,
    )


def failed(cluster: Cluster, error: PluginError) -> Diagnosis:
    """A plugin raised: the pod waits, the loop goes on."""
    return Diagnosis(str(error), frozenset((error.plugin,)), (), len(cluster), 0, True)


def diagnose(program: Program, cluster: Cluster, refused: Sequence[Refusal] = ()) -> Diagnosis:
    """Count, per plugin and reason, the nodes that refuse; a node counts under the first plugin that refuses it.

    ``refused``: rows that pass all filters but on which a plugin had nothing to give to the pod.
    """
    total = len(cluster)
    counts: dict[tuple[str, str, bool], int] = {}
    plugins: set[str] = set()
    pending: set[str] = set()
    if program.names is None:
        window = Window.full(cluster)
    else:
        origin = program.names_from
        if not program.names:
            text = (
                f"node(s) didn't satisfy plugin {origin[0]}"
                if len(origin) == 1
                else f"node(s) didn't satisfy plugin(s) [{' '.join(origin)}] simultaneously"
            )
            return Diagnosis(
                fit_error(total, (), text),
                frozenset(origin),
                tuple(PluginReason(plugin, text, total, False) for plugin in origin),
                total,
                whole=True,
            )
        window = Window.some(cluster, rows_of(cluster, program.names))
        if window.size < total:
            text = f"node(s) didn't satisfy plugin(s) [{' '.join(origin)}]"
            counts[(origin[0], text, False)] = total - window.size
            plugins.update(origin)
    left = cluster.alive[window.rows].copy()
    for plugin, terms in program.steps:
        if not left.any():
            break
        try:
            gone = np.zeros(window.size, dtype=np.bool_)
            for reason in plugin.reasons(terms, window):
                rows = reason.rows & left
                number = int(rows.sum())
                if number:
                    key = (plugin.name, str(reason.text), reason.resolvable)
                    counts[key] = counts.get(key, 0) + number
                    plugins.add(plugin.name)
                    gone |= rows
                    if isinstance(reason.text, Pending):
                        pending.add(plugin.name)
        except Exception as error:
            return failed(cluster, PluginError(plugin.name, "Filter", error))
        left &= ~gone
    for name, text, _, resolvable in refused:
        # Only filters say whether taking pods away helps; the row itself was left by all of them.
        key = (name, str(text), resolvable)
        counts[key] = counts.get(key, 0) + 1
        plugins.add(name)
        if isinstance(text, Pending):
            pending.add(name)
    by_text: dict[str, int] = {}
    for (_, text, _), number in counts.items():
        by_text[text] = by_text.get(text, 0) + number
    return Diagnosis(
        fit_error(total, by_text.items()),
        frozenset(plugins),
        tuple(PluginReason(plugin, text, number, open_) for (plugin, text, open_), number in sorted(counts.items())),
        total,
        int(left.sum()) - len({refusal.row for refusal in refused}),
        pending=frozenset(pending),
    )


def note(message: str) -> str:
    """A message as an event's note: at most 1024 bytes, a cut one ends in `` ...``."""
    data = message.encode()
    if len(data) <= NOTE_LIMIT:
        return message
    return data[: NOTE_LIMIT - 4].decode(errors="ignore") + " ..."
