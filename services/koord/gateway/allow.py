"""Who may ask for what: service × kind × resource (design section 4).

The table is the gateway's own; a decision that is not in it is refused and nothing is written. Who speaks is told by
the subject: on a shared NATS its permissions must keep a service from publishing on another's subjects; the embedded
one is private to its machine and has none.
"""

import re
from collections.abc import Mapping
from typing import Final

from koord.contracts.decisions import KINDS, Bind, BindMember, Create, Decision, Delete, ObjectRef, Patch, RecordEvents
from koord.kube.resources import (
    BY_TOKEN,
    ELASTIC_QUOTA_PROFILES,
    ELASTIC_QUOTAS,
    JOBS,
    NAMESPACES,
    NODE_METRICS,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_GROUPS,
    PODS,
    PYTORCHJOBS,
    QUEUE_UNITS,
    QUEUES,
    RAYCLUSTERS,
    RAYJOBS,
    RESOURCE_CLAIMS,
    SCHEDULE_EXPLANATIONS,
    TFJOBS,
    Resource,
)

_JOB_KINDS = (JOBS, TFJOBS, PYTORCHJOBS, RAYJOBS, RAYCLUSTERS)


def _tokens(*resources: Resource) -> frozenset[str]:
    return frozenset(resource.token for resource in resources)


ALLOWED: Mapping[tuple[str, str], frozenset[str]] = {
    ("scheduler", "bind"): _tokens(PODS),
    ("scheduler", "patch"): _tokens(
        PODS, POD_GROUPS, PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS, RESOURCE_CLAIMS, SCHEDULE_EXPLANATIONS
    ),
    ("scheduler", "evict"): _tokens(PODS),
    ("scheduler", "delete"): _tokens(PODS, SCHEDULE_EXPLANATIONS),
    ("queue", "create"): _tokens(QUEUE_UNITS, QUEUES, NAMESPACES),
    ("queue", "patch"): _tokens(QUEUE_UNITS, QUEUES, *_JOB_KINDS),
    ("queue", "delete"): _tokens(QUEUE_UNITS, QUEUES),
    ("quota", "create"): _tokens(ELASTIC_QUOTAS, NAMESPACES),
    ("quota", "patch"): _tokens(ELASTIC_QUOTAS, ELASTIC_QUOTA_PROFILES),
    ("quota", "evict"): _tokens(PODS),
    ("manager", "create"): _tokens(NODE_METRICS),
    ("manager", "patch"): _tokens(NODE_METRICS),
}
"""Events may be recorded by every service on every object; they are best effort and limited in rate."""

_NAME: Final = re.compile(r"[A-Za-z0-9][-.A-Za-z0-9]{0,252}")
_SUBRESOURCES = frozenset(("", "status", "scale"))


class Rejected(Exception):
    """A decision that is refused before any API call; the text is the result's reason."""

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(f"{rule}: {detail}")
        self.rule = rule


def check(service: str, kind: str, decision: Decision) -> None:
    """Raise Rejected unless ``service`` may ask for this; ``kind`` is the one its subject names."""
    is_kind = KINDS[type(decision)]
    if kind != is_kind:
        raise Rejected("not allowed", f"a {is_kind} decision on subject decision.{service}.{kind}")
    if isinstance(decision, RecordEvents):
        return
    if isinstance(decision, Bind):
        _check_bind(service, decision)
        return
    if isinstance(decision, Create):
        target = ObjectRef(decision.resource, decision.namespace, decision.name)
    else:
        target = decision.target
    _check_resource(service, kind, target)
    if isinstance(decision, Patch) and decision.subresource not in _SUBRESOURCES:
        raise Rejected("invalid", f"{describe(target)}: subresource: {decision.subresource!r} is not status or scale")
    if isinstance(decision, Patch) and decision.lane == "metric" and (decision.claim or decision.patch == "json"):
        what = "a claim" if decision.claim else "a JSON patch"
        raise Rejected(
            "invalid", f"{describe(target)}: lane: metric is not for {what}: it may be left out or come late"
        )
    if isinstance(decision, Delete) and not target.uid:
        raise Rejected("invalid", f"{describe(target)}: target.uid: required, so that a successor survives")


def _check_bind(service: str, decision: Bind) -> None:
    if PODS.token not in ALLOWED.get((service, "bind"), ()):
        raise Rejected("not allowed", f"{service} may not bind pods")
    if not decision.members:
        raise Rejected("invalid", f"bind {decision.id}: members: empty")
    for index, member in enumerate(decision.members):
        _check_member(decision.id, index, member)


def _check_member(bind: str, index: int, member: BindMember) -> None:
    if not (member.uid and member.namespace and member.name and member.node):
        missing = next(field for field in ("uid", "namespace", "name", "node") if not getattr(member, field))
        raise Rejected("invalid", f"bind {bind}: members[{index}].{missing}: missing")
    for field, value in (("namespace", member.namespace), ("name", member.name), ("node", member.node)):
        if not safe_name(value):
            raise Rejected("invalid", f"bind {bind}: members[{index}].{field}: {value!r} is not an object name")


def _check_resource(service: str, kind: str, target: ObjectRef) -> None:
    resource = BY_TOKEN.get(target.resource)
    if resource is None:
        raise Rejected("unknown resource", f"{target.resource!r} (known: {', '.join(sorted(BY_TOKEN))})")
    if target.resource not in ALLOWED.get((service, kind), ()):
        raise Rejected("not allowed", f"{service} may not {kind} {target.resource} ({describe(target)})")
    if resource.namespaced and not target.namespace:
        raise Rejected("invalid", f"{describe(target)}: namespace: missing")
    if (target.namespace and not safe_name(target.namespace)) or (target.name and not safe_name(target.name)):
        raise Rejected("invalid", f"{describe(target)}: not an object name")
    if not target.name and kind != "create":
        raise Rejected("invalid", f"{describe(target)}: name: missing")


def safe_name(name: str) -> bool:
    """Whether a name can stand in a URL path as it is: letters, digits, ``-`` and ``.``, as Kubernetes has them."""
    return (
        len(name) <= 253 and name.isascii() and name[:1].isalnum() and name.replace("-", "").replace(".", "").isalnum()
    )


def describe(target: ObjectRef) -> str:
    """An object as messages name it: ``pods_core default/a``."""
    return f"{target.resource} {target.namespace + '/' if target.namespace else ''}{target.name or '(new)'}"
