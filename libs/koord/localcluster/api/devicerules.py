"""Device classes, claims on devices, their templates and slices: defaults, and rules in the real server's words.

Those that a user meets first; expressions are looked at by whoever evaluates them.
"""

import copy
import time
from collections.abc import Iterator

from koord.kube.meta import now_rfc3339
from koord.localcluster.api.errors import Cause, duplicate, invalid_value, not_supported, required
from koord.localcluster.clusterapi import Object

_ONE_OF = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
_IMMUTABLE = "field is immutable"


def default_device_claim(claim: Object) -> None:
    """One device of a class, if nothing else is said."""
    devices = (claim.get("spec") or {}).get("devices") or {}
    for request in devices.get("requests") or ():
        wanted = [request["exactly"]] if isinstance(request.get("exactly"), dict) else []
        for each in (*wanted, *(request.get("firstAvailable") or ())):
            if each.setdefault("allocationMode", "ExactCount") == "ExactCount":
                each.setdefault("count", 1)
            for toleration in each.get("tolerations") or ():
                toleration.setdefault("operator", "Equal")


def default_device_claim_template(template: Object) -> None:
    """Those of the claim in it."""
    spec = template.setdefault("spec", {})
    spec.setdefault("metadata", {})
    default_device_claim(template["spec"])


def default_device_slice(devices: Object) -> None:
    """When a taint came."""
    for device in (devices.get("spec") or {}).get("devices") or ():
        for taint in device.get("taints") or ():
            taint.setdefault("timeAdded", now_rfc3339(time.time()))


def validate_device_class(class_: Object) -> list[Cause]:
    """Selectors."""
    return list(_selectors((class_.get("spec") or {}).get("selectors") or (), "spec.selectors"))


def validate_device_claim(claim: Object) -> list[Cause]:
    """Requests of a claim, or of the template of one."""
    spec, path = claim.get("spec") or {}, "spec"
    if "spec" in spec:
        spec, path = spec["spec"] or {}, "spec.spec"
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, request in enumerate((spec.get("devices") or {}).get("requests") or ()):
        at = f"{path}.devices.requests[{index}]"
        name = request.get("name")
        if not name:
            causes.append(required(f"{at}.name"))
        elif name in seen:
            causes.append(duplicate(f"{at}.name", name))
        seen.add(name)
        exactly, subs = request.get("exactly"), request.get("firstAvailable") or ()
        if (exactly is None) == (not subs):
            why = "exactly one of `exactly` or `firstAvailable` is required"
            causes.append(required(at, why) if exactly is None else invalid_value(at, request, why))
            continue
        if exactly is not None:
            causes += _request(exactly, f"{at}.exactly")
        for number, sub in enumerate(subs):
            causes += _request(sub, f"{at}.firstAvailable[{number}]")
    return causes


def device_claim_change(new: Object, old: Object) -> list[Cause]:
    """What is asked for does not change."""
    told = copy.deepcopy(new)
    for body in (told, told.get("spec") or {}):
        default_device_claim(body)
    spec = told.get("spec") or {}
    if "spec" in spec:
        spec.setdefault("metadata", {})
    if spec != (old.get("spec") or {}):
        return [invalid_value("spec", new.get("spec"), _IMMUTABLE)]
    return []


def validate_device_slice(devices: Object) -> list[Cause]:
    """Driver, pool, and one way to say who reaches the devices."""
    spec = devices.get("spec") or {}
    causes = [] if spec.get("driver") else [required("spec.driver")]
    if not (spec.get("pool") or {}).get("name"):
        causes.append(required("spec.pool.name"))
    ways = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
    said = [way for way in ways if spec.get(way)]
    if not said and not spec.get("sharedCounters"):
        causes.append(required("spec", _ONE_OF))
    elif len(said) > 1:
        causes.append(invalid_value("spec", "{" + ", ".join(f"`{way}`" for way in said) + "}", _ONE_OF))
    seen: set[str] = set()
    for index, device in enumerate(spec.get("devices") or ()):
        name = device.get("name")
        at = f"spec.devices[{index}].name"
        if not name:
            causes.append(required(at))
        elif name in seen:
            causes.append(duplicate(at, name))
        seen.add(name)
    return causes


def device_slice_change(new: Object, old: Object) -> list[Cause]:
    """Driver, pool and node stay."""
    causes = validate_device_slice(new)
    after, before = new.get("spec") or {}, old.get("spec") or {}
    for field in ("driver", "nodeName", "nodeSelector", "allNodes"):
        if after.get(field) != before.get(field):
            causes.append(invalid_value(f"spec.{field}", after.get(field), _IMMUTABLE))
    if (after.get("pool") or {}).get("name") != (before.get("pool") or {}).get("name"):
        causes.append(invalid_value("spec.pool.name", (after.get("pool") or {}).get("name"), _IMMUTABLE))
    return causes


def _request(request: Object, at: str) -> Iterator[Cause]:
    if not request.get("deviceClassName"):
        yield required(f"{at}.deviceClassName")
    yield from _selectors(request.get("selectors") or (), f"{at}.selectors")
    mode, count = request.get("allocationMode", "ExactCount"), request.get("count")
    if mode == "ExactCount" and count is not None and count <= 0:
        yield invalid_value(f"{at}.count", count, "must be greater than zero")
    elif mode == "All" and count:
        yield invalid_value(f"{at}.count", count, "must not be specified when allocationMode is 'All'")
    elif mode not in ("ExactCount", "All"):
        yield not_supported(f"{at}.allocationMode", mode, ("All", "ExactCount"))


def _selectors(selectors: list[Object] | tuple[()], at: str) -> Iterator[Cause]:
    for index, selector in enumerate(selectors):
        cel = selector.get("cel")
        if cel is None:
            yield required(f"{at}[{index}].cel")
        elif not cel.get("expression"):
            yield required(f"{at}[{index}].cel.expression")
