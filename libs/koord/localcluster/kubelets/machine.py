"""A pod's life on a fake node: how long it takes, how it ends, and what its status says then. Pure.

Annotations on the pod decide (INTERFACES of the embedded cluster, `docs/localcluster.md`):

* `koord.sh/fake-start-seconds`: from binding to Running.
* `koord.sh/fake-run-seconds`: from Running to the end. Absent: a pod with restartPolicy Always runs until it is
  deleted, any other one for the default time.
* `koord.sh/fake-exit`: `Succeeded` (default) or `Failed`.
"""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from koord.kube.meta import now_rfc3339
from koord.kube.pods import FAILED, RUNNING, SUCCEEDED, Pod
from koord.localcluster.clusterapi import Object, Objects
from koord.localcluster.kubelets.nodes import Shortage

START_SECONDS = "koord.sh/fake-start-seconds"
RUN_SECONDS = "koord.sh/fake-run-seconds"
EXIT = "koord.sh/fake-exit"


def stamp(now: float) -> str:
    """`now_rfc3339`, remembered: thousands of statuses carry the same second."""
    return _stamp(int(now))


@lru_cache(maxsize=256)
def _stamp(second: int) -> str:
    return now_rfc3339(second)


class Plan(NamedTuple):
    """How a pod's life goes. `run_s` None means until it is deleted. `problems` name bad annotations (not obeyed)."""

    start_s: float
    run_s: float | None
    succeeds: bool
    problems: tuple[str, ...] = ()


def plan_of(annotations: Mapping[str, str], restart_policy: str, start_s: float, run_s: float) -> Plan:
    """The plan of a pod, with the defaults `start_s` and `run_s` for what it does not say."""
    problems: list[str] = []
    start = _seconds(annotations, START_SECONDS, problems)
    run = _seconds(annotations, RUN_SECONDS, problems)
    if run is None and restart_policy not in ("Always", ""):
        run = run_s
    outcome = annotations.get(EXIT, SUCCEEDED)
    if outcome not in (SUCCEEDED, FAILED):
        problems.append(f"metadata.annotations[{EXIT}]: {outcome!r} must be Succeeded or Failed")
        outcome = SUCCEEDED
    return Plan(start_s if start is None else start, run, outcome == SUCCEEDED, tuple(problems))


def _seconds(annotations: Mapping[str, str], key: str, problems: list[str]) -> float | None:
    text = annotations.get(key)
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        problems.append(f"metadata.annotations[{key}]: {text!r} must be a number of seconds, at least 0")
        return None
    return seconds


class Containers(NamedTuple):
    """The containers of a pod as far as a status repeats them: (name, image) pairs; shared by equal pods."""

    main: tuple[tuple[str, str], ...]
    init: tuple[tuple[str, str], ...] = ()
    sidecars: tuple[tuple[str, str], ...] = ()


def containers_of(pod: Pod) -> Containers:
    """The containers of `pod`."""
    init = [container for container in pod.spec.init_containers if container.restart_policy != "Always"]
    sidecars = [container for container in pod.spec.init_containers if container.restart_policy == "Always"]
    return Containers(
        tuple((container.name, container.image) for container in pod.spec.containers),
        tuple((container.name, container.image) for container in init),
        tuple((container.name, container.image) for container in sidecars),
    )


def running_status(containers: Containers, *, uid: str, pod_ip: str, host_ip: str, started: str, now: str) -> Object:
    """A strategic merge patch: the pod runs and is ready. `started` is when the kubelet saw the pod, `now` is now."""
    running = {"running": {"startedAt": now}}
    status: Object = {
        "phase": RUNNING,
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "podIP": pod_ip,
        "podIPs": [{"ip": pod_ip}],
        "startTime": started,
        "conditions": [
            _condition("PodReadyToStartContainers", "True", now),
            _condition("Initialized", "True", now),
            _condition("Ready", "True", now),
            _condition("ContainersReady", "True", now),
        ],
        "containerStatuses": _statuses(containers.main, uid, running, ready=True),
    }
    if containers.init or containers.sidecars:
        completed = {"terminated": _terminated(uid, 0, "Completed", started, now)}
        status["initContainerStatuses"] = [
            *_statuses(containers.init, uid, completed, ready=True),
            *_statuses(containers.sidecars, uid, running, ready=True),
        ]
    return {"status": status}


def finished_status(containers: Containers, *, uid: str, succeeded: bool, started: str, now: str) -> Object:
    """A strategic merge patch: all containers have ended. `started` is when they started."""
    code, reason = (0, "Completed") if succeeded else (1, "Error")
    why = "PodCompleted" if succeeded else "PodFailed"
    ended = {"terminated": _terminated(uid, code, reason, started, now)}
    status: Object = {
        "phase": SUCCEEDED if succeeded else FAILED,
        "conditions": [
            _condition("PodReadyToStartContainers", "False", now),
            _condition("Initialized", "True", now, "PodCompleted" if succeeded else ""),
            _condition("Ready", "False", now, why),
            _condition("ContainersReady", "False", now, why),
        ],
        "containerStatuses": _statuses(containers.main, uid, ended, ready=False),
    }
    return {"status": status}


def rejected_status(shortage: Shortage, now: str) -> Object:
    """A strategic merge patch: the kubelet did not admit the pod."""
    return {
        "status": {"phase": FAILED, "reason": shortage.reason, "message": shortage.message, "startTime": now},
    }


def _condition(type_: str, status: str, now: str, reason: str = "") -> Object:
    condition = {"type": type_, "status": status, "lastProbeTime": None, "lastTransitionTime": now}
    if reason:
        condition["reason"] = reason
    return condition


def _terminated(uid: str, code: int, reason: str, started: str, now: str) -> Object:
    return {
        "exitCode": code,
        "reason": reason,
        "startedAt": started,
        "finishedAt": now,
        "containerID": f"fake://{uid}",
    }


def _statuses(containers: tuple[tuple[str, str], ...], uid: str, state: Object, *, ready: bool) -> Objects:
    return [
        {
            "name": name,
            "image": image,
            "imageID": "",
            "containerID": f"fake://{uid}/{name}",
            "ready": ready,
            "started": ready,
            "restartCount": 0,
            "state": state,
            "lastState": {},
        }
        for name, image in containers
    ]
