"""Whole pods and nodes for extenders: the scheduler itself keeps only what decides a placement.

Pods are read from the state stream, one by one, when somebody is asked about them; nodes are kept, and only where some
extender wants to be shown them.
"""

from collections.abc import Mapping

import msgspec

from koord.bus.connection import Bus
from koord.bus.directread import read_last
from koord.bus.errors import BusError
from koord.bus.statecache import StateCache
from koord.contracts.codec import ContractError
from koord.kube.resources import NODES, PODS
from koord.scheduler.framework.contract import PodRef


class ObjectsUnknown(Exception):
    """The object cannot be read now; says why."""


class _Meta(msgspec.Struct):
    uid: str = ""


class _Brief(msgspec.Struct):
    metadata: _Meta


_brief = msgspec.json.Decoder(_Brief).decode


class Objects:
    """Pods and, with ``nodes``, nodes as the API server shows them."""

    def __init__(self, bus: Bus, *, nodes: bool) -> None:
        self._bus = bus
        self._nodes = StateCache(bus, NODES, _Brief, on_bad=_passed_over, keep_raw=True) if nodes else None

    @property
    def nodes(self) -> Mapping[str, bytes]:
        """Nodes by name; empty where nobody wants them."""
        return self._nodes.raw if self._nodes is not None else {}

    async def pod(self, ref: PodRef) -> bytes:
        """The JSON of a pod. ObjectsUnknown: it cannot be read, or another one has its name now."""
        subjects = self._bus.subjects
        where = f"{ref.namespace}/{ref.name}"
        try:
            stored = await read_last(
                self._bus, subjects.state_stream, subjects.state(PODS.token, ref.namespace, ref.name)
            )
        except BusError as error:
            raise ObjectsUnknown(f"pod {where} cannot be read: {error}") from error
        try:
            uid = _brief(stored.body).metadata.uid if stored is not None else ""
        except msgspec.MsgspecError:
            uid = ""
        if stored is None or uid != ref.uid:
            raise ObjectsUnknown(f"pod {where} is another one now, or gone")
        return stored.body

    async def start(self) -> None:
        """Begin to read."""
        if self._nodes is not None:
            await self._nodes.start()

    async def synced(self) -> None:
        """Wait until all nodes are known."""
        if self._nodes is not None:
            await self._nodes.synced()

    async def close(self) -> None:
        """Stop."""
        if self._nodes is not None:
            await self._nodes.close()


def _passed_over(key: str, error: ContractError) -> None:
    """Who places pods tells what does not decode."""
