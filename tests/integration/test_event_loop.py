"""No callback holds a service's event loop for 100 ms under load; asyncio's debug mode names the ones that do.

How it is measured: the services get a ``sitecustomize`` that turns on the debug mode of their (uvloop) loop, which logs
every callback that took 100 ms or more by the wall clock. On a shared machine the wall clock also runs while another
process has the core, so a thread reads, every few milliseconds, how long the main thread has been waiting for a core
(``/proc/<pid>/task/<tid>/schedstat``, second figure); what the kernel kept the thread waiting during the callback is
taken off. What is left is the callback's own: computing or blocked in a call, sleeping included. A sample may lie some
milliseconds before the callback, so a callback is at most judged a little too kindly.

What the kernel itself is kept waiting (another machine on the same cores, a page from a slow disk) it does not tell. So
the load is repeated if a callback is over the limit, and counts as long if it is so each time; and a slower core has
more time.

Not seen: what runs in the callback of a socket itself; koord's protocols there only take bytes apart.
"""

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from koord.cli.api import connect
from koord.cli.demo import scenario
from koord.localcluster.httpapi import HttpClusterApi, object_path
from tests.integration.conftest import REAL, Up

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(REAL, reason="what a service's own callbacks take does not depend on the API server"),
]

SERVICES = ("gateway", "reconciler", "quota", "queue", "scheduler")
LIMIT_S = 0.1
LOADS = 3
PACE_S = 0.03
"""What :func:`pace` takes on a core that is quick enough for the limit."""
NODES = 500
PODS = 1000
JOBS = 50

CUSTOMIZE = '''
"""Times the callbacks of a koord service; see tests/integration/test_event_loop.py."""
import os, sys

arguments = sys.orig_argv
if "koord.cli.main" in arguments and "run" in arguments:
    os.environ["PYTHONASYNCIODEBUG"] = "1"
    import json, logging, threading, time
    from collections import deque
    import uvloop

    folder, service = os.environ["SLOW_CALLBACKS"], arguments[arguments.index("run") + 1]
    schedstat = os.open(f"/proc/self/task/{threading.main_thread().native_id}/schedstat", os.O_RDONLY)
    samples = deque(maxlen=20_000)

    def waited():
        # Two threads ask: no position that they would share.
        return int(os.pread(schedstat, 64, 0).split()[1]) / 1e9

    class Judge(logging.Filter):
        def filter(self, record):
            if not str(record.msg).startswith("Executing") or len(record.args) != 2:
                return True
            handle, took = record.args
            end = time.monotonic()
            before = next((had for at, had in reversed(samples) if at <= end - took), 0.0)
            line = {"service": service, "at": time.time(), "took": took, "what": repr(handle)}
            line["own"] = took - (waited() - before)
            with open(f"{folder}/{service}.jsonl", "a") as file:
                file.write(json.dumps(line) + "\\n")
            return False

    logging.getLogger("asyncio").addFilter(Judge())
    made, plain = [], uvloop.new_event_loop

    def new_event_loop():
        loop = plain()
        made.append(loop)
        return loop

    uvloop.new_event_loop = new_event_loop

    def planted_sleep():
        time.sleep(0.25)

    def planted_work():
        end = time.thread_time() + 0.25
        while time.thread_time() < end:
            pass

    def sample():
        plant = f"{folder}/plant-{service}"
        while True:
            samples.append((time.monotonic(), waited()))
            if made and os.path.exists(plant):
                os.unlink(plant)
                made[-1].call_soon_threadsafe(planted_sleep)
                made[-1].call_soon_threadsafe(planted_work)
            time.sleep(0.004)

    threading.Thread(target=sample, daemon=True, name="schedstat").start()
    with open(f"{folder}/{service}.here", "w"):
        pass
'''


class Slow:
    """What the services have reported."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def lines(self, since: float = 0.0) -> list[dict[str, Any]]:
        found = []
        for file in self.folder.glob("*.jsonl"):
            found += [json.loads(line) for line in file.read_text().splitlines()]
        return [line for line in found if line["at"] >= since]

    def over(self, since: float, limit_s: float = LIMIT_S) -> dict[str, str]:
        """The callbacks that were over the limit by their own fault, by service and code: what is to be said of one."""
        return {
            f"{line['service']}: {re.sub('0x[0-9a-f]+|[0-9]+', 'N', line['what'])}": (
                f"{line['own'] * 1000:.0f} ms (by the clock {line['took'] * 1000:.0f}): {line['what']}"
            )
            for line in self.lines(since)
            if line["own"] >= limit_s
        }


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Up, Slow]]:
    """A cluster whose services are timed."""
    folder = tmp_path_factory.mktemp("event-loop")
    site = folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(CUSTOMIZE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(site), prepend=":")
        patch.setenv("SLOW_CALLBACKS", str(folder))
        up = Up(folder, "--nodes", str(NODES), "--gpu-nodes", "50")
    assert {file.stem for file in folder.glob("*.here")} == set(SERVICES), "a service is not timed"
    yield up, Slow(folder)
    up.stop()


def pace() -> float:
    """How long this core takes for the same piece of work, in seconds of its own."""
    begun, total = time.thread_time(), 0
    for number in range(400_000):
        total += number * number % 7
    assert total
    return time.thread_time() - begun


def pod(burst: int, number: int) -> dict[str, Any]:
    """One of twenty sizes."""
    requests = {"cpu": f"{100 + 10 * (number % 20)}m", "memory": "64Mi"}
    container = {"name": "main", "image": "x/y:1", "resources": {"requests": requests}}
    spec = {"schedulerName": "koord-scheduler", "restartPolicy": "Always", "containers": [container]}
    meta = {"name": f"burst-{burst}-{number}", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


async def load(api: HttpClusterApi, burst: int) -> None:
    """Pods in a burst and jobs of the four kinds, until all pods are bound and all jobs have ended."""
    gate = asyncio.Semaphore(32)

    async def one(manifest: dict[str, Any]) -> None:
        async with gate:
            await create(api, manifest)

    jobs = list(scenario.jobs(JOBS, 1.0))
    for job in jobs:
        job["metadata"]["name"] += f"-{burst}"
    await asyncio.gather(*map(one, jobs), *(one(pod(burst, number)) for number in range(PODS)))
    deadline = time.monotonic() + 240
    while True:
        pods, _ = await api.list("pods", "default")
        units, _ = await api.list("queueunits.scheduling.x-k8s.io")
        bound = sum(1 for item in pods if item["spec"].get("nodeName"))
        ended = sum(1 for item in units if (item.get("status") or {}).get("phase") == "Succeed")
        if bound == PODS * (burst + 1) and ended == JOBS * (burst + 1):
            return
        assert time.monotonic() < deadline, f"{bound} pods are bound, {ended} jobs have ended"
        await asyncio.sleep(0.5)


async def create(api: HttpClusterApi, manifest: dict[str, Any]) -> None:
    place = await api.resource_of_kind(manifest["apiVersion"], manifest["kind"])
    await api.create_at(object_path(place, manifest["metadata"].get("namespace")), manifest)


async def test_no_callback_takes_a_tenth_of_a_second(watched: tuple[Up, Slow]) -> None:
    up, slow = watched
    found: list[dict[str, str]] = []
    async with await connect(str(up.kubeconfig)) as api:
        for manifest in [*scenario.namespaces(), *scenario.quotas()]:
            await create(api, manifest)
        for burst in range(LOADS):
            since, before = time.time(), pace()
            await load(api, burst)
            found.append(slow.over(since, LIMIT_S * max(1.0, before / PACE_S, pace() / PACE_S)))
            if not found[-1]:
                return
    each_time = set.intersection(*(set(over) for over in found))
    assert not each_time, found


@pytest.mark.parametrize("service", SERVICES)
def test_a_planted_callback_is_caught(watched: tuple[Up, Slow], service: str) -> None:
    """One that sleeps and one that computes, in each of the services: the measurement has teeth."""
    up, slow = watched
    since = time.time()
    (slow.folder / f"plant-{service}").touch()

    def caught(name: str) -> Callable[[], bool]:
        return lambda: any(line.startswith(f"{service}: ") and name in line for line in slow.over(since))

    for name in ("planted_sleep", "planted_work"):
        up.wait(caught(name), f"{name} is seen in {service}, of {slow.lines(since)}", 60)
