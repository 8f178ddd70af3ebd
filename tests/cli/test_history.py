"""A history that missed something says so: else a judge that fell over would find nothing and be content."""

import asyncio
import time
from importlib.resources import as_file, files

import pytest

from koord.cli.demo.history import Change, History
from koord.localcluster.api.cluster import Cluster
from koord.localcluster.api.inprocess import InProcessApi
from koord.localcluster.api.server import load_crds


@pytest.fixture
def api() -> InProcessApi:
    state = Cluster()
    with as_file(files("koord.kube") / "crds") as crds:
        load_crds(state, [crds])
    return InProcessApi(state)


async def test_a_listener_that_fails_leaves_a_gap(api: InProcessApi) -> None:
    history = History(api)
    seen: list[str] = []

    def listen(change: Change) -> None:
        seen.append(change.resource)
        if len(seen) == 2:
            raise KeyError("what no judge thought of")

    history.listener = listen
    await history.start()
    try:
        deadline = time.monotonic() + 60.0
        for number in range(2):
            assert history.gaps == 0
            body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{number}"}}
            await api.create("nodes", None, body)
            while len(seen) <= number:
                assert time.monotonic() < deadline, "the change was not seen"
                await asyncio.sleep(0.01)
        while not history.gaps:
            assert time.monotonic() < deadline, "nobody says that the history ended"
            await asyncio.sleep(0.01)
    finally:
        await history.stop()
    assert history.gaps == 1
