"""VolumeBinding with scores: nodes are rated by how much of their storage a pod's claims would use.

A plugin of its own class, made where ``VolumeBindingArgs`` have a ``shape``: profiles without one are not slowed.
"""

from typing import ClassVar

from koord.columns.matrix import Floats
from koord.scheduler.engine.cluster import Cluster
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import Locality, ScorePlugin, Template, Terms
from koord.scheduler.plugins.volumebinding import VolumeBinding
from koord.scheduler.volumes.claims import claims_of
from koord.scheduler.volumes.scoring import ratings


class RatingVolumeBinding(VolumeBinding, ScorePlugin):
    """``curve``: the score, 0..100, at each whole percentage of use from 0 to 100."""

    score_locality: ClassVar[Locality] = "cluster"

    def __init__(self, curve: Floats, timeout_s: float = 600.0) -> None:
        super().__init__(timeout_s)
        self._curve = curve

    def score_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """The claims of the pod, if it has any that wait for a node."""
        claims = claims_of(template.namespace, template.spec)
        return claims if claims is not None and self._now(claims).value.delayed else None

    def score_version(self, terms: Terms) -> int:
        """When something that the claims depend on was seen to have changed."""
        return self._now(terms).at

    def score(self, terms: Terms, window: Window) -> Floats:
        """By what each claim would get on the row."""
        resolved = self._now(terms).value
        return ratings(resolved, resolved.judge(self._book, window), self._book, window, self._curve)
