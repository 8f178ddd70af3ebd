"""The rules of Services, in the real server's words. Addresses and node ports are given out by `addresses`."""

import ipaddress
import json
import re
from collections.abc import Iterator
from typing import Any

from koord.localcluster.api.errors import Cause, duplicate, forbidden_value, invalid_value, not_supported, required
from koord.localcluster.api.names import LABEL_RULE, SUBDOMAIN_RULE, is_label, is_subdomain
from koord.localcluster.api.validation import validate_labels
from koord.localcluster.clusterapi import Object

EXPOSED = ("NodePort", "LoadBalancer")
"""Types with node ports."""
_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_FAMILY_POLICIES = ("PreferDualStack", "RequireDualStack", "SingleStack")
_PORT_RULE = "must be between 1 and 65535, inclusive"
_ADDRESS_RULE = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_PORT_NAME = re.compile(r"[-a-z0-9]+")


def validate_service(service: Object) -> list[Cause]:
    """Type, ports, addresses, selector, policies."""
    spec = service.get("spec") or {}
    kind, ports = spec.get("type") or "ClusterIP", spec.get("ports") or []
    causes: list[Cause] = []
    if kind not in _TYPES:
        causes.append(not_supported("spec.type", kind, _TYPES))
    if kind != "ExternalName" and not ports and spec.get("clusterIP") != "None":
        causes.append(required("spec.ports"))
    causes += _ports(ports, kind)
    causes += _addresses(spec, kind)
    causes += validate_labels(spec.get("selector") or {}, "spec.selector")
    for field, known in (("sessionAffinity", ("ClientIP", "None")), ("internalTrafficPolicy", ("Cluster", "Local"))):
        if spec.get(field) and spec[field] not in known:
            causes.append(not_supported(f"spec.{field}", spec[field], known))
    causes += _balanced(spec, kind)
    policy = spec.get("externalTrafficPolicy")
    if policy and kind not in EXPOSED and not spec.get("externalIPs"):
        words = "may only be set for externally-accessible services"
        causes.append(invalid_value("spec.externalTrafficPolicy", policy, words))
    elif policy and policy not in ("Cluster", "Local"):
        causes.append(not_supported("spec.externalTrafficPolicy", policy, ("Cluster", "Local")))
    return causes


def _balanced(spec: Object, kind: str) -> Iterator[Cause]:
    """What only Services with a load balancer have."""
    if kind != "LoadBalancer" and spec.get("loadBalancerClass"):
        yield forbidden_value("spec.loadBalancerClass", "may only be used when `type` is 'LoadBalancer'")
    health = spec.get("healthCheckNodePort")
    if health and (kind != "LoadBalancer" or spec.get("externalTrafficPolicy") != "Local"):
        words = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        yield invalid_value("spec.healthCheckNodePort", health, words)


def _ports(ports: list[Object], kind: str) -> Iterator[Cause]:
    names: set[str] = set()
    places: set[tuple[Any, Any]] = set()
    for i, port in enumerate(ports):
        path, number, name = f"spec.ports[{i}]", port.get("port", 0), port.get("name")
        if not name:
            if len(ports) > 1:
                yield required(f"{path}.name")
        elif not is_label(name):
            yield invalid_value(f"{path}.name", name, LABEL_RULE)
        elif name in names:
            yield duplicate(f"{path}.name", name)
        names.add(name or "")
        if not 0 < number < 65536:
            yield invalid_value(f"{path}.port", number, _PORT_RULE)
        protocol = port.get("protocol") or "TCP"
        if protocol not in _PROTOCOLS:
            yield not_supported(f"{path}.protocol", protocol, _PROTOCOLS)
        yield from _target(port.get("targetPort", number), f"{path}.targetPort")
        if port.get("nodePort") and kind == "ClusterIP":
            yield forbidden_value(f"{path}.nodePort", "may not be used when `type` is 'ClusterIP'")
        if (protocol, number) in places:
            shown = {"Name": "", "Protocol": protocol, "AppProtocol": None, "Port": number}
            words = json.dumps({**shown, "TargetPort": 0, "NodePort": 0}, separators=(",", ":"))
            yield Cause("FieldValueDuplicate", path, f"Duplicate value: {words}")
        places.add((protocol, number))


def _target(target: Any, path: str) -> Iterator[Cause]:
    """A port's number, or the name of one of a container's ports."""
    if isinstance(target, int):
        if not 0 < target < 65536:
            yield invalid_value(path, target, _PORT_RULE)
        return
    if len(target) > 15:
        yield invalid_value(path, target, "must be no more than 15 characters")
    if not _PORT_NAME.fullmatch(target):
        words = "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"
        yield invalid_value(path, target, words)
        return
    if not re.search("[a-z]", target):
        yield invalid_value(path, target, "must contain at least one letter (a-z)")
    if "--" in target:
        yield invalid_value(path, target, "must not contain consecutive hyphens")
    if target.startswith("-") or target.endswith("-"):
        yield invalid_value(path, target, "must not begin or end with a hyphen")


def _addresses(spec: Object, kind: str) -> Iterator[Cause]:
    address = spec.get("clusterIP")
    if kind == "ExternalName":
        name = spec.get("externalName")
        if address:
            yield forbidden_value("spec.clusterIPs", "may not be set for ExternalName services")
        if not name:
            yield required("spec.externalName")
        elif not is_subdomain(name.removesuffix(".")):
            yield invalid_value("spec.externalName", name, SUBDOMAIN_RULE)
    elif address == "None":
        if kind in EXPOSED:
            yield invalid_value("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services")
    elif address and not _is_address(address):
        yield invalid_value("spec.clusterIPs[0]", address, _ADDRESS_RULE)
    listed = spec.get("clusterIPs") or []
    if kind != "ExternalName" and listed and listed[0] != address:
        words = (
            "must be empty when `clusterIP` is not specified" if not address else "first value must match `clusterIP`"
        )
        shown = json.dumps(listed, separators=(",", ":"))
        yield Cause("FieldValueInvalid", "spec.clusterIPs", f"Invalid value: {shown}: {words}")
    for i, given in enumerate(spec.get("externalIPs") or ()):
        if not _is_address(given):
            yield invalid_value(f"spec.externalIPs[{i}]", given, _ADDRESS_RULE)
    if kind == "ExternalName" or (address == "None" and not spec.get("selector")):
        return
    policy = spec.get("ipFamilyPolicy")
    if policy and policy not in _FAMILY_POLICIES:
        yield not_supported("spec.ipFamilyPolicy", policy, _FAMILY_POLICIES)
    elif policy == "RequireDualStack":
        words = "this cluster is not configured for dual-stack services"
        yield invalid_value("spec.ipFamilyPolicy", "RequireDualStack", words)
    for i, family in enumerate(spec.get("ipFamilies") or ()):
        if family not in ("IPv4", "IPv6"):
            yield not_supported(f"spec.ipFamilies[{i}]", family, ("IPv4", "IPv6"))
        elif family == "IPv6":
            yield invalid_value(f"spec.ipFamilies[{i}]", family, "not configured on this cluster")


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def validate_service_change(new: Object, old: Object) -> list[Cause]:
    """As on create; and an address that was given out stays."""
    causes = validate_service(new)
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    kept = before.get("clusterIPs") or []
    external = "ExternalName" in (before.get("type"), spec.get("type"))
    judged = any(cause.field.startswith("spec.clusterIP") for cause in causes)
    if kept and not judged and not external and (spec.get("clusterIPs") or [])[:1] != kept[:1]:
        shown = json.dumps(spec.get("clusterIPs") or [], separators=(",", ":"))
        words = f"Invalid value: {shown}: may not change once set"
        causes.append(Cause("FieldValueInvalid", "spec.clusterIPs[0]", words))
    return causes
