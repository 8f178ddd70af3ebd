"""The plugin contract: third-party plugins of every locality, normalisation, and plugins that raise."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pytest

from koord.columns.matrix import Bools, Floats
from koord.scheduler.engine.cluster import Cluster
from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.placement import Outcome, Placed
from koord.scheduler.engine.resources import CPU
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import (
    AssignedPod,
    AssignPlugin,
    FilterPlugin,
    Locality,
    Plugin,
    PreFilterPlugin,
    Reason,
    ScorePlugin,
    Template,
    Terms,
)
from koord.scheduler.framework.profile import Profile, ProfileError
from koord.scheduler.plugins.coscheduling import Coscheduling
from koord.scheduler.plugins.profile import default_profile, load
from tests.scheduler.clusters import Bed, requests


class SpreadAcrossZones(FilterPlugin, AssignPlugin):
    """At most ``skew`` more of our pods in a zone than in the emptiest one: depends on other rows."""

    name: ClassVar[str] = "SpreadAcrossZones"
    filter_locality: ClassVar[Locality] = "cluster"

    def __init__(self) -> None:
        self.changes = 0

    def assigned(self, pod: AssignedPod) -> None:
        self.changes += 1

    def unassigned(self, pod: AssignedPod) -> None:
        self.changes += 1

    def filter_version(self, terms: Terms) -> int:
        return self.changes

    def filter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        return 1

    def filter(self, terms: Terms, window: Window) -> Bools:
        cluster = window.cluster
        counts: dict[str, int] = {
            node.labels["zone"]: 0 for node in cluster.nodes if node is not None and "zone" in node.labels
        }
        for slot in cluster.pods.values():
            node = cluster.nodes[slot.row]
            assert node is not None
            counts[node.labels["zone"]] += 1
        low = min(counts.values())
        ok = np.array([node is not None and counts[node.labels["zone"]] + 1 - low <= 1 for node in cluster.nodes])
        answer: Bools = ok[window.rows]
        return answer

    def reasons(self, terms: Terms, window: Window) -> list[Reason]:
        return [Reason("node(s) would skew", ~self.filter(terms, window))]


class FewestFree(ScorePlugin):
    """A normalised score that depends on usage: its extremes move with every pod."""

    name: ClassVar[str] = "FewestFree"
    normalized: ClassVar[bool] = True

    def score_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        return ()

    def score(self, terms: Terms, window: Window) -> Floats:
        return -window.free(CPU)

    def normalize(self, terms: Terms, raw: Floats, low: float, high: float) -> Floats:
        return np.floor((raw - low) * 100 / (high - low)) if high > low else np.zeros(len(raw))


class Broken(FilterPlugin, ScorePlugin, PreFilterPlugin):
    """Raises at one point, for pods with the annotation."""

    name: ClassVar[str] = "Broken"
    pod_keys: ClassVar[tuple[str, ...]] = ("broken",)

    def _terms(self, template: Template, point: str) -> Terms | None:
        return point if template.annotations.get("broken") == point else None

    def prefilter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        if template.annotations.get("broken") == "PreFilterTerms":
            raise KeyError("terms")
        return self._terms(template, "PreFilter")

    def prefilter(self, terms: Terms) -> str | None:
        raise RuntimeError("no prefilter")

    def filter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        return self._terms(template, "Filter")

    def filter(self, terms: Terms, window: Window) -> Bools:
        raise RuntimeError("no filter")

    def reasons(self, terms: Terms, window: Window) -> list[Reason]:
        raise RuntimeError("no reasons")

    def score_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        return self._terms(template, "Score")

    def score(self, terms: Terms, window: Window) -> Floats:
        raise RuntimeError("no score")


def place_all(bed: Bed, names: list[str], **meta: Any) -> list[Outcome]:
    pods = [bed.pod(name, requests("500m"), **meta) for name in names]
    outcomes: list[Outcome] = []
    done = 0
    while done < len(pods):
        done += bed.engine.place(pods[done:], outcomes)
    return outcomes


def test_a_plugin_that_looks_at_other_rows_is_exact() -> None:
    bed = Bed(extra=[SpreadAcrossZones()])
    for number in range(6):
        bed.node(f"n{number}", cpu=2000 if number else 64_000, labels={"zone": "ab"[number % 2]})
    outcomes = place_all(bed, [f"p{n}" for n in range(20)])
    zones = [int(outcome.node[1:]) % 2 for outcome in outcomes if isinstance(outcome, Placed)]
    # n0 is huge and would draw everything; the skew allows one more than the other zone at any time.
    assert len(zones) == 20
    for count in range(1, 21):
        assert abs(zones[:count].count(0) - zones[:count].count(1)) <= 1
    more = place_all(bed, [f"q{n}" for n in range(10)])
    refused = [outcome for outcome in more if isinstance(outcome, Diagnosis)]
    assert refused
    assert refused[0].message == "0/6 nodes are available: 3 Insufficient cpu, 3 node(s) would skew."


def test_moving_extremes_equal_one_at_a_time() -> None:
    names = [f"p{n}" for n in range(40)]
    together = Bed(extra=[FewestFree()])
    alone = Bed(extra=[FewestFree()])
    for bed in (together, alone):
        for number in range(5):
            bed.node(f"n{number}", cpu=3000 + 700 * number)
    outcomes = place_all(together, names)
    for name, outcome in zip(names, outcomes, strict=True):
        alone.engine.forget_evaluations()
        assert alone.engine.place_one(alone.pod(name, requests("500m"))) == outcome
    assert sum(isinstance(outcome, Placed) for outcome in outcomes) > 20


@pytest.mark.parametrize("point", ["PreFilterTerms", "PreFilter", "Filter", "Score"])
@pytest.mark.parametrize("many", [1, 6])
def test_a_plugin_that_raises_names_itself_and_stops_nobody(point: str, many: int) -> None:
    bed = Bed(extra=[Broken()])
    bed.node("n")
    broken = place_all(bed, [f"bad{n}" for n in range(many)], annotations={"broken": point})
    for outcome in broken:
        assert isinstance(outcome, Diagnosis)
        assert outcome.error
        assert outcome.plugins == {"Broken"}
        assert outcome.message.startswith('running "Broken" ')
        assert ("no " in outcome.message) or ("terms" in outcome.message)
    good = place_all(bed, [f"good{n}" for n in range(many)])
    assert all(isinstance(outcome, Placed) for outcome in good)


def test_profiles_are_checked() -> None:
    with pytest.raises(ProfileError, match="plugin Broken: listed twice"):
        Profile([Broken(), Broken()])
    with pytest.raises(ProfileError, match=r"plugins\.weights\.Nope: no such plugin; known: Broken"):
        Profile([Broken()], {"Nope": 1})
    with pytest.raises(ProfileError, match=r"plugins\.weights\.Broken: -1 is not in 0\.\.20000000"):
        Profile([Broken()], {"Broken": -1})
    with pytest.raises(ProfileError, match=r"plugins\.disabled: Nope: no such plugin"):
        default_profile(Coscheduling(), disabled=frozenset(("Nope",)))
    with pytest.raises(ProfileError, match=r"plugins\.extra: nope: no entry point in koord\.scheduler\.plugins"):
        load("nope", {})


def test_third_party_plugins_come_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        name = "few"

        def load(self) -> Any:
            def factory(settings: Mapping[str, Any]) -> Plugin:
                assert settings == {"a": 1}
                return FewestFree()

            return factory

    monkeypatch.setattr("koord.scheduler.plugins.profile.entry_points", lambda group: [Point()])
    profile = default_profile(Coscheduling(), extra={"few": {"a": 1}}, weights={"FewestFree": 7})
    assert (profile.plugins[-1].name, profile.scores[-1][1]) == ("FewestFree", 7)
    assert isinstance(load("few", {"a": 1}), FewestFree)
