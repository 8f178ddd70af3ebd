"""PodDisruptionBudgets as the server reads them: which ones select a pod, and the condition in their status."""

import msgspec

from koord.kube.selectors import LabelSelector, Selector, SelectorError, compile_label_selector
from koord.localcluster.api.cluster import Cluster
from koord.localcluster.api.watchcache import Entry
from koord.localcluster.clusterapi import Object

KEY = "poddisruptionbudgets.policy"
_REMEMBERED = 1_024
_KNOWN = object()


class _Spec(msgspec.Struct):
    selector: LabelSelector | None = None


class _Budget(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)


_decode = msgspec.json.Decoder(_Budget).decode
_selectors: dict[tuple[str, int], Selector | None] = {}


def selector_of(budget: Entry) -> Selector | None:
    """The compiled selector of a budget; None if it selects nothing (there is none, or it breaks a rule)."""
    key = (budget.uid, budget.version)
    known = _selectors.get(key, _KNOWN)
    if known is not _KNOWN:
        return known  # type: ignore[return-value]
    selector: Selector | None = None
    try:
        given = _decode(budget.raw).spec.selector
        selector = compile_label_selector(given) if given is not None else None
    except (msgspec.ValidationError, SelectorError):
        selector = None
    if len(_selectors) >= _REMEMBERED:
        _selectors.clear()
    _selectors[key] = selector
    return selector


def selecting(cluster: Cluster, namespace: str, labels: dict[str, str] | None) -> list[Entry]:
    """The budgets that a pod with these labels falls under, ordered by name."""
    collection = cluster.collection(cluster.resource(KEY))
    if namespace not in collection.objects:
        return []
    found = []
    for budget in collection.entries(namespace):
        selector = selector_of(budget)
        if selector is not None and selector.matches(labels or {}):
            found.append(budget)
    return found


def set_condition(status: Object, now: str, *, failure: str = "") -> None:
    """Set the condition DisruptionAllowed to what `disruptionsAllowed` says, or to SyncFailed with `failure`."""
    allowed = (status.get("disruptionsAllowed") or 0) > 0 and not failure
    reason = "SyncFailed" if failure else "SufficientPods" if allowed else "InsufficientPods"
    conditions = [dict(condition) for condition in status.get("conditions") or ()]
    condition: Object = {
        "type": "DisruptionAllowed",
        "status": "True" if allowed else "False",
        "observedGeneration": status.get("observedGeneration", 0),
        "lastTransitionTime": now,
        "reason": reason,
        "message": failure,
    }
    for i, present in enumerate(conditions):
        if present.get("type") == "DisruptionAllowed":
            if present.get("status") == condition["status"]:
                condition["lastTransitionTime"] = present.get("lastTransitionTime", now)
            conditions[i] = condition
            break
    else:
        conditions.append(condition)
    status["conditions"] = conditions
