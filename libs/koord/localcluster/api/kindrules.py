"""The rules of ConfigMaps, Secrets, Leases, quotas and claims, in the real server's words."""

import re

from koord.localcluster.api.errors import Cause, invalid_value, required
from koord.localcluster.api.validation import validate_amounts
from koord.localcluster.clusterapi import Object

_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_KEY_RULE = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)


def _keys(data: Object, field: str) -> list[Cause]:
    return [
        invalid_value(f"{field}[{key}]", key, _KEY_RULE)
        for key in data
        if not _KEY.fullmatch(key) or len(key) > 253 or key in (".", "..")
    ]


def validate_config_map(config: Object) -> list[Cause]:
    """Keys, each in one of the two maps."""
    data, binary = config.get("data") or {}, config.get("binaryData") or {}
    causes = _keys(data, "data") + _keys(binary, "binaryData")
    causes += [
        invalid_value(f"data[{key}]", key, "duplicate of key present in binaryData") for key in data if key in binary
    ]
    return causes


def validate_secret(secret: Object) -> list[Cause]:
    """Keys, and those that a type needs."""
    data = {**(secret.get("data") or {}), **(secret.get("stringData") or {})}
    causes = _keys(data, "data")
    if secret.get("type") == "kubernetes.io/tls":
        causes += [required(f"data[{key}]") for key in ("tls.crt", "tls.key") if key not in data]
    return causes


def validate_lease(lease: Object) -> list[Cause]:
    """Durations."""
    spec = lease.get("spec") or {}
    causes: list[Cause] = []
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration is not None and duration <= 0:
        causes.append(invalid_value("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        why = "must be greater than or equal to 0"
        causes.append(invalid_value("spec.leaseTransitions", transitions, why))
    return causes


def validate_quota(quota: Object) -> list[Cause]:
    """Amounts."""
    return list(validate_amounts((quota.get("spec") or {}).get("hard") or {}, "spec.hard"))


def validate_claim(claim: Object) -> list[Cause]:
    """Access modes and an amount of storage."""
    spec = claim.get("spec") or {}
    causes: list[Cause] = []
    if not spec.get("accessModes"):
        causes.append(required("spec.accessModes", "at least 1 access mode is required"))
    if "storage" not in ((spec.get("resources") or {}).get("requests") or {}):
        causes.append(required("spec.resources[storage]"))
    return causes
