"""ValidatingAdmissionPolicies and their bindings as the server reads them: fields, defaults, and what is refused."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from koord.cel.limits import MOST_RULES
from koord.localcluster.api.admission.conditions import new_checker
from koord.localcluster.api.admission.definitions import LabelSelector, MatchCondition, Rule
from koord.localcluster.api.admission.rules import (
    FAILURE_POLICIES,
    MATCH_POLICIES,
    condition_causes,
    label_key_causes,
    one_of,
    rule_causes,
    selector_causes,
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
from koord.localcluster.api.names import SUBDOMAIN_RULE, is_subdomain
from koord.localcluster.clusterapi import Object

if TYPE_CHECKING:
    from koord.cel.language import Checker

_REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_ACTIONS = ("Audit", "Deny", "Warn")
_NAME = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*")
_MOST_ANNOTATIONS = 20
_BOTH = (
    "must not contain both Deny and Warn (repeating the same validation failure information in the API response and "
    "headers serves no purpose)"
)


class NamedRule(Rule, rename="camel", frozen=True):
    """Which writes a policy is about; of certain objects alone if names are given."""

    resource_names: list[str] | None = None


class MatchResources(msgspec.Struct, rename="camel", frozen=True):
    """Which writes a policy or a binding is about."""

    resource_rules: list[NamedRule] | None = None
    exclude_resource_rules: list[NamedRule] | None = None
    match_policy: str | None = None
    namespace_selector: LabelSelector | None = None
    object_selector: LabelSelector | None = None


class Validation(msgspec.Struct, rename="camel", frozen=True):
    """An expression that must hold, and what is said when it does not."""

    expression: str = ""
    message: str = ""
    message_expression: str = ""
    reason: str | None = None


class Variable(msgspec.Struct, frozen=True):
    """A named expression that others may use."""

    name: str = ""
    expression: str = ""


class AuditAnnotation(msgspec.Struct, rename="camel", frozen=True):
    """What would be written into an audit log, which there is none of here."""

    key: str = ""
    value_expression: str = ""


class PolicySpec(msgspec.Struct, rename="camel", frozen=True):
    """A policy."""

    failure_policy: str | None = None
    param_kind: Any = None
    match_constraints: MatchResources | None = None
    match_conditions: list[MatchCondition] | None = None
    variables: list[Variable] | None = None
    validations: list[Validation] | None = None
    audit_annotations: list[AuditAnnotation] | None = None


class BindingSpec(msgspec.Struct, rename="camel", frozen=True):
    """Where a policy holds, and what follows from breaking it."""

    policy_name: str = ""
    param_ref: Any = None
    match_resources: MatchResources | None = None
    validation_actions: list[str] | None = None


S = TypeVar("S", PolicySpec, BindingSpec)


def read_spec(obj: Object, kind: type[S]) -> S:
    """The spec of a policy or a binding; `msgspec.ValidationError` when a field has a wrong type."""
    return msgspec.convert(obj.get("spec") or {}, kind)


def default_policy(policy: Object) -> None:
    """Fill in what a policy leaves out, in place."""
    spec = policy.get("spec")
    if isinstance(spec, dict):
        spec.setdefault("failurePolicy", "Fail")
        _default_match(spec.get("matchConstraints"))


def default_binding(binding: Object) -> None:
    """Fill in what a binding leaves out, in place."""
    spec = binding.get("spec")
    if isinstance(spec, dict):
        _default_match(spec.get("matchResources"))


def _default_match(match: Any) -> None:
    if not isinstance(match, dict):
        return
    match.setdefault("matchPolicy", "Equivalent")
    match.setdefault("namespaceSelector", {})
    match.setdefault("objectSelector", {})
    for field in ("resourceRules", "excludeResourceRules"):
        for rule in match.get(field) or ():
            rule.setdefault("scope", "*")


def validate_policy(policy: Object) -> list[Cause]:
    """The broken rules of a ValidatingAdmissionPolicy."""
    try:
        spec = read_spec(policy, PolicySpec)
    except msgspec.ValidationError as error:
        kind = "ValidatingAdmissionPolicy"
        raise bad_request(f'{kind} in version "v1" cannot be handled as a {kind}: {error}') from error
    return list(_policy(spec, str(policy["metadata"].get("name") or "")))


def validate_binding(binding: Object) -> list[Cause]:
    """The broken rules of a ValidatingAdmissionPolicyBinding."""
    try:
        spec = read_spec(binding, BindingSpec)
    except msgspec.ValidationError as error:
        kind = "ValidatingAdmissionPolicyBinding"
        raise bad_request(f'{kind} in version "v1" cannot be handled as a {kind}: {error}') from error
    return list(_binding(spec))


def _match(match: MatchResources | None, path: str) -> Iterator[Cause]:
    if match is None:
        return
    yield from one_of(match.match_policy, f"{path}.matchPolicy", MATCH_POLICIES)
    yield from selector_causes(match.namespace_selector, f"{path}.namespaceSelector")
    yield from selector_causes(match.object_selector, f"{path}.objectSelector")
    for field, rules in (
        ("resourceRules", match.resource_rules),
        ("excludeResourceRules", match.exclude_resource_rules),
    ):
        for i, rule in enumerate(rules or ()):
            seen: set[str] = set()
            for j, name in enumerate(rule.resource_names or ()):
                if name in seen:
                    yield duplicate(f"{path}.{field}[{i}].resourceNames[{j}]", name)
                seen.add(name)
            yield from rule_causes(rule, f"{path}.{field}[{i}]")


def _expressions(spec: PolicySpec) -> int:
    """How many expressions are to be compiled; a variable counts for what it costs, an environment of its own."""
    return 5 * len(spec.variables or ()) + len(spec.validations or ()) + len(spec.audit_annotations or ())


def _policy(spec: PolicySpec, name: str) -> Iterator[Cause]:
    yield from one_of(spec.failure_policy, "spec.failurePolicy", FAILURE_POLICIES)
    if spec.param_kind is not None:
        # A policy that is stored and then not held against anything would be worse.
        yield forbidden_value("spec.paramKind", "policies with parameters are not evaluated by this server")
    if spec.match_constraints is None:
        yield required("spec.matchConstraints")
    else:
        yield from _match(spec.match_constraints, "spec.matchConstraints")
        if not spec.match_constraints.resource_rules:
            yield required("spec.matchConstraints.resourceRules")
    yield from condition_causes(spec.match_conditions or (), "spec.matchConditions")
    if (count := _expressions(spec)) > MOST_RULES:
        # Each is compiled while nobody else is served.
        yield forbidden_value("spec", f"must not have more than {MOST_RULES} expressions on this server, has {count}")
        return
    known: list[tuple[str, str]] = []
    for i, variable in enumerate(spec.variables or ()):
        yield from _variable(variable, known, f"spec.variables[{i}]")
    visible = checker_of(known if spec.variables else None)
    if not spec.validations and not spec.audit_annotations:
        why = "validations or auditAnnotations must contain at least one item"
        yield required("spec.validations", why)
        yield required("spec.auditAnnotations", why)
    for i, validation in enumerate(spec.validations or ()):
        yield from _validation(validation, visible, f"spec.validations[{i}]")
    yield from _annotations(spec.audit_annotations or (), visible, name)


def checker_of(variables: Sequence[tuple[str, str]] | None) -> "Callable[[], Checker]":
    """One checker for all expressions of a policy, made when there is one: it takes a millisecond or two."""
    made: list[Checker] = []

    def checker() -> "Checker":
        if not made:
            made.append(new_checker(variables))
        return made[0]

    return checker


def _compiled(text: str, wanted: Sequence[str], checker: "Callable[[], Checker]", path: str) -> Iterator[Cause]:
    from koord.cel.failures import CompileError

    try:
        result = checker().check(text).result
    except CompileError as error:
        yield invalid_value(path, text, f"compilation failed: {error}")
        return
    if wanted and result not in wanted:
        shown = wanted[0] if len(wanted) == 1 else f"one of [{' '.join(wanted).replace('null', 'null_type')}]"
        yield invalid_value(path, text, f"must evaluate to {shown} but got {result}")


def _reserved(name: str) -> bool:
    from koord.cel.declared import escape

    return escape(name) == f"__{name}__"


def _variable(variable: Variable, known: list[tuple[str, str]], path: str) -> Iterator[Cause]:
    from koord.cel.failures import CompileError

    if not variable.name:
        yield required(f"{path}.name", "name is not specified")
    elif not _NAME.fullmatch(variable.name) or _reserved(variable.name):
        yield invalid_value(f"{path}.name", variable.name, "must be a valid CEL identifier")
    if not variable.expression.strip():
        yield required(f"{path}.expression", "expression is not specified")
        return
    try:
        result = new_checker(known).check(variable.expression).result
    except CompileError as error:
        yield invalid_value(f"{path}.expression", variable.expression, f"compilation failed: {error}")
        return
    if _NAME.fullmatch(variable.name):
        known.append((variable.name, result))


def _text(value: str, path: str) -> Iterator[Cause]:
    if value and not value.strip():
        yield invalid_value(path, value, "must be non-empty if specified")
    elif "\n" in value.strip() or "\r" in value.strip():
        words = msgspec.json.encode(value).decode()
        yield Cause("FieldValueInvalid", path, f"Invalid value: {words}: must not contain line breaks")


def _validation(validation: Validation, checker: "Callable[[], Checker]", path: str) -> Iterator[Cause]:
    if not validation.expression.strip():
        yield required(f"{path}.expression", "expression is not specified")
    else:
        yield from _compiled(validation.expression, ("bool",), checker, f"{path}.expression")
    expression = validation.message_expression
    if expression and not expression.strip():
        yield invalid_value(f"{path}.messageExpression", expression, "must be non-empty if specified")
    elif expression:
        yield from _compiled(expression, ("string",), checker, f"{path}.messageExpression")
    yield from _text(validation.message, f"{path}.message")
    yield from one_of(validation.reason, f"{path}.reason", _REASONS)


def _annotations(
    annotations: Sequence[AuditAnnotation], checker: "Callable[[], Checker]", name: str
) -> Iterator[Cause]:
    path = "spec.auditAnnotations"
    if len(annotations) > _MOST_ANNOTATIONS:
        yield forbidden_value(path, f"must not have more than {_MOST_ANNOTATIONS} auditAnnotations")
    seen: set[str] = set()
    for i, annotation in enumerate(annotations):
        yield from label_key_causes(f"{name}/{annotation.key}", f"{path}[{i}].key")
        if not annotation.value_expression.strip():
            yield required(f"{path}[{i}].valueExpression", "valueExpression is not specified")
        else:
            where = f"{path}[{i}].valueExpression"
            yield from _compiled(annotation.value_expression, ("string", "null"), checker, where)
        if annotation.key in seen:
            yield duplicate(f"{path}[{i}].key", annotation.key)
        seen.add(annotation.key)


def _binding(spec: BindingSpec) -> Iterator[Cause]:
    if not spec.policy_name:
        yield required("spec.policyName")
    elif len(spec.policy_name) > 253 or not is_subdomain(spec.policy_name):
        yield invalid_value("spec.policyName", spec.policy_name, SUBDOMAIN_RULE)
    if spec.param_ref is not None:
        yield forbidden_value("spec.paramRef", "policies with parameters are not evaluated by this server")
    yield from _match(spec.match_resources, "spec.matchResources")
    actions = spec.validation_actions or ()
    if not actions:
        yield required("spec.validationActions")
    for i, action in enumerate(actions):
        if action not in _ACTIONS:
            yield not_supported(f"spec.validationActions[{i}]", action, _ACTIONS)
        if action in actions[:i]:
            yield duplicate(f"spec.validationActions[{i}]", action)
    if "Deny" in actions and "Warn" in actions:
        shown = msgspec.json.encode(list(actions)).decode()
        yield Cause("FieldValueInvalid", "spec.validationActions", f"Invalid value: {shown}: {_BOTH}")
