"""NodeResourcesFitPlus: most or least allocated, chosen per resource. Spec 10 section 3.13."""

from typing import ClassVar

import msgspec
import numpy as np

from koord.columns.matrix import Bools, Floats
from koord.scheduler.config.koordinatorargs import NodeResourcesFitPlusArgs
from koord.scheduler.engine.cluster import Cluster
from koord.scheduler.engine.resources import CPU, FIRST, MEMORY, NOWHERE
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import ScorePlugin, Template, Terms
from koord.scheduler.framework.events import ClusterEvent

NATIVE = ("cpu", "memory")
MAX_SCORE = 100.0


class FitPlusPart(msgspec.Struct, frozen=True):
    """One resource: its number (cpu and memory, which count with the non-zero floor: −2 and −1), what the pod adds, its
    weight, and whether the fullest node is the best."""

    number: int
    added: float
    weight: int
    most: bool


class NodeResourcesFitPlus(ScorePlugin):
    """Rates nodes by the resources that the pod asks for and the arguments name."""

    name: ClassVar[str] = "NodeResourcesFitPlus"
    events: ClassVar[frozenset[ClusterEvent]] = frozenset()

    def __init__(self, args: NodeResourcesFitPlusArgs | None = None) -> None:
        self.args = args or NodeResourcesFitPlusArgs()

    def score_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """The resources that count; there may be none."""
        parts: list[FitPlusPart] = []
        vector = template.footprint.vector
        for name, resource in sorted(self.args.resources.items()):
            asked = template.request.get(name, 0)
            if not asked or not resource.weight:
                continue
            most = resource.type == "MostAllocated"
            if name in NATIVE:
                which = NATIVE.index(name)
                parts.append(FitPlusPart(which - len(NATIVE), float(vector[which]), resource.weight, most))
            else:
                number = cluster.resources.find(name)
                # What no node offers has no capacity anywhere.
                number, added = (NOWHERE, float(asked)) if number is None else (number, float(vector[FIRST + number]))
                parts.append(FitPlusPart(number, added, resource.weight, most))
        return tuple(parts)

    def score(self, terms: Terms, window: Window) -> Floats:
        """Floor of the weighted mean of the resources' floors, 0 for one that the node lacks; 100 if none counts."""
        assert isinstance(terms, tuple)
        if not terms:
            return np.full(window.size, MAX_SCORE)
        total, weights = np.zeros(window.size), 0
        for part in terms:
            if part.number < 0:
                which = part.number + len(NATIVE)
                left, capacity = window.nonzero_free(which) - part.added, window.allocated((CPU, MEMORY)[which])
            else:
                left, capacity = window.free(part.number) - part.added, window.allocated(part.number)
            np.maximum(left, 0.0, out=left)
            if part.most:
                np.subtract(capacity, left, out=left)
            left *= MAX_SCORE
            has: Bools = capacity > 0.0
            points = np.divide(left, capacity, out=np.zeros(window.size), where=has)
            total += np.floor(points, out=points) * part.weight
            weights += part.weight
        total /= weights
        return np.floor(total, out=total)
