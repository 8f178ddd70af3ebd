"""Whom a reflector tells what it sees: the state stream, and whoever else in the gateway wants to know."""

import asyncio
from collections.abc import Mapping
from typing import Protocol

from koord.contracts.state import ChangeType
from koord.gateway.objects import Brief
from koord.kube.resources import Resource


class StateSink(Protocol):
    """Where changes go: the state stream (:mod:`koord.gateway.stream`). Keys are ``namespace/name`` or ``name``."""

    def publish(
        self, resource: Resource, type_: ChangeType, namespace: str, name: str, resource_version: str, body: bytes
    ) -> "asyncio.Future[int]":
        """Append one change; the future is done when the stream has it."""
        ...

    async def room(self) -> None:
        """Wait until the stream takes more."""
        ...

    async def held(self, resource: Resource) -> Mapping[str, str]:
        """The resourceVersion of every live object that the stream holds, by key."""
        ...

    async def bury(self, resource: Resource, key: str, resource_version: str) -> None:
        """Publish a tombstone with the last object that the stream holds."""
        ...

    async def listed(self, resource: Resource, resource_version: str, mark: str = "") -> int:
        """Say that the stream holds the whole resource; returns when everything published before is stored."""
        ...

    def stored(self, sequence: int) -> None:
        """A change that was published has this place in the stream."""
        ...


class Watcher(Protocol):
    """Who else wants to know what was seen."""

    def observe(self, type_: ChangeType, key: str, brief: Brief) -> None:
        """One change, before it is published."""
        ...

    def drop(self, key: str) -> None:
        """An object that vanished while nobody watched."""
        ...
