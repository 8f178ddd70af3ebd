"""The rules of containers and volumes, in the real server's words. Cheap for the containers that jobs have."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from koord.kube.quantity import QuantityError, parse
from koord.localcluster.api.builtin import NAMESPACES
from koord.localcluster.api.errors import Cause, duplicate, forbidden_value, invalid_value, not_supported, required
from koord.localcluster.api.validation import name_problem, validate_amounts
from koord.localcluster.clusterapi import Object

_PULL = ("Always", "IfNotPresent", "Never")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_HANDLERS = ("exec", "grpc", "httpGet", "tcpSocket")
_VARIABLE_RULE = "a valid environment variable name must consist only of printable ASCII characters other than '='"
_known_variables: set[str] = set()
_known_names: set[str] = set()
_KNOWN = 4_096


def validate_container(
    container: Object, path: str, names: set[str], volumes: frozenset[str], causes: list[Cause]
) -> None:
    """One container; `names` are those that are taken, `volumes` those that the pod has; adds to `causes`."""
    get = container.get
    name = get("name")
    if not name:
        causes.append(required(f"{path}.name"))
    else:
        if name not in _known_names:
            _validate_name(name, path, causes)
        if name in names:
            causes.append(duplicate(f"{path}.name", name))
        names.add(name)
    if not get("image"):
        causes.append(required(f"{path}.image"))
    policy = get("imagePullPolicy")
    if policy and policy not in _PULL:
        causes.append(not_supported(f"{path}.imagePullPolicy", policy, _PULL))
    if resources := get("resources"):
        _validate_resources(resources, path, causes)
    if ports := get("ports"):
        causes.extend(_validate_ports(ports, f"{path}.ports"))
    if variables := get("env"):
        for i, variable in enumerate(variables):
            name = variable.get("name")
            if name not in _known_variables or "valueFrom" in variable:
                causes.extend(_validate_variable(variable, f"{path}.env[{i}]"))
    if mounts := get("volumeMounts"):
        causes.extend(_validate_mounts(mounts, f"{path}.volumeMounts", volumes))
    for field in _PROBES:
        if field in container:
            probe = container[field]
            if probe is not None and not any(handler in probe for handler in _HANDLERS):
                causes.append(required(f"{path}.{field}", "must specify a handler type"))


def _validate_name(name: str, path: str, causes: list[Cause]) -> None:
    # Container names follow the same rule as namespaces: one DNS label.
    if problem := name_problem(NAMESPACES, name):
        causes.append(invalid_value(f"{path}.name", name, problem))
    elif len(_known_names) < _KNOWN:
        _known_names.add(name)


def _validate_mounts(mounts: list[Object], path: str, volumes: frozenset[str]) -> Iterator[Cause]:
    for i, mount in enumerate(mounts):
        if mount.get("name", "") not in volumes:
            words = f'Not found: "{mount.get("name", "")}"'
            yield Cause("FieldValueNotFound", f"{path}[{i}].name", words)
        if not mount.get("mountPath"):
            yield required(f"{path}[{i}].mountPath")


def _validate_resources(resources: Object, path: str, causes: list[Cause]) -> None:
    """Amounts are quantities, and none is requested beyond its limit."""
    requests, limits = resources.get("requests"), resources.get("limits")
    if limits:
        causes.extend(validate_amounts(limits, f"{path}.resources.limits"))
    if requests:
        causes.extend(validate_amounts(requests, f"{path}.resources.requests"))
        if limits and requests != limits:
            for name, amount in requests.items():
                limit = limits.get(name)
                if limit is not None and limit != amount and _exceeds(amount, limit):
                    why = f"must be less than or equal to {name} limit of {limit}"
                    causes.append(invalid_value(f"{path}.resources.requests", str(amount), why))


@lru_cache(4_096)
def _exceeds(amount: Any, limit: Any) -> bool:
    try:
        return parse(amount) > parse(limit)
    except QuantityError:
        return False  # said already


def _validate_ports(ports: list[Object], path: str) -> Iterator[Cause]:
    names: set[str] = set()
    for i, port in enumerate(ports):
        number = port.get("containerPort")
        if not number:
            yield required(f"{path}[{i}].containerPort")
        elif not 0 < number < 65536:
            yield invalid_value(f"{path}[{i}].containerPort", number, "must be between 1 and 65535, inclusive")
        protocol = port.get("protocol", "TCP")
        if protocol not in _PROTOCOLS:
            yield not_supported(f"{path}[{i}].protocol", protocol, _PROTOCOLS)
        name = port.get("name")
        if name and name in names:
            yield duplicate(f"{path}[{i}].name", name)
        elif name:
            names.add(name)


def _validate_variable(variable: Object, path: str) -> Iterator[Cause]:
    name = variable.get("name")
    if not name:
        yield required(f"{path}.name")
    elif "=" in name or not name.isascii() or not name.isprintable():
        yield invalid_value(f"{path}.name", name, _VARIABLE_RULE)
    elif len(_known_variables) < _KNOWN:
        _known_variables.add(name)
    if variable.get("valueFrom") is not None and variable.get("value"):
        yield invalid_value(f"{path}.valueFrom", "", "may not be specified when `value` is not empty")


def validate_volumes(volumes: list[Object], path: str) -> Iterator[Cause]:
    """Names, and one source each."""
    names: set[str] = set()
    for i, volume in enumerate(volumes):
        name = volume.get("name")
        if not name:
            yield required(f"{path}[{i}].name")
        elif problem := name_problem(NAMESPACES, name):
            yield invalid_value(f"{path}[{i}].name", name, problem)
        elif name in names:
            yield duplicate(f"{path}[{i}].name", name)
        names.add(name or "")
        sources = [field for field in volume if field != "name"]
        for extra in sources[1:]:
            yield forbidden_value(f"{path}[{i}].{extra}", "may not specify more than 1 volume type")
