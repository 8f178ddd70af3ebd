"""LoadAwareScheduling like the reference: reports, pods, annotations and time, drawn at random."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from koord.kube.meta import now_rfc3339
from koord.scheduler.config.koordinatorargs import AggregatedArgs
from koord.scheduler.engine.placement import PodInfo
from koord.scheduler.engine.window import Window
from tests.reference.scheduler import loadaware as plain
from tests.scheduler.clusters import GIB
from tests.scheduler.comparison.drawing import examples
from tests.scheduler.loadaware.beds import NOW, LoadBed, assigned, limited, pod_metric

PROD = {"koordinator.sh/priority-class": "koord-prod"}
BATCH = {"koordinator.sh/priority-class": "koord-batch"}
NAMES = ("p0", "p1", "p2")
WINDOWS = {"5m0s": 300, "30m0s": 1800}

percents = st.dictionaries(st.sampled_from(plain.RESOURCES), st.sampled_from((0, 20, 40, 65, 95, 100)), max_size=2)
aggregates = st.one_of(
    st.none(), st.tuples(percents, st.sampled_from(("p95", "p50")), st.sampled_from((0, 300, 600, 1800)))
)
arguments = st.fixed_dictionaries(
    {
        "thresholds": percents,
        "prod": percents,
        "aggregated": aggregates,
        "score_aggregated": st.one_of(st.none(), st.tuples(st.just("p95"), st.sampled_from((0, 300, 600)))),
        "weights": st.sampled_from(({"cpu": 1, "memory": 1}, {"cpu": 3, "memory": 2}, {"cpu": 1}, {})),
        "dominant": st.sampled_from((0, 0, 1, 5)),
        "policy": st.sampled_from(("Block", "Ignore", "UseStale")),
        "prod_with_system": st.booleans(),
        "score_by_prod": st.booleans(),
        "both": st.booleans(),
        "after_scheduled": st.sampled_from((0, 60, 500)),
        "after_initialized": st.sampled_from((0, 60, 500)),
        "by_peak": st.booleans(),
    }
)
pods = st.builds(
    lambda cpu, memory, cpu_limit, memory_limit, prod, since, initialized: {
        "cpu": cpu,
        "memory": memory,
        "cpu_limit": cpu_limit,
        "memory_limit": memory_limit,
        "prod": prod,
        "since": NOW - since,
        "initialized": NOW - initialized if initialized else 0.0,
    },
    st.sampled_from(("", "100m", "1", "3", "7500m")),
    st.sampled_from(("", "1Gi", "10Gi", "33333333")),
    st.sampled_from(("", "2", "8")),
    st.sampled_from(("", "2Gi", "20Gi")),
    st.booleans(),
    st.integers(0, 400),
    st.sampled_from((0, 30, 300)),
)
amounts = st.tuples(st.integers(0, 32_000), st.integers(0, 130 * GIB))
reports = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {
            "age": st.one_of(st.none(), st.sampled_from((0, 1, 100, 179, 180, 181, 1000))),
            "interval": st.sampled_from((None, 30, 60, 200)),
            "usage": st.one_of(st.none(), amounts, amounts, amounts),
            "peak": st.one_of(st.none(), amounts),
            "system": st.tuples(st.integers(0, 3000), st.integers(0, GIB)),
            "aggregates": st.dictionaries(
                st.tuples(st.sampled_from(("p95", "p50")), st.sampled_from(tuple(WINDOWS))), amounts, max_size=3
            ),
            "pods": st.dictionaries(st.sampled_from((*NAMES, "other")), st.tuples(amounts, st.booleans()), max_size=3),
        }
    ),
)
owns = st.fixed_dictionaries({}, optional={"usage": percents, "prod": percents, "aggregated": aggregates})


def listed(pair: tuple[int, int]) -> dict[str, str]:
    return {"cpu": f"{pair[0]}m", "memory": str(pair[1])}


def whole(pair: tuple[int, int]) -> plain.Amounts:
    return {"cpu": pair[0], "memory": pair[1]}


def both_pods(bed: LoadBed, name: str, drawn: dict[str, Any]) -> tuple[PodInfo, plain.Pod]:
    """The pod for the engine and for the reference. A batch pod asks for batch resources."""
    prefix = "" if drawn["prod"] else "kubernetes.io/batch-"
    spec = limited("", "")
    requests, limits = ({}, {})  # type: tuple[dict[str, str], dict[str, str]]
    for resource in plain.RESOURCES:
        for text, into in ((drawn[resource], requests), (drawn[f"{resource}_limit"], limits)):
            if text:
                milli = prefix and resource == "cpu"
                into[prefix + resource] = str(_whole("cpu", text)) if milli else text
    spec["containers"][0]["resources"] = {"requests": requests, "limits": limits}
    info = bed.pod(name, spec, labels=PROD if drawn["prod"] else BATCH)
    model = plain.Pod(
        name,
        {r: _whole(r, drawn[r]) for r in plain.RESOURCES if drawn[r]},
        {r: _whole(r, drawn[f"{r}_limit"]) for r in plain.RESOURCES if drawn[f"{r}_limit"]},
        drawn["prod"],
        since=drawn["since"],
        initialized=drawn["initialized"],
    )
    return info, model


def _whole(resource: str, text: str) -> int:
    if text.endswith("Gi"):
        return int(text[:-2]) * GIB
    if resource == "cpu":
        return int(text[:-1]) if text.endswith("m") else int(text) * 1000
    return int(text)


def annotation(own: dict[str, Any]) -> dict[str, str]:
    body: dict[str, Any] = {}
    if "usage" in own:
        body["usageThresholds"] = own["usage"]
    if "prod" in own:
        body["prodUsageThresholds"] = own["prod"]
    if own.get("aggregated"):
        thresholds, kind, seconds = own["aggregated"]
        body["aggregatedUsage"] = {
            "usageThresholds": thresholds,
            "usageAggregationType": kind,
            "usageAggregatedDuration": f"{seconds}s",
        }
    return {"scheduling.koordinator.sh/usage-thresholds": json.dumps(body)} if body else {}


def configured(drawn: dict[str, Any]) -> tuple[LoadBed, plain.Args]:
    given = dict(drawn)
    if given["aggregated"] is not None and not given["aggregated"][0]:
        given["aggregated"] = None
    weights = given["weights"] if given["weights"] or given["dominant"] else {"cpu": 1, "memory": 1}
    thresholds = given["thresholds"] or {"cpu": 65, "memory": 95}
    model = plain.Args(**{**given, "weights": weights, "thresholds": thresholds})
    use, rated = given["aggregated"], given["score_aggregated"]
    aggregated = AggregatedArgs(
        use[0] if use else {},
        use[1] if use else "",
        float(use[2]) if use else 0.0,
        rated[0] if rated else "",
        float(rated[1]) if rated else 0.0,
    )
    bed = LoadBed(
        usage_thresholds=given["thresholds"],
        prod_usage_thresholds=given["prod"],
        aggregated=aggregated,
        resource_weights=given["weights"],
        dominant_resource_weight=given["dominant"],
        expired_policy=given["policy"],
        prod_usage_include_sys=given["prod_with_system"],
        score_according_prod_usage=given["score_by_prod"],
        check_node_and_prod=given["both"],
        estimated_seconds_after_pod_scheduled=given["after_scheduled"] or None,
        estimated_seconds_after_initialized=given["after_initialized"] or None,
        use_predicted_peak=given["by_peak"],
    )
    return bed, model


def reported(bed: LoadBed, drawn: dict[str, Any]) -> plain.Metric:
    """The report is told to the bed; what the reference makes of it."""
    updated = None if drawn["age"] is None else NOW - drawn["age"]
    usage = drawn["usage"]
    windows = [
        {"duration": window, "usage": {kind: {"resources": listed(pair)}}}
        for (kind, window), pair in drawn["aggregates"].items()
    ]
    cpu, memory = listed(usage).values() if usage else ("0", "0")
    bed.report(
        cpu=cpu,
        memory=memory,
        updated=None if updated is None else now_rfc3339(updated),
        interval=drawn["interval"],
        numbers=usage is not None,
        system=listed(drawn["system"]),
        aggregated=windows,
        peak=listed(drawn["peak"]) if drawn["peak"] else None,
        pods=[
            pod_metric(name, *listed(pair).values(), priority="koord-prod" if prod else "koord-batch")
            for name, (pair, prod) in drawn["pods"].items()
        ],
    )
    return plain.Metric(
        updated,
        drawn["interval"] or 60,
        whole(usage) if usage else None,
        whole(drawn["system"]),
        {(kind, WINDOWS[window]): whole(pair) for (kind, window), pair in drawn["aggregates"].items()} if usage else {},
        {name: (whole(pair), prod) for name, (pair, prod) in drawn["pods"].items()},
        whole(drawn["peak"]) if drawn["peak"] else None,
    )


@settings(max_examples=examples(400), deadline=None)
@given(
    arguments,
    reports,
    owns,
    st.lists(pods, max_size=3),
    pods,
    st.sampled_from((0, 32_000, 7_777)),
    st.sampled_from((0, 1, 100, 400)),
)
def test_like_the_reference(
    args: dict[str, Any],
    report: dict[str, Any] | None,
    own: dict[str, Any],
    there: list[dict[str, Any]],
    asked: dict[str, Any],
    cpu: int,
    later: int,
) -> None:
    bed, rules = configured(args)
    capacity = {"cpu": cpu, "memory": 128 * GIB} if cpu else {"memory": 128 * GIB}
    bed.machine(annotations=annotation(own), **{"cpu": cpu})  # type: ignore[arg-type]
    if own.get("aggregated") and not own["aggregated"][0]:
        own["aggregated"] = None
    node = plain.Node(capacity, own)
    if report is not None:
        node.metric = reported(bed, report)
    for name, drawn in zip(NAMES, there, strict=False):
        info, model = both_pods(bed, name, drawn)
        bed.engine.count(assigned(info, "n", since=model.since, initialized=model.initialized))
        node.pods.append(model)
    bed.engine.tick(NOW + later)
    pod, model = both_pods(bed, "asked", asked)
    now = NOW + later
    text = plain.refusal(model, node, rules, now)
    assert bed.passes(pod) == [text is None]
    assert bed.texts(pod) == ([] if text is None else [text])
    terms = bed.load.score_terms(pod.class_.template, bed.cluster)
    assert terms is not None
    got = bed.load.score(terms, Window.full(bed.cluster)).tolist()
    assert got == [plain.score(model, node, rules, now)]
