"""The checks of Filter and the rating of Score node by node: what :class:`rows.Rows` answers from columns.

Of nodes that just changed, or as they would be with more pods, there are no columns. What the pod would get there is
worked out instead, which Reserve finds again; only what the amounts of the whole node decide is left to arithmetic.
"""

from collections.abc import Sequence

import numpy as np

from koord.columns.matrix import Bools, Floats
from koord.scheduler.engine.resources import CPU as CPU_COLUMN
from koord.scheduler.engine.window import Window
from koord.scheduler.numa.amplification import amplify, amplify_rows, with_bound, with_bound_rows
from koord.scheduler.numa.placing import Placement, PodWish
from koord.scheduler.numa.scores import mean
from koord.scheduler.numa.state import NodeState
from koord.scheduler.plugins.nodenumaresource.settings import NUMASettings
from koord.scheduler.plugins.nodenumaresource.terms import CPU, NUMATerms
from koord.scheduler.plugins.nodenumaresource.working import REFUSED, Answer, Worked, Working
from koord.scheduler.plugins.nodenumaresource.zonerows import mean_rows


def answer(
    state: NodeState, terms: NUMATerms, window: Window, at: int, settings: NUMASettings, working: Working
) -> Answer:
    """Filter and Score on the node at place ``at`` of the window."""
    return of_worked(state, working.out(state, terms), terms, window, at, settings)


def of_worked(
    state: NodeState, worked: Worked, terms: NUMATerms, window: Window, at: int, settings: NUMASettings
) -> Answer:
    """The same where it is known already what the pod gets."""
    if worked.at_once is not None:
        return worked.at_once
    ratio, wish, found = state.layout.ratio, worked.wish, worked.found
    if terms.cpu and (ratio is None or ratio > 1.0) and not _amplified(state, terms, wish, window, at):
        return REFUSED
    if isinstance(found, Placement) and found.mask is not None:
        return Answer(True, worked.rating(state, found.mask))
    return Answer(True, float(_node_score(state, wish, window, at, settings)))


Known = tuple[NodeState, Worked]
"""A node, and what a pod of the class gets there; None in its place: there is no node."""
SEVERAL = 4
"""From so many nodes on one pass over arrays is faster than one by one."""


def answers(known: Sequence[Known | None], terms: NUMATerms, window: Window, settings: NUMASettings) -> list[Answer]:
    """Filter and Score on all rows of the window, of which ``known`` has one each."""
    found: list[Answer] = []
    left: list[int] = []
    for at, one in enumerate(known):
        if one is None:
            found.append(REFUSED)
            continue
        at_once = one[1].at_once
        if at_once is None:
            left.append(at)
            at_once = REFUSED
        found.append(at_once)
    if len(left) < SEVERAL:
        for at in left:
            if (there := known[at]) is not None:
                found[at] = of_worked(*there, terms, window, at, settings)
    else:
        picked = [there for at in left if (there := known[at]) is not None]
        for at, answer_ in zip(left, _by_amounts(picked, left, terms, window, settings), strict=True):
            found[at] = answer_
    return found


def _by_amounts(
    known: Sequence[Known], at: list[int], terms: NUMATerms, window: Window, settings: NUMASettings
) -> list[Answer]:
    """:func:`of_worked` for many: node ``i`` is at place ``at[i]`` of the window."""
    size = len(at)
    ratios = [state.layout.ratio for state, _ in known]
    ratio: Floats = np.array([1.0 if one is None else one for one in ratios])
    bound: Floats = 1000.0 * np.array([state.bound for state, _ in known])
    own = np.array([worked.wish.cpus is not None for _, worked in known])
    ok = np.ones(size, dtype=np.bool_)
    if terms.cpu:
        more = ratio > 1.0
        if more.any():
            capacity = window.allocated(CPU_COLUMN)[at]
            used = with_bound_rows(capacity - window.free(CPU_COLUMN)[at], bound, ratio)
            asked: Floats = np.full(size, float(terms.cpu))
            ok = ~more | (np.where(own, amplify_rows(asked, ratio), asked) <= capacity - used)
        for index, (state, _) in enumerate(known):
            unread = state.layout.reported and state.layout.topology is None
            if ratios[index] is None or (unread and ratio[index] > 1.0):
                ok[index] = False
    scores = _node_scores(own, bound, ratio, at, terms, window, settings).tolist()
    found: list[Answer] = []
    for (state, worked), fits, score in zip(known, ok.tolist(), scores, strict=True):
        if not fits:
            found.append(REFUSED)
            continue
        placed = worked.found
        if isinstance(placed, Placement) and placed.mask is not None:
            score = worked.rating(state, placed.mask)
        found.append(Answer(True, score))
    return found


def _node_scores(
    own: Bools, bound: Floats, ratio: Floats, at: list[int], terms: NUMATerms, window: Window, settings: NUMASettings
) -> Floats:
    """:func:`_node_score` for many. ``own``: the pod has CPUs of its own; ``bound``: those of pods there (milli)."""
    request, resources = dict(terms.request), window.cluster.resources
    scoring = settings.scoring.scoring
    parts = []
    for name, weight in scoring.weights:
        asked = float(request.get(name, 0))
        number = resources.find(name)
        if number is None or (not asked and name not in ("cpu", "memory")):
            continue
        capacity = window.allocated(number)[at]
        used: Floats = capacity - window.free(number)[at]
        if name == CPU:
            pod: Floats = np.full(len(at), asked)
            used = with_bound_rows(used, bound, ratio) + np.where(own, amplify_rows(pod, ratio), pod)
        else:
            used = used + asked
        parts.append((capacity, used, weight))
    return mean_rows(parts, len(at), most=scoring.most)


def _amplified(state: NodeState, terms: NUMATerms, wish: PodWish, window: Window, at: int) -> bool:
    ratio = state.layout.ratio
    if ratio is None or (state.layout.reported and state.layout.topology is None):
        return False
    need = amplify(terms.cpu, ratio) if wish.cpus is not None else terms.cpu
    allocatable, free = int(window.allocated(CPU_COLUMN)[at]), int(window.free(CPU_COLUMN)[at])
    return need <= allocatable - with_bound(allocatable - free, 1000 * state.bound, ratio)


def _node_score(state: NodeState, wish: PodWish, window: Window, at: int, settings: NUMASettings) -> int:
    """Over what the whole node has, real requests."""
    resources = window.cluster.resources
    ratio = state.layout.ratio or 1.0
    scoring = settings.scoring.scoring
    parts = []
    for name, weight in scoring.weights:
        asked = wish.request.get(name, 0)
        number = resources.find(name)
        if number is None or (not asked and name not in ("cpu", "memory")):
            continue
        capacity = int(window.allocated(number)[at])
        used = capacity - int(window.free(number)[at])
        if name == CPU and ratio > 1.0:
            used = with_bound(used, 1000 * state.bound, ratio)
            asked = amplify(asked, ratio) if wish.cpus is not None else asked
        parts.append((capacity, used + asked, weight))
    return mean(parts, most_allocated=scoring.most)
