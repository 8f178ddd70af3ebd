"""The rules of webhook configurations, in the words of the real server."""

from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import SplitResult, urlsplit

import msgspec

from koord.localcluster.api.admission.conditions import Condition, ConditionError
from koord.localcluster.api.admission.definitions import (
    ClientConfig,
    LabelSelector,
    MatchCondition,
    Rule,
    ServiceReference,
    Webhook,
    read_webhooks,
)
from koord.localcluster.api.errors import (
    Cause,
    bad_request,
    duplicate,
    forbidden_value,
    invalid_value,
    not_supported,
    required,
)
from koord.localcluster.api.names import (
    DNS1035_RULE,
    NAME_RULE,
    SUBDOMAIN_RULE,
    VALUE_RULE,
    is_dns1035,
    is_label_value,
    is_name_part,
    is_subdomain,
)
from koord.localcluster.clusterapi import Object

REVIEW_VERSIONS = ("v1", "v1beta1")
FAILURE_POLICIES = ("Fail", "Ignore")
MATCH_POLICIES = ("Equivalent", "Exact")
_SIDE_EFFECTS = ("None", "NoneOnDryRun")
_REINVOCATION = ("IfNeeded", "Never")
_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_SCOPES = ("*", "Cluster", "Namespaced")
_MOST_CONDITIONS = 64
_URL_FORM = "; desired format: https://host[/path]"


def validate_mutating(configuration: Object) -> list[Cause]:
    """The broken rules of a MutatingWebhookConfiguration."""
    return list(_validate(configuration, mutating=True))


def validate_validating(configuration: Object) -> list[Cause]:
    """The broken rules of a ValidatingWebhookConfiguration."""
    return list(_validate(configuration, mutating=False))


def _validate(configuration: Object, *, mutating: bool) -> Iterator[Cause]:
    try:
        webhooks = read_webhooks(configuration)
    except msgspec.ValidationError as error:
        kind = "MutatingWebhookConfiguration" if mutating else "ValidatingWebhookConfiguration"
        raise bad_request(f'{kind} in version "v1" cannot be handled as a {kind}: {error}') from error
    seen: set[str] = set()
    for i, webhook in enumerate(webhooks):
        path = f"webhooks[{i}]"
        yield from _webhook(webhook, path, mutating=mutating)
        yield from _review_versions(webhook.admission_review_versions or (), f"{path}.admissionReviewVersions")
        if webhook.name in seen:
            yield duplicate(f"{path}.name", webhook.name)
        elif webhook.name:
            seen.add(webhook.name)


def _webhook(webhook: Webhook, path: str, *, mutating: bool) -> Iterator[Cause]:
    yield from _qualified_name(webhook.name, f"{path}.name")
    for i, rule in enumerate(webhook.rules or ()):
        yield from rule_causes(rule, f"{path}.rules[{i}]")
    yield from one_of(webhook.failure_policy, f"{path}.failurePolicy", FAILURE_POLICIES)
    yield from one_of(webhook.match_policy, f"{path}.matchPolicy", MATCH_POLICIES)
    if webhook.side_effects is None:
        yield required(f"{path}.sideEffects", f"must specify one of {', '.join(_SIDE_EFFECTS)}")
    yield from one_of(webhook.side_effects, f"{path}.sideEffects", _SIDE_EFFECTS)
    if webhook.timeout_seconds is not None and not 1 <= webhook.timeout_seconds <= 30:
        why = "the timeout value must be between 1 and 30 seconds"
        yield invalid_value(f"{path}.timeoutSeconds", webhook.timeout_seconds, why)
    yield from selector_causes(webhook.namespace_selector, f"{path}.namespaceSelector")
    yield from selector_causes(webhook.object_selector, f"{path}.objectSelector")
    if mutating:
        yield from one_of(webhook.reinvocation_policy, f"{path}.reinvocationPolicy", _REINVOCATION)
    yield from _client_config(webhook.client_config, f"{path}.clientConfig")
    yield from condition_causes(webhook.match_conditions or (), f"{path}.matchConditions")


def one_of(value: str | None, path: str, supported: Sequence[str]) -> Iterator[Cause]:
    """A cause if a value is given and is none of those there are."""
    if value is not None and value not in supported:
        yield not_supported(path, value, supported)


def _qualified_name(name: str, path: str) -> Iterator[Cause]:
    if not name:
        yield required(path)
    elif len(name) > 253:
        yield invalid_value(path, name, "must be no more than 253 characters")
    elif not is_subdomain(name):
        yield invalid_value(path, name, SUBDOMAIN_RULE)
    elif name.count(".") < 2:
        yield invalid_value(path, name, "should be a domain with at least three segments separated by dots")


def _review_versions(versions: Sequence[str], path: str) -> Iterator[Cause]:
    known = ", ".join(REVIEW_VERSIONS)
    if not versions:
        yield required(path, f"must specify one of {known}")
        return
    seen: set[str] = set()
    for i, version in enumerate(versions):
        if version in seen:
            yield invalid_value(f"{path}[{i}]", version, "duplicate version")
            continue
        seen.add(version)
        if len(version) > 63:
            yield invalid_value(f"{path}[{i}]", version, "must be no more than 63 characters")
        if not is_dns1035(version):
            yield invalid_value(f"{path}[{i}]", version, DNS1035_RULE)
    if not seen.intersection(REVIEW_VERSIONS):
        yield _invalid_list(path, versions, f"must include at least one of {known}")


def _invalid_list(path: str, values: Sequence[str], why: str) -> Cause:
    text = msgspec.json.encode(values).decode()
    return Cause("FieldValueInvalid", path, f"Invalid value: {text}: {why}")


def rule_causes(rule: Rule, path: str) -> Iterator[Cause]:
    """The broken rules of what kinds of writes something is about."""
    yield from _with_wildcard(rule.operations, f"{path}.operations", "operations")
    for i, operation in enumerate(rule.operations or ()):
        yield from one_of(operation, f"{path}.operations[{i}]", _OPERATIONS)
    yield from _with_wildcard(rule.api_groups, f"{path}.apiGroups", "API groups")
    yield from _with_wildcard(rule.api_versions, f"{path}.apiVersions", "API versions")
    yield from _no_empty(rule.api_versions, f"{path}.apiVersions")
    yield from _resources(rule.resources or (), f"{path}.resources")
    yield from one_of(rule.scope, f"{path}.scope", _SCOPES)


def _with_wildcard(values: Sequence[str] | None, path: str, what: str) -> Iterator[Cause]:
    if not values:
        yield required(path)
    elif len(values) > 1 and "*" in values:
        yield _invalid_list(path, values, f"if '*' is present, must not specify other {what}")


def _no_empty(values: Iterable[str] | None, path: str) -> Iterator[Cause]:
    for i, value in enumerate(values or ()):
        if not value:
            yield required(f"{path}[{i}]")


def _resources(resources: Sequence[str], path: str) -> Iterator[Cause]:
    if not resources:
        yield required(path)
    whole: set[str] = set()
    everywhere: set[str] = set()
    plain = False
    for i, text in enumerate(resources):
        if not text:
            yield required(f"{path}[{i}]")
            continue
        resource, slash, subresource = text.partition("/")
        if not slash:
            plain = text != "*"
            continue
        if resource in whole:
            yield invalid_value(f"{path}[{i}]", text, f"if '{resource}/*' is present, must not specify {text}")
        if subresource in everywhere:
            yield invalid_value(f"{path}[{i}]", text, f"if '*/{subresource}' is present, must not specify {text}")
        if subresource == "*":
            whole.add(resource)
        if resource == "*":
            everywhere.add(subresource)
    if len(resources) > 1 and "*/*" in resources:
        yield _invalid_list(path, resources, "if '*/*' is present, must not specify other resources")
    if "*" in resources and plain:
        why = "if '*' is present, must not specify other resources without subresources"
        yield _invalid_list(path, resources, why)


def selector_causes(selector: LabelSelector | None, path: str) -> Iterator[Cause]:
    """The broken rules of a label selector."""
    if selector is None:
        return
    for key, value in (selector.match_labels or {}).items():
        yield from label_key_causes(key, f"{path}.matchLabels")
        if not is_label_value(value) or len(value) > 63:
            yield invalid_value(f"{path}.matchLabels", value, VALUE_RULE)
    for i, test in enumerate(selector.match_expressions or ()):
        where = f"{path}.matchExpressions[{i}]"
        if test.operator in ("In", "NotIn"):
            if not test.values:
                yield required(f"{where}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        elif test.operator in ("Exists", "DoesNotExist"):
            if test.values:
                why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                yield forbidden_value(f"{where}.values", why)
        else:
            yield invalid_value(f"{where}.operator", test.operator, "not a valid selector operator")
        yield from label_key_causes(test.key, f"{where}.key")
        for j, value in enumerate(test.values or ()):
            if not is_label_value(value) or len(value) > 63:
                yield invalid_value(f"{where}.values[{j}]", value, VALUE_RULE)


def label_key_causes(key: str, path: str) -> Iterator[Cause]:
    """The broken rules of a name with an optional prefix."""
    prefix, slash, name = key.rpartition("/")
    if slash and not prefix:
        yield invalid_value(path, key, "prefix part must be non-empty")
    elif slash and (len(prefix) > 253 or not is_subdomain(prefix)):
        yield invalid_value(path, key, f"prefix part {SUBDOMAIN_RULE}")
    if not name:
        yield invalid_value(path, key, "name part must be non-empty")
    elif len(name) > 63:
        yield invalid_value(path, key, "name part must be no more than 63 characters")
    if not is_name_part(name):
        yield invalid_value(path, key, NAME_RULE)


def condition_causes(conditions: Sequence[MatchCondition], path: str) -> Iterator[Cause]:
    """The broken rules of match conditions."""
    if len(conditions) > _MOST_CONDITIONS:
        why = f"Too many: {len(conditions)}: must have at most {_MOST_CONDITIONS} items"
        yield Cause("FieldValueTooMany", path, why)
    seen: set[str] = set()
    for i, condition in enumerate(conditions[:_MOST_CONDITIONS]):
        where, text = f"{path}[{i}]", condition.expression.strip()
        if not text:
            yield required(f"{where}.expression")
        else:
            try:
                Condition(text)
            except ConditionError as error:
                yield invalid_value(f"{where}.expression", text, str(error))
        if not condition.name:
            yield required(f"{where}.name")
        else:
            yield from label_key_causes(condition.name, f"{where}.name")
        if condition.name in seen:
            yield duplicate(f"{where}.name", condition.name)
        elif condition.name:
            seen.add(condition.name)


def _client_config(config: ClientConfig, path: str) -> Iterator[Cause]:
    if (config.url is None) == (config.service is None):
        yield required(path, "exactly one of url or service is required")
    elif config.url is not None:
        yield from _url(config.url, f"{path}.url")
    elif config.service is not None:
        yield from _service(config.service, f"{path}.service")


def _url(text: str, path: str) -> Iterator[Cause]:
    try:
        url = _parsed(text)
    except ValueError as error:
        yield required(path, f'url must be a valid URL: parse "{text}": {error}{_URL_FORM}')
        return
    if url.scheme != "https":
        yield invalid_value(path, url.scheme, f"'https' is the only allowed URL scheme{_URL_FORM}")
    user, at, host = url.netloc.rpartition("@")
    if not host:
        yield invalid_value(path, "", f"host must be specified{_URL_FORM}")
    if at:
        yield invalid_value(path, user, "user information is not permitted in the URL")
    if url.fragment:
        yield invalid_value(path, url.fragment, "fragments are not permitted in the URL")
    if url.query:
        yield invalid_value(path, url.query, "query parameters are not permitted in the URL")


def _parsed(text: str) -> SplitResult:
    if any(character < " " or character == "\x7f" for character in text):
        raise ValueError("net/url: invalid control character in URL")
    if text.startswith(":"):
        raise ValueError("missing protocol scheme")
    url = urlsplit(text)
    if " " in url.netloc:
        raise ValueError('invalid character " " in host name')
    return url


def _service(service: ServiceReference, path: str) -> Iterator[Cause]:
    if not service.name:
        yield required(f"{path}.name")
    if not service.namespace:
        yield required(f"{path}.namespace")
    if not 1 <= service.port <= 65535:
        why = "port is not valid: must be between 1 and 65535, inclusive"
        yield invalid_value(f"{path}.port", service.port, why)
    text = service.path
    if text is None or text in ("", "/"):
        return
    if text == "//":
        yield invalid_value(f"{path}.path", text, "segment[0] may not be empty")
        return
    if not text.startswith("/"):
        yield invalid_value(f"{path}.path", text, "must start with a '/'")
    for i, segment in enumerate(text[1:].removesuffix("/").split("/")):
        if not segment:
            yield invalid_value(f"{path}.path", text, f"segment[{i}] may not be empty")
        elif len(segment) > 253 or not is_subdomain(segment):
            yield invalid_value(f"{path}.path", text, f"segment[{i}]: {SUBDOMAIN_RULE}")
