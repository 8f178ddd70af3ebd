"""The demo's objects: three teams under one department, each with a quota; two of them send 200 jobs of four kinds.

The jobs ask for several times what the quotas allow, so most of them wait, and the queue lets them through in waves. A
team may use what the others leave of their guarantees, up to its own limit. The third team runs one service made of two
PodGroups, which start together or not at all. Everything is a plain manifest as a user of the real operators would
write it.
"""

import json
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

Manifest = dict[str, Any]

DEPARTMENT = "research"
QUOTA_LABEL = "quota.scheduling.koordinator.sh/name"
_PREFIX = "quota.scheduling.koordinator.sh"
_POD_GROUP = "pod-group.scheduling.sigs.k8s.io"
_GROUPS = "gang.scheduling.koordinator.sh/groups"
_SEED = 20


class Room(NamedTuple):
    """An amount of everything that the demo's quotas count."""

    cpu: int
    memory_gi: int
    gpu: int

    def resources(self) -> dict[str, str]:
        """As a ResourceList."""
        return {"cpu": str(self.cpu), "memory": f"{self.memory_gi}Gi", "nvidia.com/gpu": str(self.gpu)}


class Team(NamedTuple):
    """One leaf quota: its name is also its queue's, ``namespace`` is where its jobs live.

    ``guaranteed`` (min) is there for it whenever it asks; beyond, up to ``limit`` (max), it borrows.
    """

    name: str
    namespace: str
    guaranteed: Room
    limit: Room


class GangPart(NamedTuple):
    """One PodGroup of the service: all its ``pods`` and those of the other parts start together."""

    name: str
    pods: int


VISION = Team("vision", "team-vision", Room(400, 1600, 96), Room(640, 2560, 136))
LANGUAGE = Team("language", "team-language", Room(200, 960, 40), Room(640, 2560, 136))
SERVING = Team("serving", "team-serving", Room(80, 320, 8), Room(160, 640, 16))
TEAMS = (VISION, LANGUAGE, SERVING)
JOB_TEAMS = (VISION, LANGUAGE)
SERVICE = (GangPart("prefill", 2), GangPart("decode", 4))


def namespaces() -> Iterator[Manifest]:
    """The teams' namespaces."""
    for team in TEAMS:
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team.namespace}}


def quotas() -> Iterator[Manifest]:
    """The department and its three leaves; all that the department may use is guaranteed to one of them."""
    total = Room(
        sum(team.guaranteed.cpu for team in TEAMS),
        sum(team.guaranteed.memory_gi for team in TEAMS),
        sum(team.guaranteed.gpu for team in TEAMS),
    )
    yield _quota(DEPARTMENT, "koord-system", total, total, {f"{_PREFIX}/is-parent": "true"})
    for team in TEAMS:
        yield _quota(team.name, team.namespace, team.guaranteed, team.limit, {f"{_PREFIX}/parent": DEPARTMENT})


def _quota(name: str, namespace: str, guaranteed: Room, limit: Room, labels: dict[str, str]) -> Manifest:
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"min": guaranteed.resources(), "max": limit.resources()},
    }


def pod_groups() -> Iterator[Manifest]:
    """The service's PodGroups: one gang group."""
    group = json.dumps([f"{SERVING.namespace}/{part.name}" for part in SERVICE])
    for part in SERVICE:
        yield {
            "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": part.name, "namespace": SERVING.namespace, "annotations": {_GROUPS: group}},
            "spec": {"minMember": part.pods, "scheduleTimeoutSeconds": 120},
        }


def service_pods(part: GangPart) -> Iterator[Manifest]:
    """The pods of one part of the service; they run until they are deleted."""
    for number in range(part.pods):
        template = _template("4", "16Gi", "3600", gpu=1, name="server")
        labels = {_POD_GROUP: part.name, QUOTA_LABEL: SERVING.name}
        meta = template["metadata"] | {
            "name": f"{part.name}-{number}", "namespace": SERVING.namespace, "labels": labels,
        }  # fmt: skip
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]}


def jobs(count: int, run_s: float) -> Iterator[Manifest]:
    """``count`` suspended jobs, the four kinds in turn, alternating between two teams; each runs about ``run_s``."""
    chance = random.Random(_SEED)
    makers = (_batch, _tensorflow, _pytorch, _ray)
    for number in range(count):
        team = JOB_TEAMS[number % len(JOB_TEAMS)]
        seconds = f"{run_s * chance.uniform(0.7, 1.3):.1f}"
        maker = makers[number // len(JOB_TEAMS) % len(makers)]
        job = maker(f"{maker.__name__[1:]}-{number:03d}", seconds, chance)
        job["metadata"] |= {"namespace": team.namespace, "labels": {QUOTA_LABEL: team.name}}
        yield job


def _template(cpu: str, memory: str, seconds: str, *, gpu: int = 0, name: str = "main") -> Manifest:
    resources = {"cpu": cpu, "memory": memory} | ({"nvidia.com/gpu": str(gpu)} if gpu else {})
    return {
        "metadata": {"annotations": {"koord.sh/fake-run-seconds": seconds}},
        "spec": {
            "schedulerName": "koord-scheduler",
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": name,
                    "image": "registry.example/train:1",
                    "resources": {"requests": resources, "limits": resources},
                }
            ],
        },
    }


def _batch(name: str, seconds: str, chance: random.Random) -> Manifest:
    width = chance.choice((2, 4, 6))
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "suspend": True,
            "parallelism": width,
            "completions": width,
            "template": _template("4", "8Gi", seconds),
        },
    }


def _tensorflow(name: str, seconds: str, chance: random.Random) -> Manifest:
    workers = chance.choice((2, 4))
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": name},
        "spec": {
            "runPolicy": {"suspend": True, "cleanPodPolicy": "All"},
            "tfReplicaSpecs": {
                "Chief": {"replicas": 1, "template": _template("2", "4Gi", seconds, name="tensorflow")},
                "PS": {"replicas": 1, "template": _template("2", "8Gi", "3600", name="tensorflow")},
                "Worker": {"replicas": workers, "template": _template("4", "8Gi", seconds, name="tensorflow")},
            },
        },
    }


def _pytorch(name: str, seconds: str, chance: random.Random) -> Manifest:
    workers = chance.choice((1, 3))
    template = _template("4", "16Gi", seconds, gpu=4, name="pytorch")
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {
            "runPolicy": {"suspend": True},
            "pytorchReplicaSpecs": {
                "Master": {"replicas": 1, "template": template},
                "Worker": {"replicas": workers, "template": template},
            },
        },
    }


def _ray(name: str, seconds: str, chance: random.Random) -> Manifest:
    workers = chance.choice((2, 4))
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": name},
        "spec": {
            "suspend": True,
            "entrypoint": "python train.py",
            "shutdownAfterJobFinishes": True,
            "submitterPodTemplate": _template("500m", "200Mi", seconds, name="ray-job-submitter"),
            "rayClusterSpec": {
                "headGroupSpec": {"rayStartParams": {}, "template": _template("2", "8Gi", "3600", name="ray-head")},
                "workerGroupSpecs": [
                    {
                        "groupName": "workers",
                        "replicas": workers,
                        "minReplicas": 1,
                        "maxReplicas": 8,
                        "rayStartParams": {},
                        "template": _template("4", "8Gi", "3600", name="ray-worker"),
                    }
                ],
            },
        },
    }
