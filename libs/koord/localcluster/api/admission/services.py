"""Where the webhook behind a Service is.

The real server connects to the Service's cluster address, which a proxy on its machine carries on. Here no proxy runs:
an ExternalName is followed, and any other Service is looked up in its EndpointSlices, or in its Endpoints when it has
none. The address may be a loopback one.
"""

from typing import NamedTuple

from koord.localcluster.api.admission.definitions import ServiceReference
from koord.localcluster.api.store import Store, decode
from koord.localcluster.clusterapi import Object

_SERVICE_NAME = "kubernetes.io/service-name"


class Unreachable(Exception):
    """No address serves this Service; says why."""


class Address(NamedTuple):
    """Where to connect to."""

    host: str
    port: int


class Services:
    """Looks Services up among the stored objects."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def address(self, reference: ServiceReference) -> Address:
        """Where to connect to for a Service; `Unreachable` when it is not there or nobody serves it."""
        entry = self._store.collections["services"].get(reference.namespace, reference.name)
        if entry is None:
            raise Unreachable(f'service "{reference.name}" not found')
        spec: Object = decode(entry).get("spec") or {}
        if spec.get("type") == "ExternalName":
            return Address(str(spec.get("externalName", "")), reference.port)
        port = next((port for port in spec.get("ports") or () if port.get("port") == reference.port), None)
        if port is None:
            raise Unreachable(f'no service port {reference.port} found for service "{reference.name}"')
        found = self._from_slices(reference, port) or self._from_endpoints(reference, port)
        if found is None:
            raise Unreachable(f'no endpoints available for service "{reference.name}"')
        return found

    def _from_slices(self, reference: ServiceReference, port: Object) -> Address | None:
        slices = self._store.collections["endpointslices.discovery.k8s.io"]
        for entry in slices.entries(reference.namespace):
            if (entry.labels or {}).get(_SERVICE_NAME) != reference.name:
                continue
            slice_ = decode(entry)
            number = _port(slice_.get("ports"), port)
            for endpoint in slice_.get("endpoints") or () if number else ():
                ready = (endpoint.get("conditions") or {}).get("ready")
                if ready is not False and endpoint.get("addresses"):
                    return Address(str(endpoint["addresses"][0]), number or 0)
        return None

    def _from_endpoints(self, reference: ServiceReference, port: Object) -> Address | None:
        entry = self._store.collections["endpoints"].get(reference.namespace, reference.name)
        for subset in decode(entry).get("subsets") or () if entry is not None else ():
            number = _port(subset.get("ports"), port)
            if number and subset.get("addresses"):
                return Address(str(subset["addresses"][0].get("ip", "")), number)
        return None


def _port(ports: list[Object] | None, wanted: Object) -> int | None:
    """The number of the port that has the name of the Service's."""
    name = wanted.get("name") or ""
    return next((port["port"] for port in ports or () if (port.get("name") or "") == name and port.get("port")), None)
