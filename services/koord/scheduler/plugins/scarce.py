"""ScarceResourceAvoidance: keep pods off nodes with scarce resources that they do not need. Spec 10 section 3.13."""

from typing import ClassVar

import msgspec
import numpy as np

from koord.columns.matrix import Floats
from koord.scheduler.config.koordinatorargs import ScarceResourceAvoidanceArgs
from koord.scheduler.engine.cluster import Cluster
from koord.scheduler.engine.resources import CPU, FIRST
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import Locality, ScorePlugin, Template, Terms
from koord.scheduler.framework.events import ClusterEvent

MAX_SCORE = 100.0


class ScarceTerms(msgspec.Struct, frozen=True):
    """What the pod asks for, and which scarce resources it does not."""

    requested: frozenset[str]
    scarce: frozenset[str]


class ScarceResourceAvoidance(ScorePlugin):
    """100 less the share of scarce resources among those that a node has and the pod does not ask for."""

    name: ClassVar[str] = "ScarceResourceAvoidance"
    events: ClassVar[frozenset[ClusterEvent]] = frozenset()
    score_locality: ClassVar[Locality] = "node"

    def __init__(self, args: ScarceResourceAvoidanceArgs | None = None) -> None:
        self._scarce = frozenset((args or ScarceResourceAvoidanceArgs()).resources)

    def score_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """By name: which columns resources have may change while the answers are kept."""
        requested = frozenset(name for name, amount in template.request.items() if amount)
        return ScarceTerms(requested, self._scarce - requested)

    def score(self, terms: Terms, window: Window) -> Floats:
        """floor(100·(unneeded − scarce)/unneeded); 100 if either is nothing. Pods are no resource here."""
        assert isinstance(terms, ScarceTerms)
        resources = window.cluster.resources
        # A column that no resource has, and that of what no node offers, is 0 everywhere.
        unneeded = (window.cluster.allocatable[FIRST + CPU :][:, window.rows] > 0.0).sum(axis=0).astype(np.float64)
        for name in terms.requested:
            number = resources.find(name)
            if number is not None:
                unneeded -= window.allocated(number) > 0.0
        scarce = np.zeros(window.size)
        for name in terms.scarce:
            number = resources.find(name)
            if number is not None:
                scarce += window.allocated(number) > 0.0
        score = np.full(window.size, MAX_SCORE)
        np.divide((unneeded - scarce) * MAX_SCORE, unneeded, out=score, where=(unneeded > 0.0) & (scarce > 0.0))
        rounded: Floats = np.floor(score, out=score)
        return rounded
