"""The demo's objects: two teams under one department, each with a quota and a queue, and 200 jobs of four kinds.

The jobs ask for several times what the quotas allow, so most of them wait, and the queue lets them through in waves.
Everything is a plain manifest as a user of the real operators would write it.
"""

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

Manifest = dict[str, Any]

DEPARTMENT = "research"
QUOTA_LABEL = "quota.scheduling.koordinator.sh/name"
_PREFIX = "quota.scheduling.koordinator.sh"
_SEED = 20


class Team(NamedTuple):
    """One leaf quota: its name is also its queue's, ``namespace`` is where its jobs live."""

    name: str
    namespace: str
    cpu: int
    memory_gi: int
    gpu: int


TEAMS = (Team("vision", "team-vision", 480, 1920, 96), Team("language", "team-language", 240, 960, 48))


def namespaces() -> Iterator[Manifest]:
    """The teams' namespaces."""
    for team in TEAMS:
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team.namespace}}


def quotas() -> Iterator[Manifest]:
    """The department and its two leaves; the department allows a little less than the teams together."""
    total = {
        "cpu": str(sum(team.cpu for team in TEAMS) - 40),
        "memory": f"{sum(team.memory_gi for team in TEAMS)}Gi",
        "nvidia.com/gpu": str(sum(team.gpu for team in TEAMS)),
    }
    yield _quota(DEPARTMENT, "koord-system", total, {f"{_PREFIX}/is-parent": "true"})
    for team in TEAMS:
        limit = {"cpu": str(team.cpu), "memory": f"{team.memory_gi}Gi", "nvidia.com/gpu": str(team.gpu)}
        yield _quota(team.name, team.namespace, limit, {f"{_PREFIX}/parent": DEPARTMENT})


def _quota(name: str, namespace: str, limit: dict[str, str], labels: dict[str, str]) -> Manifest:
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"min": dict.fromkeys(limit, "0"), "max": limit},
    }


def jobs(count: int, run_s: float) -> Iterator[Manifest]:
    """``count`` suspended jobs, the four kinds in turn, alternating between the teams; each runs about ``run_s``."""
    chance = random.Random(_SEED)
    makers = (_batch, _tensorflow, _pytorch, _ray)
    for number in range(count):
        team = TEAMS[number % len(TEAMS)]
        seconds = f"{run_s * chance.uniform(0.7, 1.3):.1f}"
        maker = makers[number // len(TEAMS) % len(makers)]
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
