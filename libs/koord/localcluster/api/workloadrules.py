"""The rules of Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs and CronJobs besides their pod templates."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from koord.localcluster.api.errors import Cause, invalid_value, not_supported, required
from koord.localcluster.api.podrules import claim_names, validate_pod_spec
from koord.localcluster.api.schemas.validating import show
from koord.localcluster.api.validation import label_value_causes, qualified_name_problem, validate_labels
from koord.localcluster.clusterapi import Object

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_PERCENT = re.compile(r"[0-9]+%")
_PERCENT_RULE = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for "
    "validation is '[0-9]+%')"
)
_COUNTS = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")


def _not_negative(spec: Object, fields: tuple[str, ...], path: str = "spec") -> Iterator[Cause]:
    for field in fields:
        value = spec.get(field)
        if value is not None and value < 0:
            yield invalid_value(f"{path}.{field}", value, "must be greater than or equal to 0")


def _general(path: str, value: Any, words: str) -> Cause:
    return Cause("FieldValueInvalid", path, f"Invalid value: {show(value)}: {words}")


def selector_causes(selector: Object, path: str) -> Iterator[Cause]:
    """The keys, operators and values of a label selector."""
    yield from validate_labels(selector.get("matchLabels") or {}, f"{path}.matchLabels")
    for i, expression in enumerate(selector.get("matchExpressions") or ()):
        where, operator = f"{path}.matchExpressions[{i}]", expression.get("operator", "")
        values = expression.get("values")
        if operator not in _OPERATORS:
            yield invalid_value(f"{where}.operator", operator, "not a valid selector operator")
        elif operator in ("In", "NotIn") and not values:
            yield required(f"{where}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        elif operator in ("Exists", "DoesNotExist") and values:
            words = "Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield Cause("FieldValueForbidden", f"{where}.values", words)
        if problem := qualified_name_problem(expression.get("key", "")):
            yield invalid_value(f"{where}.key", expression.get("key", ""), problem)
        for j, value in enumerate(values or ()):
            yield from label_value_causes(value, f"{where}.values[{j}]")


def _matches(selector: Object, labels: Object) -> bool:
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    for expression in selector.get("matchExpressions") or ():
        have, values = labels.get(expression.get("key")), expression.get("values") or ()
        match expression.get("operator"):
            case "In":
                passed = have in values
            case "NotIn":
                passed = have not in values
            case "Exists":
                passed = have is not None
            case _:
                passed = have is None
        if not passed:
            return False
    return True


def _selected(spec: Object, kind: str) -> Iterator[Cause]:
    """A selector is there, says something, and selects the pods that the template makes."""
    selector = spec.get("selector")
    if selector is None:
        if kind != "daemonset":
            yield required("spec.selector")
    elif not selector.get("matchLabels") and not selector.get("matchExpressions"):
        yield _general("spec.selector", selector, f"empty selector is invalid for {kind}")
        return
    else:
        yield from selector_causes(selector, "spec.selector")
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if selector is None or not _matches(selector, labels or {}):
        yield _general("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")


def _template(spec: Object, *, path: str = "spec.template.spec", always: bool = False) -> Iterator[Cause]:
    pod = (spec.get("template") or {}).get("spec") or {}
    yield from validate_pod_spec(pod, path, claim_names(spec))
    policy = pod.get("restartPolicy", "Always")
    if always and policy in ("Never", "OnFailure"):
        yield not_supported(f"{path}.restartPolicy", policy, ("Always",))


def _share(value: Any, path: str) -> Iterator[Cause]:
    if isinstance(value, str) and not _PERCENT.fullmatch(value):
        yield invalid_value(path, value, _PERCENT_RULE)
    elif isinstance(value, int) and value < 0:
        yield invalid_value(path, value, "must be greater than or equal to 0")


def validate_deployment(workload: Object) -> list[Cause]:
    """Replicas, selector, strategy, template."""
    spec = workload.get("spec") or {}
    causes = [
        *_not_negative(spec, ("replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")),
        *_selected(spec, "deployment"),
        *_template(spec, always=True),
    ]
    strategy = spec.get("strategy") or {}
    kind, rolling = strategy.get("type", "RollingUpdate"), strategy.get("rollingUpdate") or {}
    if kind not in ("Recreate", "RollingUpdate"):
        given = {"Type": kind, "RollingUpdate": strategy.get("rollingUpdate")}
        shown = msgspec.json.encode(given).decode()  # in Go's order
        words = f'Unsupported value: {shown}: supported values: "Recreate", "RollingUpdate"'
        causes.append(Cause("FieldValueNotSupported", "spec.strategy", words))
    path = "spec.strategy.rollingUpdate"
    for field in ("maxSurge", "maxUnavailable"):
        causes += _share(rolling.get(field), f"{path}.{field}")
    if rolling.get("maxSurge") in (0, "0%") and rolling.get("maxUnavailable") in (0, "0%"):
        causes.append(
            _general(f"{path}.maxUnavailable", rolling["maxUnavailable"], "may not be 0 when `maxSurge` is 0")
        )
    return causes


def validate_replicas(kind: str) -> Callable[[Object], list[Cause]]:
    """Replicas, selector and template of a kind without more."""

    def validate(workload: Object) -> list[Cause]:
        spec = workload.get("spec") or {}
        replicas = _not_negative(spec, ("replicas", "minReadySeconds"))
        return [*replicas, *_selected(spec, kind), *_template(spec, always=True)]

    return validate


def _job_spec(spec: Object, path: str) -> Iterator[Cause]:
    yield from _not_negative(spec, _COUNTS, path)
    mode = spec.get("completionMode", "NonIndexed")
    if mode not in ("NonIndexed", "Indexed"):
        yield not_supported(f"{path}.completionMode", mode, ("NonIndexed", "Indexed"))
    elif mode == "Indexed" and spec.get("completions") is None and spec.get("parallelism") is not None:
        yield required(f"{path}.completions", "when completion mode is Indexed")
    pods = f"{path}.template.spec"
    yield from _template(spec, path=pods)
    policy = ((spec.get("template") or {}).get("spec") or {}).get("restartPolicy", "Always")
    if policy == "Always":
        yield required(f"{pods}.restartPolicy", 'valid values: "OnFailure", "Never"')


def validate_job(job: Object) -> list[Cause]:
    """Counts, completion mode, template."""
    return list(_job_spec(job.get("spec") or {}, "spec"))


def validate_cronjob(job: Object) -> list[Cause]:
    """Schedule, and the job that it makes."""
    spec = job.get("spec") or {}
    schedule = spec.get("schedule")
    causes = []
    if not schedule:
        causes.append(required("spec.schedule"))
    elif not schedule.startswith("@") and len(schedule.split()) != 5:
        fields = schedule.split()
        why = f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]"
        causes.append(invalid_value("spec.schedule", schedule, why))
    causes += _job_spec((spec.get("jobTemplate") or {}).get("spec") or {}, "spec.jobTemplate.spec")
    return causes
