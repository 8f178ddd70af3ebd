"""The checks of Filter and the rating of Score on one node: what :class:`rows.Rows` answers for many.

When pods of a class are placed one by one, only the node that the last one went to has to be asked again. Columns do
not pay there; what the pod would get is worked out instead, which Reserve finds again.
"""

from koord.scheduler.engine.resources import CPU as CPU_COLUMN
from koord.scheduler.engine.window import Window
from koord.scheduler.numa.amplification import amplify, with_bound
from koord.scheduler.numa.placing import Placement, PodWish, rating
from koord.scheduler.numa.scores import mean
from koord.scheduler.numa.state import NodeState
from koord.scheduler.plugins.nodenumaresource.settings import NUMASettings
from koord.scheduler.plugins.nodenumaresource.terms import CPU, NUMATerms
from koord.scheduler.plugins.nodenumaresource.working import REFUSED, Answer, Working


def answer(
    state: NodeState, terms: NUMATerms, window: Window, at: int, settings: NUMASettings, working: Working
) -> Answer:
    """Filter and Score on the node at place ``at`` of the window."""
    worked = working.out(state, terms)
    if worked.at_once is not None:
        return worked.at_once
    ratio, wish, found = state.layout.ratio, worked.wish, worked.found
    if terms.cpu and (ratio is None or ratio > 1.0) and not _amplified(state, terms, wish, window, at):
        return REFUSED
    if isinstance(found, Placement) and found.mask is not None:
        return Answer(True, float(rating(state, wish, found.mask, settings.scoring.scoring)))
    return Answer(True, float(_node_score(state, wish, window, at, settings)))


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
