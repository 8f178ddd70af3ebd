"""koord on a real control plane, and what happened there by etcd's own account: no watch that broke missed anything.

The stored history has every version of every object in one order, however often the API server died.
"""

import asyncio
import base64
import itertools
import json
from pathlib import Path
from typing import Any

import aiohttp

from koord.cli.demo.history import RESOURCES, Change
from koord.localcluster.controlplane.plane import ControlPlane
from tests.integration.conftest import Up

STORED = {
    "pods": "/registry/pods/",
    "nodes": "/registry/minions/",
    "elasticquotas.scheduling.sigs.k8s.io": "/registry/scheduling.sigs.k8s.io/elasticquotas/",
    "queueunits.scheduling.x-k8s.io": "/registry/scheduling.x-k8s.io/queueunits/",
}
assert set(STORED) == set(RESOURCES)

READABLE: dict[str, Any] = {
    "apiserver_flags": {"storage-media-type": "application/json", "etcd-compaction-interval": "0"},
    "etcd_flags": {"watch-progress-notify-interval": "500ms"},
}
"""Of a control plane whose stored history can be read: as JSON, all of it, and with a word at its end."""


def koord_up(directory: Path, plane: ControlPlane, *arguments: str) -> Up:
    """``koord up`` on a control plane, as a user would start it there."""
    return Up(directory, "--kubeconfig", str(plane.kubeconfig), "--install-crds", *arguments)


async def stored_history(plane: ControlPlane) -> list[Change]:
    """Every change of what a checker looks at, in etcd's order. They have no times: all are seen at 0."""
    member = next(member for member in plane.etcd.members if member.pid is not None)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=plane.etcd.tls)) as session:
        found = await asyncio.gather(*(_changes(session, member.url, resource) for resource in STORED))
    return sorted(itertools.chain.from_iterable(found), key=lambda change: change.version)


async def _changes(session: aiohttp.ClientSession, url: str, resource: str) -> list[Change]:
    """All that was ever written of one resource."""
    prefix = STORED[resource].encode()
    end = prefix[:-1] + bytes([prefix[-1] + 1])
    wanted = {
        "key": _text(prefix),
        "range_end": _text(end),
        "start_revision": "1",
        "prev_kv": True,
        "progress_notify": True,
    }
    changes: list[Change] = []
    async with session.post(f"{url}/v3/watch", json={"create_request": wanted}) as answer:
        answer.raise_for_status()
        rest = b""
        while True:
            async with asyncio.timeout(120):
                chunk = await answer.content.readany()
            assert chunk, "etcd ended the watch"
            *lines, rest = (rest + chunk).split(b"\n")
            for line in filter(None, lines):
                result = json.loads(line)["result"]
                assert not result.get("canceled"), result
                events = result.get("events", ())
                if not events and not result.get("created"):
                    return changes  # how far it is, which etcd says only when it has told all before
                changes += (_change(resource, event) for event in events)


def _change(resource: str, event: dict[str, Any]) -> Change:
    deleted = event.get("type") == "DELETE"
    raw = base64.b64decode(event["prev_kv" if deleted else "kv"]["value"])
    kind = "DELETED" if deleted else "ADDED" if "prev_kv" not in event else "MODIFIED"
    return Change(int(event["kv"]["mod_revision"]), 0.0, resource, kind, raw)


def _text(key: bytes) -> str:
    return base64.b64encode(key).decode()
