"""What the fake kubelets know of pods: equal parts are held once, and nothing is held of pods that went."""

import json

import pytest

from koord.localcluster.clusterapi import WatchEvent
from koord.localcluster.kubelets import book
from koord.localcluster.kubelets.book import PodBook
from koord.localcluster.kubelets.machine import RUN_SECONDS
from koord.localcluster.kubelets.nodes import Room
from koord.localcluster.kubelets.options import KubeletOptions
from koord.localcluster.kubelets.state import Kubelet


@pytest.fixture
def pods() -> PodBook:
    kubelet = Kubelet("n", 1, Room({}), 0.0)
    kubelet.alive = True
    made = PodBook({"n": kubelet}, KubeletOptions(), lambda run, at: None, lambda run, problems: None)
    made.on_complete(set(), 0.0)
    return made


def bound(number: int, seconds: str, image: str, cpu: str) -> WatchEvent:
    name = f"p{number}"
    container = {"name": "c", "image": image, "resources": {"requests": {"cpu": cpu}}}
    meta = {"namespace": "ml", "name": name, "uid": f"uid-{number}", "annotations": {RUN_SECONDS: seconds}}
    raw = {"metadata": meta, "spec": {"nodeName": "n", "restartPolicy": "Never", "containers": [container]}}
    return WatchEvent("ADDED", "ml", name, number + 1, json.dumps(raw).encode())


def test_equal_pods_share_what_is_equal(pods: PodBook) -> None:
    pods.on_events([bound(number, "5", "i", "1") for number in range(2)], 0.0)
    first, second = pods.runs.values()
    assert first.plan is second.plan and first.containers is second.containers and first.request is second.request


def test_pods_that_are_all_different_leave_nothing_behind(pods: PodBook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book, "_SHARED", 8)
    for number in range(100):
        new = bound(number, f"{number}.5", f"i:{number}", f"{number}m")
        pods.on_events([new], 0.0)
        run = pods.runs["ml", f"p{number}"]
        assert (run.plan.run_s, run.containers.main, run.request["cpu"]) == (
            number + 0.5,
            (("c", f"i:{number}"),),
            number,
        )
        pods.on_events([new._replace(type="DELETED")], 0.0)
    assert not pods.runs
    assert max(len(pods._plans), len(pods._shapes), len(pods._requests)) <= 8
