"""TFJob and PyTorchJob, as the training operator (1.7 and later) handles them.

Roles become pods `<job>-<role>-<i>`. Services and the environment of the frameworks (`TF_CONFIG`, `MASTER_ADDR`) are
left out: fake pods talk to nobody. Facts: spec 70, section 2.10.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from koord.kube.meta import now_rfc3339
from koord.kube.pods import FAILED, RUNNING, SUCCEEDED
from koord.localcluster.clusterapi import Object, Objects
from koord.localcluster.operators.conditions import is_true, with_condition
from koord.localcluster.operators.observed import Observed, PodSeen
from koord.localcluster.operators.plan import JobInvalid, Notice, Plan
from koord.localcluster.operators.reading import count, flag, integer, mapping, moment, objects, template, text
from koord.localcluster.operators.templates import pod_of

OWN_MANAGER: Final = "kubeflow.org/training-operator"
JOB_NAME: Final = "training.kubeflow.org/job-name"
OPERATOR_NAME: Final = "training.kubeflow.org/operator-name"
REPLICA_TYPE: Final = "training.kubeflow.org/replica-type"
REPLICA_INDEX: Final = "training.kubeflow.org/replica-index"
JOB_ROLE: Final = "training.kubeflow.org/job-role"
_RETRYABLE_EXIT = 128
"""From this exit code on (ended by a signal) restartPolicy ExitCode starts a pod again."""


class Role(NamedTuple):
    """One replica role of a job and its pods by index. `failed` are those that will not be started again."""

    name: str
    replicas: int
    restart_policy: str
    template: Object
    pods: dict[int, PodSeen]
    restarting: list[PodSeen]
    surplus: list[PodSeen]

    def number(self, phase: str) -> int:
        """How many of its pods are in a phase, without those to be started again."""
        return sum(pod.phase == phase and pod not in self.restarting for pod in self.pods.values())

    @property
    def all_succeeded(self) -> bool:
        """Every replica has succeeded."""
        return self.number(SUCCEEDED) >= self.replicas

    @property
    def first_succeeded(self) -> bool:
        """Replica 0 has succeeded."""
        return 0 in self.pods and self.pods[0].phase == SUCCEEDED


Roles = dict[str, Role]


class JobKind(NamedTuple):
    """What tells one Kubeflow kind from another."""

    kind: str
    resource: str
    field: str
    roles: tuple[str, ...]
    restart_policy: str
    operator_name: str
    single: tuple[str, ...]
    leader: Callable[[Object, Roles], tuple[Role, bool] | None]
    """The role that decides, and whether it is done; None if no role decides."""


def _tensorflow_leader(job: Object, roles: Roles) -> tuple[Role, bool] | None:
    for name in ("Chief", "Master"):
        if name in roles:
            return roles[name], roles[name].all_succeeded
    worker = roles.get("Worker")
    if worker is None:
        return None
    all_workers = text(job, "spec.successPolicy") == "AllWorkers"
    return worker, worker.all_succeeded or (worker.first_succeeded and not all_workers)


def _pytorch_leader(job: Object, roles: Roles) -> tuple[Role, bool] | None:
    role = roles.get("Master") or roles.get("Worker")
    return None if role is None else (role, role.all_succeeded)


TFJOB: Final = JobKind(
    "TFJob",
    "tfjobs.kubeflow.org",
    "tfReplicaSpecs",
    ("Chief", "Master", "PS", "Worker", "Evaluator"),
    "Never",
    "tfjob-controller",
    ("Chief", "Master"),
    _tensorflow_leader,
)
PYTORCHJOB: Final = JobKind(
    "PyTorchJob",
    "pytorchjobs.kubeflow.org",
    "pytorchReplicaSpecs",
    ("Master", "Worker"),
    "OnFailure",
    "pytorchjob-controller",
    ("Master",),
    _pytorch_leader,
)


class KubeflowOperator:
    """The training operator for one kind."""

    api_version = "kubeflow.org/v1"

    def __init__(self, kind: JobKind) -> None:
        self._kind = kind
        self.kind = kind.kind
        self.resource = kind.resource

    def decide(self, job: Object, observed: Observed, now: float) -> Plan:
        """What to do about a job."""
        if (
            job["metadata"].get("deletionTimestamp")
            or text(job, "spec.runPolicy.managedBy", OWN_MANAGER) != OWN_MANAGER
        ):
            return Plan()
        status = dict(mapping(job, "status"))
        conditions: Objects = objects(job, "status.conditions")
        if is_true(conditions, "Succeeded") or is_true(conditions, "Failed"):
            return self._finished(job, observed, status, now)
        roles = self._roles(job, observed)
        plan = Plan()
        name = job["metadata"]["name"]
        if not conditions:
            conditions = self._set(conditions, "Created", True, "Created", f"{name} is created", now)
        if flag(job, "spec.runPolicy.suspend"):
            return self._suspend(plan, status, conditions, roles, observed, now)
        if is_true(conditions, "Suspended"):
            conditions = self._set(conditions, "Suspended", False, "Resumed", f"{name} is resumed", now)
            status["startTime"] = now_rfc3339(now)
            plan.notices.append(Notice("Normal", f"{self.kind}Resumed", f"{name} is resumed"))
        status.setdefault("startTime", now_rfc3339(now))
        for role in roles.values():
            plan.delete += [pod for pod in (*role.restarting, *role.surplus) if not pod.deleting]
            plan.create += [
                self._pod(job, role, index, roles) for index in range(role.replicas) if index not in role.pods
            ]
            if role.restarting:
                message = f"{len(role.restarting)} {role.name} replicas failed and are started again"
                conditions = self._set(conditions, "Restarting", True, "Restarting", message, now, without=("Running",))
        conditions = self._judge(plan, job, status, conditions, roles, observed, now)
        if is_true(conditions, "Succeeded") or is_true(conditions, "Failed"):
            plan.create = []
            plan.delete = _cleaned(job, observed)
        status["conditions"] = conditions
        status["replicaStatuses"] = self._counts(name, roles, ended=is_true(conditions, "Succeeded"))
        plan.status = status
        return plan

    # Reading ------------------------------------------------------------------------------------------------------

    def _roles(self, job: Object, observed: Observed) -> Roles:
        path = f"spec.{self._kind.field}"
        specs = mapping(job, path)
        if not specs:
            raise JobInvalid(path, f"must have at least one of the roles {', '.join(self._kind.roles)}")
        canonical = {role.lower(): role for role in self._kind.roles}
        given: dict[str, tuple[str, Object]] = {}
        for key in specs:
            role = canonical.get(key.lower())
            if role is None:
                raise JobInvalid(f"{path}.{key}", f"is no role of a {self.kind}: {', '.join(self._kind.roles)}")
            if role in given:
                raise JobInvalid(f"{path}.{key}", f"is the same role as {given[role][0]}")
            given[role] = (key, mapping(job, f"{path}.{key}"))
        roles: Roles = {}
        for role in self._kind.roles:
            if role not in given:
                continue
            key, spec = given[role]
            prefix = f"{path}.{key}."
            replicas = count(spec, "replicas", 1, prefix=prefix)
            if role in self._kind.single and replicas > 1:
                raise JobInvalid(f"{prefix}replicas", f"must be 1 for {role}, got {replicas}")
            policy = text(
                spec,
                "restartPolicy",
                self._kind.restart_policy,
                allowed=("Always", "OnFailure", "Never", "ExitCode"),
                prefix=prefix,
            )
            roles[role] = _with_pods(role, replicas, policy, template(spec, "template", prefix=prefix), observed)
        return roles

    def _pod(self, job: Object, role: Role, index: int, roles: Roles) -> Object:
        name = job["metadata"]["name"]
        labels = {
            JOB_NAME: name,
            OPERATOR_NAME: self._kind.operator_name,
            REPLICA_TYPE: role.name.lower(),
            REPLICA_INDEX: str(index),
        }
        leads = role.name in self._kind.single or (
            self.kind == "TFJob" and role.name == "Worker" and index == 0 and not {"Chief", "Master"} & roles.keys()
        )
        if leads:
            labels[JOB_ROLE] = "master"
        policy = "Never" if role.restart_policy == "ExitCode" else role.restart_policy
        return pod_of(
            job, role.template, name=f"{name}-{role.name.lower()}-{index}", labels=labels, restart_policy=policy
        )

    # Judging ------------------------------------------------------------------------------------------------------

    def _judge(
        self,
        plan: Plan,
        job: Object,
        status: Object,
        conditions: Objects,
        roles: Roles,
        observed: Observed,
        now: float,
    ) -> Objects:
        name = job["metadata"]["name"]
        leader = self._kind.leader(job, roles)
        if leader is not None and leader[1]:
            status["completionTime"] = now_rfc3339(now)
            plan.notices.append(Notice("Normal", f"{self.kind}Succeeded", f"{name} succeeded"))
            return self._end(conditions, "Succeeded", f"{name} succeeded", now)
        verdict = self._failure(plan, job, status, roles, observed, now)
        if verdict:
            status["completionTime"] = now_rfc3339(now)
            plan.notices.append(Notice("Warning", f"{self.kind}Failed", verdict))
            return self._end(conditions, "Failed", verdict, now)
        if leader is not None and leader[0].number(RUNNING) and not any(role.restarting for role in roles.values()):
            return self._set(conditions, "Running", True, "Running", f"{name} is running", now, without=("Restarting",))
        return conditions

    def _failure(self, plan: Plan, job: Object, status: Object, roles: Roles, observed: Observed, now: float) -> str:
        """Why the job has failed; empty while it has not."""
        for role in roles.values():
            if failed := role.number(FAILED):
                return f"{failed} {role.name} replicas failed"
        limit = integer(job, "spec.runPolicy.backoffLimit")
        if limit is not None:
            restarts = {pod.uid for pod in observed.gone if pod.phase == FAILED}
            restarts |= {pod.uid for role in roles.values() for pod in role.restarting}
            if len(restarts) > limit:
                return f"{len(restarts)} pods failed, backoffLimit allows {limit}"
        deadline = integer(job, "spec.runPolicy.activeDeadlineSeconds")
        if deadline is not None:
            left = (moment(status, "startTime") or now) + deadline - now
            if left <= 0:
                return f"active for longer than activeDeadlineSeconds ({deadline} s)"
            plan.look_again(left)
        return ""

    def _end(self, conditions: Objects, type_: str, message: str, now: float) -> Objects:
        if is_true(conditions, "Running"):
            conditions = self._set(conditions, "Running", False, type_, message, now)
        return self._set(conditions, type_, True, type_, message, now, without=("Restarting",))

    def _suspend(
        self, plan: Plan, status: Object, conditions: Objects, roles: Roles, observed: Observed, now: float
    ) -> Plan:
        message = f"{self.kind} is suspended"
        if is_true(conditions, "Running"):
            conditions = self._set(conditions, "Running", False, "Suspended", message, now)
        status["conditions"] = self._set(conditions, "Suspended", True, "Suspended", message, now)
        status["replicaStatuses"] = {role: {"active": 0} for role in roles}
        status.pop("startTime", None)
        plan.status = status
        plan.delete = [pod for pod in observed.pods if not pod.deleting]
        return plan

    def _finished(self, job: Object, observed: Observed, status: Object, now: float) -> Plan:
        plan = Plan(delete=_cleaned(job, observed))
        ttl = integer(job, "spec.runPolicy.ttlSecondsAfterFinished")
        if ttl is not None:
            left = (moment(status, "completionTime") or now) + ttl - now
            if left <= 0:
                plan.delete_job = True
            else:
                plan.look_again(left)
        return plan

    def _counts(self, name: str, roles: Roles, *, ended: bool) -> Object:
        counts: Object = {}
        for role in roles.values():
            active, succeeded, failed = (role.number(phase) for phase in (RUNNING, SUCCEEDED, FAILED))
            if ended:
                # The rest of a job that has succeeded counts as done.
                active, succeeded = 0, active + succeeded
            counts[role.name] = {
                "active": active,
                "succeeded": succeeded,
                "failed": failed,
                "selector": ",".join(
                    (
                        f"{JOB_NAME}={name}",
                        f"{OPERATOR_NAME}={self._kind.operator_name}",
                        f"{REPLICA_TYPE}={role.name.lower()}",
                    )
                ),
            }
        return counts

    def _set(
        self,
        conditions: Objects,
        type_: str,
        status: bool,
        reason: str,
        message: str,
        now: float,
        *,
        without: tuple[str, ...] = (),
    ) -> Objects:
        return with_condition(conditions, type_, status, f"{self.kind}{reason}", message, now, without=without)


def _with_pods(name: str, replicas: int, policy: str, pod_template: Object, observed: Observed) -> Role:
    pods: dict[int, PodSeen] = {}
    restarting: list[PodSeen] = []
    surplus: list[PodSeen] = []
    for pod in observed.pods:
        if pod.labels.get(REPLICA_TYPE) != name.lower():
            continue
        index = pod.labels.get(REPLICA_INDEX, "")
        if not index.isdecimal() or int(index) >= replicas:
            surplus.append(pod)
            continue
        pods[int(index)] = pod
        if pod.phase == FAILED and (
            policy in ("OnFailure", "Always") or (policy == "ExitCode" and pod.exit_code >= _RETRYABLE_EXIT)
        ):
            restarting.append(pod)
    return Role(name, replicas, policy, pod_template, pods, restarting, surplus)


def _cleaned(job: Object, observed: Observed) -> list[PodSeen]:
    """The pods that a finished job lets go, by its cleanPodPolicy (None keeps all)."""
    policy = text(job, "spec.runPolicy.cleanPodPolicy", "None", allowed=("None", "Running", "All"))
    if policy == "None":
        return []
    return [pod for pod in observed.pods if not pod.deleting and (policy == "All" or not pod.terminal)]
