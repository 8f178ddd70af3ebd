"""Classes that differ in amounts alone share what plugins that do not look at amounts made of them."""

from collections import Counter
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koord.scheduler.engine.classes import Program, SchedulingClass
from koord.scheduler.engine.cluster import Cluster
from koord.scheduler.engine.placement import Placed, PodInfo
from koord.scheduler.framework.contract import Template, Terms
from tests.scheduler.clusters import Bed, requests
from tests.scheduler.planted import Moody

HOST = "kubernetes.io/hostname"
_TERM = {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": HOST}
_FIELDS: dict[str, Any] = {
    "nodeSelector": {"zone": "a"},
    "tolerations": [{"key": "k", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_TERM]}},
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    ],
    "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
    "nodeName": "n1",
    "overhead": {"cpu": "50m"},
}
fields = st.lists(st.sampled_from(sorted(_FIELDS)), max_size=3, unique=True)
pods = st.tuples(
    fields,
    st.sampled_from(("100m", "200m", "1")),
    st.sampled_from(("", "64Mi", "1Gi")),
    st.sampled_from(({}, {"app": "a"}, {"app": "b", "koordinator.sh/qosClass": "LSR"})),
    st.sampled_from(("", "1", "x.io/thing", "ports")),
)


def made(bed: Bed, name: str, drawn: tuple[list[str], str, str, dict[str, str], str]) -> PodInfo:
    chosen, cpu, memory, labels, more = drawn
    spec = requests(cpu, memory, **{field: _FIELDS[field] for field in chosen})
    if more == "ports":
        spec["containers"][0]["ports"] = [{"containerPort": 1, "hostPort": 80}]
    elif more == "1":
        spec["containers"].append({"name": "other", "resources": {"limits": {"cpu": "1"}}})
    elif more:
        spec["containers"][0]["resources"]["requests"][more] = "1"
    return bed.pod(name, spec, labels=labels)


def content(program: Program) -> list[Any]:
    """All that a class is asked with."""
    return [
        program.names,
        program.names_from,
        program.prefilters,
        program.steps,
        program.filters,
        [(step.plugin, step.terms, step.weight, step.kept is None) for step in program.scores],
        program.prefers,
        program.reserves,
        program.looks_ahead(),
        dict(program.per_pod),
        program.node_mask is None,
    ]


@settings(max_examples=100, deadline=None)
@given(st.lists(pods, min_size=1, max_size=8))
def test_classes_are_as_if_made_alone(drawn: list[Any]) -> None:
    bed = Bed()
    for number in range(3):
        bed.node(f"n{number}", labels={"zone": "ab"[number % 2], HOST: f"n{number}"}, more={"x.io/thing": 2})
    infos = [made(bed, f"p{number}", one) for number, one in enumerate(drawn)]
    for info in infos:
        class_ = bed.catalogue.renewed(info).class_
        base = class_.base or class_
        shared = base.compiled(bed.cluster, bed.engine.verdicts)
        alone = SchedulingClass(None, msgspec.structs.replace(base.template, outline=None), base.profile)
        assert content(shared) == content(alone.compiled(bed.cluster, bed.engine.verdicts))
        assert shared.outline is not alone.compiled(bed.cluster, bed.engine.verdicts).outline


@pytest.mark.parametrize(
    ("more", "same"),
    [
        ({"cpu": "200m"}, True),
        ({"resources": {"x.io/thing": "1"}}, True),
        ({"overhead": {"cpu": "1m"}}, True),
        ({"nodeSelector": {"zone": "a"}}, False),
        ({"tolerations": [{"operator": "Exists"}]}, False),
        ({"priority": 5}, False),
    ],
)
def test_amounts_alone_make_no_other_outline(more: dict[str, Any], same: bool) -> None:
    bed = Bed()
    bed.node("n", more={"x.io/thing": 2})
    first = bed.pod("a", requests("100m")).class_
    other = bed.pod("b", requests(**{"cpu": "100m", **more})).class_
    assert first is not other
    programs = [each.compiled(bed.cluster, bed.engine.verdicts) for each in (first, other)]
    assert (programs[0].outline is programs[1].outline) is same
    with_port = requests("100m")
    with_port["containers"][0]["ports"] = [{"hostPort": 80}]
    assert bed.pod("c", with_port).class_.template.outline is None


class Asking(Moody):
    """Counts how often its terms are made."""

    name: ClassVar[str] = "Asking"

    def __init__(self, *, amounts: bool) -> None:
        super().__init__()
        self.reads_amounts = amounts  # type: ignore[misc]
        self.asked: Counter[str] = Counter()

    def filter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        self.asked[template.namespace] += 1
        return self.parity


class Other(Asking):
    name: ClassVar[str] = "Other"


@pytest.mark.parametrize("amounts", [False, True])
def test_an_epoch_asks_its_own_plugin_once(amounts: bool) -> None:
    moving, standing = Asking(amounts=amounts), Other(amounts=amounts)
    bed = Bed(extra=[moving, standing])
    for number in range(4):
        bed.node(f"n{number}")
    infos = [bed.pod(f"p{number}", requests(f"{100 + number}m")) for number in range(6)]
    made_once = len(infos) if amounts else 1
    for info in infos:
        info.class_.compiled(bed.cluster, bed.engine.verdicts)
    assert (moving.asked.total(), standing.asked.total()) == (made_once, made_once)
    programs = [info.class_.program for info in infos]
    moving.epoch += 1  # for nothing: its terms are what they were
    for info, program in zip(infos, programs, strict=True):
        assert info.class_.compiled(bed.cluster, bed.engine.verdicts) is program
    assert (moving.asked.total(), standing.asked.total()) == (2 * made_once, made_once)
    moving.epoch += 1
    moving.parity = 1
    for info in infos:
        assert isinstance(outcome := bed.engine.place_one(info), Placed)
        assert outcome.node in ("n1", "n3")
    assert standing.asked.total() == 2 * made_once  # with what was made anew
