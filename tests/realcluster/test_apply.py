"""The embedded server and the real one, side by side: the same random writes make the same objects and owners."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

from tests.conformance.client import APPLY, JSON_PATCH, MERGE, Answer, Client, until
from tests.conformance.rig import unique
from tests.conformance.servers import embedded, from_kubeconfig
from tests.realcluster.applyops import (
    GROUP,
    KINDS,
    Kind,
    Step,
    configuration,
    definitions,
    json_patch,
    merge_patch,
    replacement,
    steps,
)

Object = dict[str, Any]

SEQUENCES = 40
STEPS = 9
AT_ONCE = 12


class Pair(NamedTuple):
    """Two servers with a namespace on each."""

    ours: Client
    theirs: Client
    namespace: str


@pytest.fixture
async def pair(control_plane: Any, tmp_path: Path) -> AsyncIterator[Pair]:
    """The embedded server and the real one, with the widgets' definition."""
    (tmp_path / "ours").mkdir()
    (tmp_path / "theirs").mkdir()
    with embedded(tmp_path / "ours") as server:
        other = from_kubeconfig("real", Path(control_plane.kubeconfig), tmp_path / "theirs")
        sessions = [aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=one.tls)) for one in (server, other)]
        pair = Pair(Client(server, sessions[0]), Client(other, sessions[1]), unique())
        for client in pair[:2]:
            await _prepare(client, pair.namespace)
        yield pair
        await _clean(pair.theirs, pair.namespace)
        for session in sessions:
            await session.close()


async def _prepare(client: Client, namespace: str) -> None:
    made = await client.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
    assert made.status == 201, made.body
    for definition in definitions():
        made = await client.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        assert made.status in (201, 409), made.body

    async def ready() -> bool:
        places = [f"/apis/{GROUP}/v1/namespaces/{namespace}/{plural}" for plural in ("widgets", "loose")]
        served = [(await client.get(place)).status == 200 for place in places]
        account = await client.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/default")
        return all(served) and (client.server.embedded or account.status == 200)

    await until(ready)


async def _clean(client: Client, namespace: str) -> None:
    """Delete the namespace and let go of what finalizers hold in it."""
    await client.delete(f"/api/v1/namespaces/{namespace}")
    for kind in KINDS.values():
        path = f"{kind.prefix}/namespaces/{namespace}/{kind.plural}"
        for obj in (await client.get(path)).body["items"]:
            if obj["metadata"].get("finalizers"):
                await client.patch(f"{path}/{obj['metadata']['name']}", {"metadata": {"finalizers": None}})


async def _send(client: Client, kind: Kind, path: str, step: Step, name: str) -> Answer:
    params = {"fieldManager": step.manager}
    if step.verb == "create":
        return await client.post(path, configuration(kind, step, name), **params)
    where = f"{path}/{name}/status" if step.status else f"{path}/{name}"
    if step.verb == "apply":
        params["force"] = "true" if step.force else "false"
        body = configuration(kind, step, name)
        return await client.request("PATCH", where, body, content_type=APPLY, params=params)
    if step.verb == "merge":
        return await client.request("PATCH", where, merge_patch(kind, step), content_type=MERGE, params=params)
    current = (await client.get(where)).body
    if step.verb == "json":
        patch = json_patch(kind, step, current)
        return await client.request("PATCH", where, patch, content_type=JSON_PATCH, params=params)
    return await client.request("PUT", where, replacement(kind, step, current), params=params)


def _comparable(obj: Object) -> Object:
    """The object without what two servers cannot agree on: identity, versions, times (but whether there is one)."""
    obj = json.loads(json.dumps(obj))
    for key in ("uid", "resourceVersion", "creationTimestamp"):
        obj["metadata"].pop(key, None)
    entries = obj["metadata"].pop("managedFields", [])
    for entry in entries:
        entry["time"] = "time" in entry
    entries.sort(key=lambda e: (e["operation"], e["manager"], e.get("subresource", ""), e["apiVersion"]))
    return {**obj, "owners": entries}


def _differences(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """What differs between two JSON values, a line each."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted(ours.keys() | theirs.keys()):
            yield from _differences(ours.get(key, "absent"), theirs.get(key, "absent"), f"{path}.{key}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, pair in enumerate(zip(ours, theirs, strict=True)):
            yield from _differences(*pair, f"{path}[{index}]")
    elif ours != theirs or type(ours) is not type(theirs):
        yield f"{path}: {json.dumps(ours)} != {json.dumps(theirs)}"


def _outcome(answer: Answer) -> Any:
    if answer.status < 300:
        return answer.status
    causes = (answer.body.get("details") or {}).get("causes") or []
    return answer.status, sorted((cause.get("field", ""), cause.get("message", "")) for cause in causes)


async def _run(pair: Pair, kind: Kind, seed: int) -> None:
    rng = random.Random(seed)
    name = f"{kind.plural[:3]}-{seed}"
    path = f"{kind.prefix}/namespaces/{pair.namespace}/{kind.plural}"
    done: list[str] = []
    versions = ["", ""]
    for step in steps(rng, kind, STEPS):
        answers = [await _send(client, kind, path, step, name) for client in pair[:2]]
        done.append(f"{step}")
        story = f"{kind.kind} {seed}:\n" + "\n".join(done)
        assert _outcome(answers[0]) == _outcome(answers[1]), (
            f"{story}\nours: {answers[0].body}\ntheirs: {answers[1].body}"
        )
        states = [(await client.get(f"{path}/{name}")).body for client in pair[:2]]
        if states[0].get("kind") == "Status" or states[1].get("kind") == "Status":
            assert states[0].get("code") == states[1].get("code"), story
            return
        ours, theirs = map(_comparable, states)
        assert not (found := list(_differences(ours, theirs))), f"{story}\n(here != there)\n" + "\n".join(found)
        now = [state["metadata"]["resourceVersion"] for state in states]
        changed = [new != old for new, old in zip(now, versions, strict=True)]
        assert changed[0] == changed[1], f"{story}\na new version here and not there: {changed}"
        versions = now


@pytest.mark.since("1.34", "pods have a generation, templates no empty creationTimestamp", only=("Pod",))
@pytest.mark.since("1.30", "what becomes of an owner's time", only=("ConfigMap", "Widget", "Loose"))
@pytest.mark.parametrize("name", KINDS)
async def test_the_same_writes_have_the_same_result(pair: Pair, name: str) -> None:
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(seed: int) -> None:
        async with turns:
            await _run(pair, KINDS[name], seed)

    results = await asyncio.gather(*(one(seed) for seed in range(SEQUENCES)), return_exceptions=True)
    failures = [str(result) for result in results if isinstance(result, BaseException)]
    assert not failures, f"{len(failures)} of {SEQUENCES} differ; the shortest:\n{min(failures, key=len)}"
