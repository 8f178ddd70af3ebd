"""The rules of a PodDisruptionBudget's spec."""

from typing import Any

from koord.localcluster.api.errors import Cause, invalid_value, not_supported
from koord.localcluster.api.workloadrules import selector_causes
from koord.localcluster.clusterapi import Object

_PERCENT_RULE = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for"
    " validation is '[0-9]+%')"
)
_POLICIES = ("AlwaysAllow", "IfHealthyBudget")


def validate_budget(budget: Object) -> list[Cause]:
    """One of minAvailable and maxUnavailable, a number or a percentage up to 100 %; a known eviction policy."""
    spec: Object = budget.get("spec") or {}
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    causes: list[Cause] = []
    if least is not None and most is not None:
        causes.append(Cause("FieldValueInvalid", "spec", "minAvailable and maxUnavailable cannot be both set"))
    for field, value in (("minAvailable", least), ("maxUnavailable", most)):
        if value is not None:
            causes.extend(_amount_causes(f"spec.{field}", value))
    causes.extend(selector_causes(spec.get("selector") or {}, "spec.selector"))
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None and policy not in _POLICIES:
        causes.append(not_supported("spec.unhealthyPodEvictionPolicy", policy, _POLICIES))
    return causes


def _amount_causes(path: str, value: Any) -> list[Cause]:
    if isinstance(value, int):
        return [invalid_value(path, value, "must be greater than or equal to 0")] if value < 0 else []
    if not isinstance(value, str) or not value.endswith("%") or not value[:-1].isdecimal() or not value.isascii():
        return [invalid_value(path, value, _PERCENT_RULE)]
    return [invalid_value(path, value, "must not be greater than 100%")] if int(value[:-1]) > 100 else []
