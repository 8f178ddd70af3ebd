"""What the queue writes onto pod templates when it lets a job go: whose room the pods use, their gang, quota, trace.

A template that says anything about a gang keeps its own; a template with a quota label keeps that.
"""

from koord.kube.jobs import templates
from koord.kube.jobs.kind import Job, JobKind, TemplateHints
from koord.kube.protocol import gang, queue, quota, trace


def start_hints(
    kind: JobKind,
    job: Job,
    *,
    unit: str,
    quota_name: str = "",
    traceparent: str = "",
    with_gang: bool = True,
) -> dict[str, TemplateHints]:
    """Hints per pod set of a job that is let go.

    ``unit`` is ``ns/name`` of its QueueUnit; the gang is named like it. The gang's minimum never exceeds the pods it is
    written onto, since a larger one could never be met.
    """
    pod_sets = kind.pod_sets(job)
    carried = {pod_set.name: templates.template_keys(pod_set) for pod_set in pod_sets}
    minimum = kind.gang_minimum(job) if with_gang else None
    members = {
        pod_set.name: pod_set.count
        for pod_set in pod_sets
        if pod_set.gang and not gang.carries_gang(*carried[pod_set.name])
    }
    ganged = {}
    if minimum is not None and minimum > 0 and sum(members.values()) > 0:
        ganged = gang.write_gang(unit.rpartition("/")[2], min(minimum, sum(members.values())))
    hints = {}
    for pod_set in pod_sets:
        labels, _ = carried[pod_set.name]
        annotations = {queue.RELATED_QUEUE_UNIT: unit, queue.RELATED_POD_SET: pod_set.name}
        if traceparent:
            annotations[trace.TRACEPARENT] = traceparent
        if pod_set.name in members:
            annotations.update(ganged)
        own_quota = {quota.NAME: quota_name} if quota_name and not quota.quota_label(labels) else {}
        hints[pod_set.name] = TemplateHints(labels=own_quota, annotations=annotations)
    return hints
