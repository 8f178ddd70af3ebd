"""What a job asks for: its pod sets by the same pod request as everywhere (spec 70 section 3.3)."""

from collections.abc import Iterable

import msgspec

from koord.accounting.requests import RequestError, add, pod_request
from koord.kube.jobs.kind import JobError, PodSetSpec, dotted
from koord.kube.meta import without_nulls
from koord.kube.pods import PodSpec


def pod_set_request(pod_set: PodSetSpec) -> dict[str, int]:
    """What one pod of the set asks for; JobError names the template's field and the rule."""
    where = dotted(pod_set.template_path) or f"pod set {pod_set.name}"
    template = pod_set.template.get("spec") or {}
    try:
        spec = msgspec.convert(template, PodSpec)
    except msgspec.ValidationError:
        try:
            spec = msgspec.convert(without_nulls(template), PodSpec)
        except msgspec.ValidationError as error:
            raise JobError(f"{where}.spec", str(error)) from None
    try:
        return pod_request(spec)
    except RequestError as error:
        raise JobError(f"{where}.{error.field}", error.rule) from None


def job_total(pod_sets: Iterable[PodSetSpec]) -> dict[str, int]:
    """Count times request over all sets: cpu in milli-cores, everything else in base units; zeros left out."""
    total: dict[str, int] = {}
    for pod_set in pod_sets:
        add(total, pod_set_request(pod_set), pod_set.count)
    return {name: amount for name, amount in total.items() if amount}
