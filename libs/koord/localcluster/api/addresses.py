"""The addresses and node ports of Services: who has which, giving out, and what an update keeps of them.

Nothing answers at these addresses, as nothing routes here; they are there because clients show and copy them, and
because one that is given twice, or is outside of the range, is refused on a real cluster.
"""

import ipaddress
import json
import random
from typing import Any, Final, NamedTuple

from koord.localcluster.api.errors import Cause, internal, invalid, invalid_value
from koord.localcluster.api.resources import Resource
from koord.localcluster.api.servicerules import EXPOSED
from koord.localcluster.api.store import Store, decode
from koord.localcluster.api.watchcache import Entry
from koord.localcluster.clusterapi import Object

KEY: Final = "services"
RANGE: Final = ipaddress.IPv4Network("10.96.0.0/16")
PORTS: Final = range(30000, 32768)
_TRIES: Final = 64

Port = tuple[str, int]


class _Held(NamedTuple):
    address: str
    ports: tuple[Port, ...]


class ServiceAddresses:
    """What the Services of one cluster have; it hears of their writes from the store."""

    def __init__(self, store: Store) -> None:
        self._held: dict[tuple[str, str], _Held] = {}
        self._addresses: dict[str, int] = {}
        self._ports: dict[Port, int] = {}
        store.listen(self._note, lambda resource: resource.key == KEY)

    def _note(self, resource: Resource, entry: Entry | None, old: Entry | None) -> None:
        one = entry or old
        assert one is not None
        place = (one.namespace, one.name)
        if before := self._held.pop(place, None):
            self._count(before, -1)
        if entry is not None:
            held = _held(decode(entry).get("spec") or {})
            self._held[place] = held
            self._count(held, 1)

    def _count(self, held: _Held, change: int) -> None:
        if held.address:
            _add(self._addresses, held.address, change)
        for port in held.ports:
            _add(self._ports, port, change)

    def prepare(self, resource: Resource, service: Object) -> None:
        """Give a new or changed Service what it lacks; 422 for what is taken or outside of the range."""
        spec, metadata = service["spec"], service["metadata"]
        own = self._held.get((metadata.get("namespace", ""), metadata["name"]), _Held("", ()))
        kind = spec["type"]
        causes: list[Cause] = []
        if kind == "ExternalName":
            return
        address = spec.get("clusterIP")
        if not address:
            spec["clusterIP"] = self._free_address()
        elif address not in ("None", own.address) and (why := self._refused(address)):
            shown = json.dumps([address])
            words = f"Invalid value: {shown}: failed to allocate IP {address}: {why}"
            causes.append(Cause("FieldValueInvalid", "spec.clusterIPs", words))
        spec["clusterIPs"] = [spec["clusterIP"]]
        if kind in EXPOSED:
            causes += self._take_ports(spec, own, ask=kind == "NodePort" or spec["allocateLoadBalancerNodePorts"])
            health = kind == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"
            if health and not spec.get("healthCheckNodePort"):
                spec["healthCheckNodePort"] = self._free_port({("TCP", number) for _, number in _ports(spec)})
            elif health:
                self._take_health_port(spec, own)
        if causes:
            raise invalid(resource, metadata["name"], causes)

    def _refused(self, address: str) -> str:
        parsed = ipaddress.ip_address(address)
        if parsed not in RANGE or parsed in (RANGE.network_address, RANGE.broadcast_address):
            return "the provided network does not match the current range"
        return "provided IP is already allocated" if address in self._addresses else ""

    def _take_ports(self, spec: Object, own: _Held, *, ask: bool) -> list[Cause]:
        """Node ports: those that are named must be free, others are chosen; a port of two protocols has one."""
        causes: list[Cause] = []
        taken: set[Port] = set()
        chosen: dict[int, int] = {}
        for i, port in enumerate(spec.get("ports") or ()):
            path, protocol, number = f"spec.ports[{i}].nodePort", port["protocol"], port.get("nodePort")
            if not number:
                if not ask:
                    continue
                same = chosen.get(port["port"])
                number = same if same and self._is_free((protocol, same), taken, own) else self._free_port(taken)
                port["nodePort"] = number
            elif number not in PORTS:
                low, high = PORTS[0], PORTS[-1]
                words = f"provided port is not in the valid range. The range of valid ports is {low}-{high}"
                causes.append(invalid_value(path, number, words))
            elif not self._is_free((protocol, number), taken, own):
                causes.append(invalid_value(path, number, "provided port is already allocated"))
            taken.add((protocol, number))
            chosen[port["port"]] = number
        return causes

    def _take_health_port(self, spec: Object, own: _Held) -> None:
        """A port for health checks that a client chose; 500 when it cannot have it, as on the real server."""
        number = spec["healthCheckNodePort"]
        others = {("TCP", port["nodePort"]) for port in spec.get("ports") or () if port.get("nodePort")}
        why = ""
        if number not in PORTS:
            why = f"provided port is not in the valid range. The range of valid ports is {PORTS[0]}-{PORTS[-1]}"
        elif not self._is_free(("TCP", number), others, own):
            why = "provided port is already allocated"
        if why:
            raise internal(f"failed to allocate requested HealthCheck NodePort {number}: {why}")

    def _is_free(self, port: Port, taken: set[Port], own: _Held) -> bool:
        return port not in taken and (port not in self._ports or port in own.ports)

    def _free_address(self) -> str:
        for _ in range(_TRIES):
            text = str(RANGE[random.randrange(1, RANGE.num_addresses - 1)])
            if text not in self._addresses:
                return text
        free = (str(address) for address in RANGE.hosts() if str(address) not in self._addresses)
        found = next(free, None)
        if found is None:
            raise internal("failed to allocate a serviceIP: range is full")
        return found

    def _free_port(self, taken: set[Port]) -> int:
        """A port that nobody has, whatever the protocol."""
        used = {number for _, number in (*self._ports, *taken)}
        free = [number for number in PORTS if number not in used]
        if not free:
            raise internal("failed to allocate a nodePort: range is full")
        return random.choice(free)


def _add(counts: dict[Any, int], key: Any, change: int) -> None:
    count = counts.get(key, 0) + change
    if count > 0:
        counts[key] = count
    else:
        counts.pop(key, None)


def _ports(spec: Object) -> list[Port]:
    found = [
        (port.get("protocol", "TCP"), port["nodePort"]) for port in spec.get("ports") or () if port.get("nodePort")
    ]
    if health := spec.get("healthCheckNodePort"):
        found.append(("TCP", health))
    return found


def _held(spec: Object) -> _Held:
    address = spec.get("clusterIP") or ""
    return _Held("" if address == "None" else address, tuple(_ports(spec)))


# What an update keeps ------------------------------------------------------------------------------------------------


def keep(new: Object, old: Object) -> None:
    """Put back what a client left out and the server gave, and let go of what the new type does not have.

    `new` gets a spec of its own. What was changed on purpose stays as it was sent, for the rules to judge.
    """
    before: Object = old.get("spec") or {}
    spec = new["spec"] = dict(new.get("spec") or {})
    if "ports" in spec:
        spec["ports"] = [dict(port) for port in spec["ports"]]
    kind, kind_before = spec.get("type") or "ClusterIP", before.get("type") or "ClusterIP"
    spec["type"] = kind
    if kind != "ExternalName" and kind_before != "ExternalName":
        _keep_address(spec, before)
    if kind in EXPOSED and kind_before in EXPOSED:
        _keep_ports(spec, before)
    _let_go(spec, before, kind, kind_before)


def _keep_address(spec: Object, before: Object) -> None:
    had, given = before.get("clusterIP"), spec.get("clusterIP")
    if not given:
        if had:
            spec["clusterIP"] = had
            if not spec.get("clusterIPs"):
                spec["clusterIPs"] = [had]
        return
    if (given != had and spec.get("clusterIPs") == before.get("clusterIPs")) or not spec.get("clusterIPs"):
        spec["clusterIPs"] = [given]


def _keep_ports(spec: Object, before: Object) -> None:
    had = {port.get("name", ""): port.get("nodePort") for port in before.get("ports") or ()}
    sent = {port.get("nodePort") for port in spec.get("ports") or ()}
    used = {number for number in had.values() if number in sent}
    for port in spec.get("ports") or ():
        known = had.get(port.get("name", ""))
        if known and not port.get("nodePort") and known not in used:
            port["nodePort"] = known
            used.add(known)
    if spec.get("externalTrafficPolicy") == "Local" and before.get("healthCheckNodePort"):
        spec.setdefault("healthCheckNodePort", before["healthCheckNodePort"])


def _let_go(spec: Object, before: Object, kind: str, kind_before: str) -> None:
    gone: list[str] = []
    if kind == "ExternalName" and kind_before != kind:
        gone += ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"]
    if kind not in EXPOSED:
        if kind_before in EXPOSED:
            same = [port.get("nodePort") for port in before.get("ports") or ()]
            if [port.get("nodePort") for port in spec.get("ports") or ()] == same:
                for port in spec.get("ports") or ():
                    port.pop("nodePort", None)
        if not spec.get("externalIPs"):
            gone.append("externalTrafficPolicy")
    if kind != "LoadBalancer":
        gone += ["allocateLoadBalancerNodePorts", "loadBalancerClass"]
    if kind != "LoadBalancer" or spec.get("externalTrafficPolicy") != "Local":
        gone.append("healthCheckNodePort")
    for field in gone:
        if field in before and spec.get(field) == before[field]:
            spec.pop(field)
