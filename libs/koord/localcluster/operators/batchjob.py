"""batch/v1 Job: parallelism, completions, indexes, backoff, suspend, as the Job controller handles them.

Without the real controller's tracking finalizers: an ended pod is counted while it exists or was seen to vanish, and
the counts in the status are lower bounds. A pod that somebody else deletes before its end is a failure at once, as the
real controller has it (`podReplacementPolicy: TerminatingOrFailed`, the default); with `Failed` it is one, and is
replaced, when it is gone. Per-index backoff limits, pod failure policies and success policies are not acted on.
"""

from typing import Final, NamedTuple

from koord.kube.meta import now_rfc3339
from koord.kube.pods import FAILED, SUCCEEDED
from koord.localcluster.clusterapi import Object, Objects
from koord.localcluster.operators.conditions import find, is_true, with_condition
from koord.localcluster.operators.indexes import format_indexes, parse_indexes
from koord.localcluster.operators.observed import Observed, PodSeen
from koord.localcluster.operators.plan import JobInvalid, Notice, Plan
from koord.localcluster.operators.reading import count, flag, integer, mapping, moment, objects, template, text
from koord.localcluster.operators.templates import pod_of

INDEX: Final = "batch.kubernetes.io/job-completion-index"
OWN_MANAGER: Final = "kubernetes.io/job-controller"
_LONGEST_BACKOFF_S = 360.0


class _Facts(NamedTuple):
    """A Job's spec and its pods, read."""

    parallelism: int
    completions: int | None
    indexed: bool
    suspended: bool
    backoff_limit: int
    deadline_s: int | None
    template: Object
    active: list[PodSeen]
    terminating: list[PodSeen]
    succeeded: int
    failed: int
    indexes: set[int]
    patient: bool
    failures: list[PodSeen]
    successes: list[PodSeen]


class JobOperator:
    """The Job controller. `backoff_s` is the first wait after a failed pod; it doubles with each further one."""

    resource = "jobs.batch"
    api_version = "batch/v1"
    kind = "Job"

    def __init__(self, backoff_s: float = 1.0) -> None:
        self._backoff_s = backoff_s

    def decide(self, job: Object, observed: Observed, now: float) -> Plan:
        """What to do about a Job."""
        if job["metadata"].get("deletionTimestamp") or text(job, "spec.managedBy", OWN_MANAGER) != OWN_MANAGER:
            return Plan()
        status: Object = mapping(job, "status")
        conditions: Objects = objects(job, "status.conditions")
        if is_true(conditions, "Complete") or is_true(conditions, "Failed"):
            return _finished(job, observed, now)
        facts = _read(job, observed, status)
        plan = Plan()
        new: Object = dict(status)
        if facts.suspended:
            new["conditions"] = with_condition(
                conditions, "Suspended", True, "JobSuspended", "Job is suspended", now, probe="lastProbeTime"
            )
            new.pop("startTime", None)
            plan.delete = facts.active
            return _with_counts(plan, facts, new, gone=len(plan.delete))
        if is_true(conditions, "Suspended"):
            conditions = with_condition(
                conditions, "Suspended", False, "JobResumed", "Job is resumed", now, probe="lastProbeTime"
            )
            new["startTime"] = now_rfc3339(now)
            plan.notices.append(Notice("Normal", "Resumed", "Job is resumed"))
        new.setdefault("startTime", now_rfc3339(now))
        started = moment(new, "startTime") or now
        verdict = _verdict(conditions, facts, now - started)
        if verdict is not None:
            succeeded, reason, message = verdict
            first = "SuccessCriteriaMet" if succeeded else "FailureTarget"
            conditions = with_condition(conditions, first, True, reason, message, now, probe="lastProbeTime")
            plan.delete = facts.active
            if not facts.active and not facts.terminating:
                last = "Complete" if succeeded else "Failed"
                conditions = with_condition(conditions, last, True, reason, message, now, probe="lastProbeTime")
                if succeeded:
                    new["completionTime"] = now_rfc3339(now)
                plan.notices.append(
                    Notice("Normal", "Completed", "Job completed") if succeeded else Notice("Warning", reason, message)
                )
        else:
            self._scale(plan, job, facts, now)
            if facts.deadline_s is not None:
                plan.look_again(max(0.0, started + facts.deadline_s - now))
        if conditions:
            new["conditions"] = conditions
        return _with_counts(plan, facts, new, gone=len(plan.delete))

    def _scale(self, plan: Plan, job: Object, facts: _Facts, now: float) -> None:
        wanted = _wanted(facts)
        if len(facts.active) > wanted:
            # The least far first.
            ranked = sorted(facts.active, key=lambda pod: (pod.ready, pod.phase == "Running"))
            plan.delete = ranked[: len(facts.active) - wanted]
            return
        missing = wanted - len(facts.active) - (len(facts.terminating) if facts.patient else 0)
        if missing <= 0:
            return
        wait = self._wait(facts, now)
        if wait > 0:
            plan.look_again(wait)
            return
        name = job["metadata"]["name"]
        labels = {
            "batch.kubernetes.io/controller-uid": job["metadata"]["uid"],
            "batch.kubernetes.io/job-name": name,
            "controller-uid": job["metadata"]["uid"],
            "job-name": name,
        }
        if not facts.indexed:
            plan.create = [pod_of(job, facts.template, name_prefix=f"{name}-", labels=labels) for _ in range(missing)]
            return
        assert facts.completions is not None
        taken = {_index(pod) for pod in facts.active} | facts.indexes
        free = (index for index in range(facts.completions) if index not in taken)
        for index, _ in zip(free, range(missing), strict=False):
            pod = pod_of(
                job,
                facts.template,
                name_prefix=f"{name}-{index}-",
                labels={**labels, INDEX: str(index)},
                annotations={INDEX: str(index)},
            )
            pod["spec"].setdefault("hostname", f"{name}-{index}")
            variable = {
                "name": "JOB_COMPLETION_INDEX",
                "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX}']"}},
            }
            for container in pod["spec"]["containers"]:
                if isinstance(container, dict):
                    container["env"] = [*(container.get("env") or []), variable]
            plan.create.append(pod)

    def _wait(self, facts: _Facts, now: float) -> float:
        """Seconds until a failed pod may be replaced."""
        if not facts.failures:
            return 0.0
        last_success = max((pod.ended_s for pod in facts.successes), default=0.0)
        recent = [pod.ended_s for pod in facts.failures if pod.ended_s >= last_success]
        if not recent:
            return 0.0
        wait = min(self._backoff_s * 2.0 ** min(len(recent) - 1, 30), _LONGEST_BACKOFF_S)
        return max(recent) + wait - now


def _read(job: Object, observed: Observed, status: Object) -> _Facts:
    indexed = text(job, "spec.completionMode", "NonIndexed", allowed=("NonIndexed", "Indexed")) == "Indexed"
    completions = integer(job, "spec.completions")
    if indexed and completions is None:
        raise JobInvalid("spec.completions", "is required when completionMode is Indexed")
    if completions is None and integer(job, "spec.parallelism") is None:
        completions = 1
    pods, gone = observed.pods, observed.gone
    suspended = flag(job, "spec.suspend")
    successes = [pod for pod in (*pods, *gone) if pod.phase == SUCCEEDED]
    replacement = text(job, "spec.podReplacementPolicy", allowed=("", "TerminatingOrFailed", "Failed"))
    patient = replacement == "Failed" or bool(mapping(job, "spec.podFailurePolicy"))
    # A pod that is taken away before its end has failed, unless we took it.
    failures = [
        pod
        for pod in pods
        if pod.phase == FAILED or (pod.deleting and not pod.terminal and not pod.ours and not patient)
    ]
    failures += [pod for pod in gone if pod.phase == FAILED or (pod.phase != SUCCEEDED and not pod.ours)]
    if suspended:
        failures = [pod for pod in failures if pod.phase == FAILED]
    indexes: set[int] = set()
    if indexed and completions is not None:
        indexes = parse_indexes(text(status, "completedIndexes"), completions)
        indexes |= {index for pod in successes if 0 <= (index := _index(pod)) < completions}
        succeeded = len(indexes)
    else:
        succeeded = max(count(status, "succeeded", 0), len({pod.uid for pod in successes}))
    return _Facts(
        parallelism=count(job, "spec.parallelism", 1),
        completions=completions,
        indexed=indexed,
        suspended=suspended,
        backoff_limit=count(job, "spec.backoffLimit", 6),
        deadline_s=integer(job, "spec.activeDeadlineSeconds"),
        template=template(job, "spec.template"),
        active=[pod for pod in pods if pod.active],
        terminating=[pod for pod in pods if pod.deleting and not pod.terminal],
        succeeded=succeeded,
        failed=max(count(status, "failed", 0), len({pod.uid for pod in failures})),
        indexes=indexes,
        patient=patient,
        failures=failures,
        successes=successes,
    )


def _verdict(conditions: Objects, facts: _Facts, age_s: float) -> tuple[bool, str, str] | None:
    """Whether the Job has succeeded (True) or failed, with reason and message; None while it goes on."""
    for type_, outcome in (("FailureTarget", False), ("SuccessCriteriaMet", True)):
        decided = find(conditions, type_)
        if decided is not None and decided.get("status") == "True":
            return outcome, str(decided.get("reason", "")), str(decided.get("message", ""))
    if facts.failed > facts.backoff_limit:
        return False, "BackoffLimitExceeded", f"{facts.failed} pods failed, backoffLimit allows {facts.backoff_limit}"
    if facts.deadline_s is not None and age_s >= facts.deadline_s:
        return False, "DeadlineExceeded", f"Job ran longer than activeDeadlineSeconds ({facts.deadline_s} s)"
    if facts.completions is None:
        done = facts.succeeded > 0 and not facts.active and not facts.terminating
    else:
        done = facts.succeeded >= facts.completions
    return (True, "CompletionsReached", f"{facts.succeeded} pods succeeded") if done else None


def _wanted(facts: _Facts) -> int:
    if facts.completions is None:
        # A work queue: once one pod has succeeded no new ones start.
        return min(facts.parallelism, len(facts.active)) if facts.succeeded else facts.parallelism
    return min(facts.parallelism, facts.completions - facts.succeeded)


def _with_counts(plan: Plan, facts: _Facts, new: Object, *, gone: int) -> Plan:
    # Those about to be made count: nothing else would change the number while they wait for a node.
    new["active"] = len(facts.active) - gone + len(plan.create)
    new["ready"] = sum(pod.ready for pod in facts.active) if not gone else 0
    new["terminating"] = len(facts.terminating) + gone
    if facts.succeeded:
        new["succeeded"] = facts.succeeded
    if facts.failed:
        new["failed"] = facts.failed
    if facts.indexes:
        new["completedIndexes"] = format_indexes(facts.indexes)
    new["uncountedTerminatedPods"] = {}
    plan.status = new
    return plan


def _finished(job: Object, observed: Observed, now: float) -> Plan:
    plan = Plan(delete=[pod for pod in observed.pods if pod.active])
    ttl = integer(job, "spec.ttlSecondsAfterFinished")
    if ttl is not None:
        ends = [
            moment(condition, "lastTransitionTime") or now
            for condition in job["status"]["conditions"]
            if condition.get("type") in ("Complete", "Failed") and condition.get("status") == "True"
        ]
        left = min(ends) + ttl - now
        if left <= 0:
            plan.delete_job = True
        else:
            plan.look_again(left)
    return plan


def _index(pod: PodSeen) -> int:
    number = pod.labels.get(INDEX, "")
    return int(number) if number.isdecimal() else -1
