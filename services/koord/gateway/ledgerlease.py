"""The Lease ``koord-ledger``: notes that must outlive Redis and NATS, in annotations, by compare-and-set.

Nobody holds it. A gateway writes there what the next one must know before it fills a lost ledger again: see
:mod:`koord.gateway.barrier` and :mod:`koord.gateway.livemark`.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from koord.gateway.api import Api, ApiUnavailable
from koord.kube.resources import LEASES, NAMESPACES

LEASE: Final = "koord-ledger"


class LedgerLease:
    """Reads and writes it in ``namespace``, which is made if need be."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._namespace = namespace

    async def read(self) -> dict[str, Any] | None:
        """The Lease as it is; None if there is none. ApiUnavailable."""
        answer = await self._api.call("get", LEASES.path(self._namespace, LEASE))
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise ApiUnavailable(f"get lease {LEASE}: answer {answer.status}")
        lease: dict[str, Any] = msgspec.json.decode(answer.body)
        return lease

    async def write(self, lease: dict[str, Any] | None, notes: Mapping[str, str]) -> bool:
        """Add ``notes`` to the Lease as it was read; whether nobody else was faster. ApiUnavailable."""
        if lease is None:
            lease = {
                "apiVersion": LEASES.api_version,
                "kind": "Lease",
                "metadata": {"name": LEASE, "namespace": self._namespace, "annotations": dict(notes)},
                "spec": {},
            }
            answer = await self._api.call("create", LEASES.path(self._namespace), msgspec.json.encode(lease))
        else:
            lease["metadata"]["annotations"] = {**notes_of(lease), **notes}
            answer = await self._api.call("update", LEASES.path(self._namespace, LEASE), msgspec.json.encode(lease))
        if answer.status in (200, 201):
            return True
        if answer.status == 404:
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self._namespace}}
            await self._api.call("create", NAMESPACES.path(), msgspec.json.encode(namespace))
        elif answer.status != 409:
            raise ApiUnavailable(f"write lease {LEASE}: answer {answer.status}")
        return False


def notes_of(lease: dict[str, Any] | None) -> dict[str, str]:
    """What is noted there."""
    return (lease["metadata"].get("annotations") or {}) if lease is not None else {}
