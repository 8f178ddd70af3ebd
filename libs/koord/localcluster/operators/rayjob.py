"""RayJob, as KubeRay handles it: a Ray cluster, then a submitter pod, whose end is the job's end.

Fake pods run no Ray, so the job's own state follows the submitter pod; in the modes without one (`HTTPMode`,
`SidecarMode`) it follows the time in annotation `koord.sh/fake-run-seconds` of the RayJob. The pods belong to the
RayJob itself: there is no RayCluster object and no batch Job between.
"""

import hashlib
from typing import Any, Final

from koord.kube.meta import now_rfc3339
from koord.kube.pods import FAILED, RUNNING, SUCCEEDED
from koord.localcluster.clusterapi import Object
from koord.localcluster.kubelets.machine import plan_of
from koord.localcluster.operators.observed import Observed, PodSeen
from koord.localcluster.operators.plan import JobInvalid, Notice, Plan
from koord.localcluster.operators.raycluster import (
    CLUSTER,
    MODES,
    ClusterSpec,
    cluster_pods,
    is_head,
    read_cluster,
    submitter_pod,
)
from koord.localcluster.operators.reading import count, flag, integer, mapping, moment, text

OWN_MANAGER: Final = "ray.io/kuberay-operator"
_LONGEST_NAME = 47
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


class RayJobOperator:
    """KubeRay's RayJob controller. `run_s` is how long a job without a submitter pod runs if it does not say."""

    resource = "rayjobs.ray.io"
    api_version = "ray.io/v1"
    kind = "RayJob"

    def __init__(self, run_s: float = 1.0) -> None:
        self._run_s = run_s

    def decide(self, job: Object, observed: Observed, now: float) -> Plan:
        """What to do about a RayJob."""
        if job["metadata"].get("deletionTimestamp") or text(job, "spec.managedBy", OWN_MANAGER) != OWN_MANAGER:
            return Plan()
        status = dict(mapping(job, "status"))
        state = text(status, "jobDeploymentStatus")
        if state in ("Complete", "Failed"):
            return _finished(job, observed, status, now)
        mode = text(job, "spec.submissionMode", "K8sJobMode", allowed=MODES)
        if len(job["metadata"]["name"]) > _LONGEST_NAME:
            raise JobInvalid("metadata.name", f"must have at most {_LONGEST_NAME} characters")
        cluster = read_cluster(job)
        if flag(job, "spec.suspend"):
            return _suspend(observed, status, state)
        if state in ("Suspending", "Retrying") and observed.pods:
            # First the pods of the last attempt go.
            return Plan(delete=[pod for pod in observed.pods if not pod.deleting])
        if state in ("", "Suspended", "Suspending", "Retrying"):
            return Plan(status=_begin(job, status, now), again_s=0.0)
        return self._carry_on(job, cluster, mode, observed, status, state, now)

    def _carry_on(
        self, job: Object, spec: ClusterSpec, mode: str, observed: Observed, status: Object, state: str, now: float
    ) -> Plan:
        plan = Plan()
        cluster = text(status, "rayClusterName")
        submitter_name = f"{job['metadata']['name']}-{cluster.rpartition('-')[2]}"
        wanted = cluster_pods(job, spec, cluster, mode)
        have: dict[str, PodSeen] = {pod.name: pod for pod in observed.pods}
        for pod in observed.pods:
            # Ray pods that ended are replaced; those of another attempt, or of a group that shrank, go.
            stale = pod.name not in wanted and pod.name != submitter_name
            if not pod.deleting and (stale or (pod.name in wanted and pod.terminal)):
                plan.delete.append(pod)
        plan.create = [pod for name, pod in wanted.items() if name not in have]
        ready = sum(
            pod.ready and pod.active and not is_head(pod) for pod in observed.pods if pod.labels.get(CLUSTER) == cluster
        )
        head = have.get(f"{cluster}-head")
        complete = head is not None and head.ready and head.active and ready >= spec.workers
        status["rayClusterStatus"] = {
            "desiredWorkerReplicas": spec.workers,
            "readyWorkerReplicas": ready,
            "availableWorkerReplicas": ready,
            **({"state": "ready"} if complete else {}),
        }
        plan.status = status
        if complete and state == "Initializing":
            state = status["jobDeploymentStatus"] = "Waiting" if mode == "InteractiveMode" else "Running"
            status["jobStatus"] = "PENDING"
        deadline = integer(job, "spec.activeDeadlineSeconds")
        if deadline is not None:
            left = (moment(status, "startTime") or now) + deadline - now
            if left <= 0:
                message = f"ran longer than activeDeadlineSeconds ({deadline} s)"
                return _end(job, observed, status, "Failed", "DeadlineExceeded", message, now)
            plan.look_again(left)
        if state != "Running":
            return plan
        if mode == "K8sJobMode":
            submitter = have.get(submitter_name)
            if submitter is None:
                plan.create.append(submitter_pod(job, spec, submitter_name))
                return plan
            phase = submitter.phase
        else:
            phase = self._timed(plan, job, status, now)
        if phase == RUNNING:
            status["jobStatus"] = "RUNNING"
        elif phase in (SUCCEEDED, FAILED):
            message = "the submitter pod ended" if mode == "K8sJobMode" else "the time of the job is over"
            outcome = "Complete" if phase == SUCCEEDED else "Failed"
            return _end(job, observed, status, outcome, "" if phase == SUCCEEDED else "AppFailed", message, now)
        return plan

    def _timed(self, plan: Plan, job: Object, status: Object, now: float) -> str:
        """The phase of a job that no pod stands for."""
        info = dict(mapping(status, "rayJobInfo"))
        started = moment(info, "startTime")
        if started is None:
            started = now
            status["rayJobInfo"] = {**info, "startTime": now_rfc3339(now)}
        fate = plan_of(job["metadata"].get("annotations") or {}, "Never", 0.0, self._run_s)
        left = started + (fate.run_s or 0.0) - now
        if left > 0:
            plan.look_again(left)
            return RUNNING
        return SUCCEEDED if fate.succeeds else FAILED


def _begin(job: Object, status: Object, now: float) -> Object:
    """A new attempt: names first, so that a restart in the middle finds its pods again."""
    name = job["metadata"]["name"]
    seed = f"{job['metadata']['uid']}/{status.get('failed', 0)}/{now}".encode()
    digest = hashlib.sha256(seed).digest()
    suffix = "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in digest[:5])
    new: Object = {key: value for key, value in status.items() if key in ("succeeded", "failed")}
    new["jobDeploymentStatus"] = "Initializing"
    new["rayClusterName"] = f"{name}-raycluster-{suffix}"
    new["jobId"] = f"{name}-{suffix}"
    new["startTime"] = now_rfc3339(now)
    new["observedGeneration"] = job["metadata"].get("generation", 0)
    return new


def _suspend(observed: Observed, status: Object, state: str) -> Plan:
    new: dict[str, Any] = {key: value for key, value in status.items() if key in ("succeeded", "failed")}
    if observed.pods:
        new = {**status, "jobDeploymentStatus": "Suspending"}
        return Plan(status=new, delete=[pod for pod in observed.pods if not pod.deleting])
    new["jobDeploymentStatus"] = "Suspended"
    return Plan(status=new) if state != "Suspended" else Plan()


def _end(job: Object, observed: Observed, status: Object, outcome: str, reason: str, message: str, now: float) -> Plan:
    status["jobStatus"] = "SUCCEEDED" if outcome == "Complete" else "FAILED"
    status["endTime"] = now_rfc3339(now)
    counter = "succeeded" if outcome == "Complete" else "failed"
    status[counter] = count(status, counter, 0) + 1
    retry = outcome == "Failed" and reason == "AppFailed" and status["failed"] <= count(job, "spec.backoffLimit", 0)
    status["jobDeploymentStatus"] = "Retrying" if retry else outcome
    status["message"] = message
    if reason:
        status["reason"] = reason
    if retry:
        return Plan(status=status, delete=[pod for pod in observed.pods if not pod.deleting], again_s=0.0)
    plan = _finished(job, observed, status, now)
    plan.status = status
    plan.notices.append(Notice("Normal" if outcome == "Complete" else "Warning", outcome, message))
    return plan


def _finished(job: Object, observed: Observed, status: Object, now: float) -> Plan:
    """The cluster goes after its time to live if the job says so; the submitter pod stays, as its batch Job would."""
    if not flag(job, "spec.shutdownAfterJobFinishes"):
        return Plan()
    left = (moment(status, "endTime") or now) + count(job, "spec.ttlSecondsAfterFinished", 0) - now
    if left > 0:
        return Plan(again_s=left)
    return Plan(delete=[pod for pod in observed.pods if pod.labels.get(CLUSTER) and not pod.deleting])
