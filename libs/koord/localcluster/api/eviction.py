"""The eviction sub-resource: a deletion that asks the pod's disruption budget first.

The budget's numbers are the disruption controller's (`controllers.disruption`); an eviction only takes one from
`disruptionsAllowed` and writes the pod's name into `disruptedPods`, so that two evictions do not rest on one number.
Every step is synchronous, so nothing can come between the check and the deletion.
"""

from typing import Any

from koord.localcluster.api import budgets, deletion
from koord.localcluster.api.builtin import PODS
from koord.localcluster.api.cluster import Cluster
from koord.localcluster.api.deleteoptions import (
    DeleteOptions,
    Preconditions,
    check_options,
    convert_options,
    dry_run_causes,
    invalid_options,
)
from koord.localcluster.api.errors import bad_request
from koord.localcluster.api.store import decode
from koord.localcluster.api.watchcache import Entry
from koord.localcluster.clusterapi import ApiError, Object

REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."
SEVERAL = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
_RETRY_SECONDS = 10
_MAX_DISRUPTED = 2_000


def evict(cluster: Cluster, namespace: str, name: str, eviction: Object, dry_run: list[str] | None = None) -> None:
    """Evict a pod; 429 when its budget refuses, 500 when it has several budgets. `dry_run` is the request's."""
    options = _options(name, eviction, dry_run)
    entry = cluster.find(PODS, namespace, name)
    pod = decode(entry)
    if not _past_budgets(pod):
        budget = _budget(cluster, entry)
        if budget is not None and not _unhealthy_may_go(pod, decode(budget)):
            _take(cluster, budget, name, tries_only=options.tries_only)
    check_options(options)
    if not options.tries_only:
        if (wanted := options.preconditions) is not None:
            deletion.check_record(PODS, entry, wanted.uid or None, wanted.resource_version or None)
        marked = _mark(pod, cluster.clock.now())
        if marked != pod:
            entry = cluster.collection(PODS).put(marked, cluster.store.next_version())
        if options.preconditions is not None and options.preconditions.resource_version is not None:
            options.preconditions = Preconditions(options.preconditions.uid, str(entry.version))
    # Webhooks were asked about the eviction, and not about its parts.
    deletion.delete(cluster, PODS, namespace, name, options, ask=False)


def _options(name: str, eviction: Object, dry_run: list[str] | None) -> DeleteOptions:
    if causes := dry_run_causes(dry_run):
        raise invalid_options("CreateOptions", causes)
    kind = eviction.get("kind")
    if kind not in (None, "", "Eviction"):
        version = eviction.get("apiVersion", "")
        raise bad_request(f'{kind} in version "{version}" cannot be handled as a Eviction')
    metadata = eviction.get("metadata")
    if not isinstance(metadata, dict) or metadata.get("name") != name:
        raise bad_request("name in URL does not match name in Eviction object")
    given: Any = eviction.get("deleteOptions") or {}
    options = convert_options(given)
    if dry_run and not options.dry_run:
        options.dry_run = dry_run
    return options


def _past_budgets(pod: Object) -> bool:
    """Whether losing the pod disrupts nothing: it has ended, has not begun, or goes already."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or "deletionTimestamp" in pod["metadata"]


def _budget(cluster: Cluster, entry: Entry) -> Entry | None:
    found = budgets.selecting(cluster, entry.namespace, entry.labels)
    if len(found) > 1:
        raise ApiError(500, "", SEVERAL)
    return found[0] if found else None


def _unhealthy_may_go(pod: Object, budget: Object) -> bool:
    """A pod that is not ready does not count as available; by policy it goes always, or while the rest is healthy."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    if any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions):
        return False
    if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    desired = status.get("desiredHealthy") or 0
    return desired > 0 and (status.get("currentHealthy") or 0) >= desired


def _take(cluster: Cluster, entry: Entry, pod: str, *, tries_only: bool) -> None:
    """Take one disruption from a budget for a pod; 429 when there is none."""
    budget = decode(entry)
    status: Object = budget.get("status") or {}
    name = entry.name
    if (status.get("observedGeneration") or 0) < budget["metadata"].get("generation", 0):
        raise _refused(f"The disruption budget {name} is still being processed by the server.", _RETRY_SECONDS)
    allowed = status.get("disruptionsAllowed") or 0
    if allowed < 0:
        raise _forbidden(name, "pdb disruptions allowed is negative", "pdb disruptions allowed is negative")
    if len(status.get("disruptedPods") or ()) > _MAX_DISRUPTED:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise _forbidden(name, why, "too many pending evictions not confirmed by PDB controller")
    if allowed == 0:
        raise _refused(_why_none(name, status))
    if tries_only:
        return
    new: Object = {**status, "disruptionsAllowed": allowed - 1}
    if allowed == 1:
        budgets.set_condition(new, cluster.clock.now())
    new["disruptedPods"] = {**(status.get("disruptedPods") or {}), pod: cluster.clock.now()}
    resource = cluster.resource(budgets.KEY)
    cluster.collection(resource).put({**budget, "status": new}, cluster.store.next_version())


def _why_none(name: str, status: Object) -> str:
    condition: Object = next(
        (item for item in status.get("conditions") or () if item.get("type") == "DisruptionAllowed"), {}
    )
    said = condition.get("message") if condition.get("status") == "False" else ""
    healthy, desired = status.get("currentHealthy") or 0, status.get("desiredHealthy") or 0
    not_now = f"The disruption budget {name} does not allow evicting pods currently"
    if said and condition.get("reason") == "SyncFailed":
        return f"{not_now} because it failed sync: {said}"
    if healthy <= desired:
        return f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
    return f"{not_now} ({condition.get('reason')}): {said}" if said else not_now


def _refused(cause: str, retry_seconds: int = 0) -> ApiError:
    details: Object = {"causes": [{"reason": "DisruptionBudget", "message": cause}]}
    if retry_seconds:
        details["retryAfterSeconds"] = retry_seconds
    return ApiError(429, "TooManyRequests", REFUSED, details)


def _forbidden(name: str, why: str, cause: str) -> ApiError:
    message = f"The disruption budget {name} does not allow evicting pods currently: {cause}"
    details: Object = {
        "name": name,
        "group": "policy",
        "kind": "poddisruptionbudget",
        "causes": [{"reason": "DisruptionBudget", "message": message}],
    }
    return ApiError(403, "Forbidden", f'poddisruptionbudget.policy "{name}" is forbidden: {why}', details)


def _mark(pod: Object, now: str) -> Object:
    """The pod with the condition that says why it goes."""
    condition: Object = {
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": now,
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    status = dict(pod.get("status") or {})
    conditions = [dict(item) for item in status.get("conditions") or ()]
    for i, present in enumerate(conditions):
        if present.get("type") == condition["type"]:
            if present.get("status") == "True":
                condition["lastTransitionTime"] = present.get("lastTransitionTime", now)
            conditions[i] = condition
            break
    else:
        conditions.append(condition)
    status["conditions"] = conditions
    return {**pod, "status": status}
