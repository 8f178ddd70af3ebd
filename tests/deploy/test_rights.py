"""The gateway's rights follow from what it watches and executes: no right is missing, none is too many."""

from collections import defaultdict

from koord.gateway.allow import ALLOWED
from koord.gateway.ledgerlease import LEASE
from koord.gateway.probing import NAME as PROBE
from koord.gateway.settings import GatewaySettings
from koord.gateway.webhookserver import NAME as WEBHOOK
from koord.kube import crds
from koord.kube.resources import (
    BY_TOKEN,
    EVENTS,
    JOBS,
    LEASES,
    NAMESPACES,
    NODE_METRICS,
    PODS,
    PYTORCHJOBS,
    QUEUE_UNITS,
    QUEUES,
    RAYCLUSTERS,
    RAYJOBS,
    RESOURCE_CLAIMS,
    SCHEDULE_EXPLANATIONS,
    TFJOBS,
    WATCHED,
    Resource,
)
from tests.deploy.manifests import Manifest, base

JOB_KINDS = (JOBS, TFJOBS, PYTORCHJOBS, RAYJOBS, RAYCLUSTERS)
STATUS_PATCHED = {
    ("scheduler", PODS.token),
    ("scheduler", SCHEDULE_EXPLANATIONS.token),
    ("scheduler", RESOURCE_CLAIMS.token),
    ("manager", NODE_METRICS.token),
    *(("queue", one.token) for one in (QUEUES, QUEUE_UNITS, *JOB_KINDS)),
}
"""Whose status who patches: the queue service that of jobs, queues and units, the scheduler that of pods, of
ScheduleExplanations and of ResourceClaims, the manager that of NodeMetrics."""

WEBHOOKS = ("admissionregistration.k8s.io", "validatingwebhookconfigurations")

Rights = dict[tuple[str, str], set[str]]


def granted(role: Manifest) -> Rights:
    rights: Rights = defaultdict(set)
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                rights[group, resource].update(rule["verbs"])
    return dict(rights)


def needed() -> Rights:
    rights: Rights = defaultdict(set)

    def need(resource: Resource, verb: str, subresource: str = "") -> None:
        plural = f"{resource.plural}/{subresource}" if subresource else resource.plural
        rights[resource.group, plural].add(verb)

    for resource in WATCHED:
        need(resource, "list")
        need(resource, "watch")
    for (service, kind), tokens in ALLOWED.items():
        for token in tokens:
            resource = BY_TOKEN[token]
            if kind == "bind":
                need(resource, "create", "binding")
            elif kind == "evict":
                need(resource, "create", "eviction")
            else:
                need(resource, kind)
            if kind == "patch" and (service, token) in STATUS_PATCHED:
                need(resource, "patch", "status")
            if kind == "patch" and resource is RESOURCE_CLAIMS:
                need(resource, "patch", "binding")
            # The object is read when an outcome is in doubt.
            need(resource, "get")
    # A bind or an admission of which nobody knows the outcome is settled by a changed annotation.
    for resource in (PODS, QUEUE_UNITS):
        need(resource, "patch")
    # Its own namespace, if it is missing.
    need(NAMESPACES, "create")
    # Every service may record Events.
    need(EVENTS, "create")
    need(EVENTS, "patch")
    # QueueUnits block the deletion of their jobs.
    for resource in JOB_KINDS:
        need(resource, "update", "finalizers")
    # A webhook that a gateway with other settings left.
    rights[WEBHOOKS].add("delete")
    return dict(rights)


def test_rights_are_those_that_the_code_needs() -> None:
    assert granted(base().one("ClusterRole", "koord-gateway")) == needed()


def test_of_webhooks_only_its_own_can_be_deleted() -> None:
    rules = base().one("ClusterRole", "koord-gateway")["rules"]
    [rule] = [rule for rule in rules if rule["apiGroups"] == [WEBHOOKS[0]]]
    assert rule["resourceNames"] == [WEBHOOK]


def test_no_right_is_for_everything() -> None:
    for kind in ("ClusterRole", "Role"):
        for rule in base().one(kind, "koord-gateway")["rules"]:
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            assert "nonResourceURLs" not in rule


def test_in_its_own_namespace_only_what_bears_its_name() -> None:
    role = base().one("Role", "koord-gateway")
    settings = GatewaySettings()
    assert role["metadata"]["namespace"] == settings.lease_namespace
    assert granted(role) == {
        (LEASES.group, LEASES.plural): {"create", "get", "update"},
        (PODS.group, PODS.plural): {"create", "delete"},
    }
    named = {"leases": {settings.lease_name, LEASE}, "pods": {PROBE}}
    for rule in role["rules"]:
        if rule["verbs"] != ["create"]:
            [plural] = rule["resources"]
            assert set(rule["resourceNames"]) == named[plural]


def test_who_has_a_status_of_its_own() -> None:
    """Kinds without the sub-resource have their status patched with the object."""
    has = {
        (one["spec"]["group"], one["spec"]["names"]["plural"])
        for one in crds.load()
        for version in one["spec"]["versions"]
        if "status" in version.get("subresources", {})
    }
    patched = {BY_TOKEN[token] for _, token in STATUS_PATCHED} - {PODS, JOBS, RESOURCE_CLAIMS}
    assert {(one.group, one.plural) for one in patched} <= has
