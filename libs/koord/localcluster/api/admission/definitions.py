"""Webhook configurations as the server reads them, and the defaults of what they leave out."""

from typing import Any

import msgspec

from koord.localcluster.clusterapi import Object

GROUP = "admissionregistration.k8s.io"
MUTATING = f"mutatingwebhookconfigurations.{GROUP}"
VALIDATING = f"validatingwebhookconfigurations.{GROUP}"
POLICIES = f"validatingadmissionpolicies.{GROUP}"
BINDINGS = f"validatingadmissionpolicybindings.{GROUP}"


class Rule(msgspec.Struct, rename="camel", frozen=True):
    """Which requests a webhook is for."""

    operations: list[str] | None = None
    api_groups: list[str] | None = None
    api_versions: list[str] | None = None
    resources: list[str] | None = None
    scope: str | None = None


class ServiceReference(msgspec.Struct, frozen=True):
    """A webhook behind a Service."""

    namespace: str = ""
    name: str = ""
    path: str | None = None
    port: int = 443


class ClientConfig(msgspec.Struct, rename={"ca_bundle": "caBundle"}, frozen=True):
    """Where a webhook is, and who vouches for it (`ca_bundle`: PEM in base64)."""

    url: str | None = None
    service: ServiceReference | None = None
    ca_bundle: str | None = None


class MatchCondition(msgspec.Struct, frozen=True):
    """An expression that must hold for a request."""

    name: str = ""
    expression: str = ""


class SelectorTest(msgspec.Struct, frozen=True):
    """One expression of a label selector."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class LabelSelector(msgspec.Struct, rename="camel", frozen=True):
    """A label selector as it is written."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[SelectorTest] | None = None


class Webhook(msgspec.Struct, rename="camel", frozen=True):
    """One webhook of a configuration of either kind."""

    name: str = ""
    client_config: ClientConfig = ClientConfig()
    rules: list[Rule] | None = None
    failure_policy: str | None = None
    match_policy: str | None = None
    namespace_selector: LabelSelector | None = None
    object_selector: LabelSelector | None = None
    side_effects: str | None = None
    timeout_seconds: int | None = None
    admission_review_versions: list[str] | None = None
    reinvocation_policy: str | None = None
    match_conditions: list[MatchCondition] | None = None


class _Configuration(msgspec.Struct):
    webhooks: list[Webhook] | None = None


def read_webhooks(configuration: Any) -> list[Webhook]:
    """The webhooks of a configuration; `msgspec.ValidationError` when a field has a wrong type."""
    return msgspec.convert(configuration, _Configuration).webhooks or []


def default_configuration(configuration: Object, *, mutating: bool) -> None:
    """Fill in what a configuration leaves out, in place."""
    for webhook in configuration.get("webhooks") or ():
        webhook.setdefault("failurePolicy", "Fail")
        webhook.setdefault("matchPolicy", "Equivalent")
        webhook.setdefault("namespaceSelector", {})
        webhook.setdefault("objectSelector", {})
        webhook.setdefault("timeoutSeconds", 10)
        if mutating:
            webhook.setdefault("reinvocationPolicy", "Never")
        for rule in webhook.get("rules") or ():
            rule.setdefault("scope", "*")
        service = (webhook.get("clientConfig") or {}).get("service")
        if service:
            service.setdefault("port", 443)
