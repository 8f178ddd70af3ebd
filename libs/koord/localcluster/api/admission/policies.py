"""ValidatingAdmissionPolicies held against writes.

Unlike webhooks they need nobody else: they are evaluated where a write is made, after all changes and before validating
webhooks are asked.
"""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from koord.kube import selectors
from koord.localcluster.api.admission.attributes import DELETE, Attributes
from koord.localcluster.api.admission.conditions import (
    Condition,
    ConditionError,
    namespace_object,
    new_budget,
    new_checker,
    shared_values,
)
from koord.localcluster.api.admission.hooks import any_matches, compile_selector, rule_matches
from koord.localcluster.api.admission.policydefinitions import (
    BindingSpec,
    MatchResources,
    NamedRule,
    PolicySpec,
    Validation,
    read_spec,
)
from koord.localcluster.api.admission.review import describe
from koord.localcluster.api.builtin import NAMESPACES
from koord.localcluster.api.errors import forbidden
from koord.localcluster.api.resources import Registry, Resource, Route
from koord.localcluster.api.store import Collection, decode
from koord.localcluster.api.watchcache import Entry
from koord.localcluster.clusterapi import ApiError, Object

if TYPE_CHECKING:
    from koord.cel.budget import Budget
    from koord.cel.expression import Expression
    from koord.cel.metering import Values

_CODES = {"Forbidden": 403, "RequestEntityTooLarge": 413}
_LONGEST_MESSAGE = 5 * 1024
_NO_LABELS: Mapping[str, str] = {}
_log = logging.getLogger(__name__)


class _Matcher:
    """Which writes a policy or a binding is about."""

    def __init__(self, match: MatchResources | None) -> None:
        match = match or MatchResources()
        self.rules = match.resource_rules
        self._excluded = match.exclude_resource_rules or []
        self._exact = match.match_policy == "Exact"
        self._namespaces = compile_selector(match.namespace_selector)
        self._objects = compile_selector(match.object_selector)

    def route(self, write: Attributes, registry: Registry, labels: Mapping[str, str]) -> Route | None:
        """The version in which a write is looked at; None when it is not meant."""
        spaced = bool(write.namespace) or write.resource is NAMESPACES
        if self._namespaces is not None and spaced and not self._namespaces.matches(labels):
            return None
        if self._objects is not None and not any(
            obj is not None and self._objects.matches(_labels(obj)) for obj in (write.obj, write.old)
        ):
            return None
        if self._matching(self._excluded, write, registry) is not None:
            return None
        return write.route if not self.rules else self._matching(self.rules, write, registry)

    def _matching(self, rules: list[NamedRule], write: Attributes, registry: Registry) -> Route | None:
        routes = [write.route]
        if not self._exact:
            others = (route for route in registry.routes.values() if route.resource is write.resource)
            routes += [route for route in others if route is not write.route]
        for route in routes:
            where = write.resource_in(route)
            for rule in rules:
                named = not rule.resource_names or write.name in rule.resource_names
                in_space = write.resource.namespaced
                if named and rule_matches(rule, write.operation, where, write.subresource, in_space=in_space):
                    return route
        return None


class _Binding(NamedTuple):
    name: str
    policy: str
    matcher: _Matcher
    actions: tuple[str, ...]


class _Decision(NamedTuple):
    message: str
    reason: str


class _Policy:
    """A compiled policy."""

    def __init__(self, name: str, spec: PolicySpec) -> None:
        from koord.cel.expression import Expression

        self.name = name
        self.matcher = _Matcher(spec.match_constraints)
        self._fails_open = spec.failure_policy == "Ignore"
        self._conditions = [Condition(condition.expression) for condition in spec.match_conditions or ()]
        self._variables: dict[str, Expression] = {}
        known: list[tuple[str, str]] = []
        for variable in spec.variables or ():
            checked = new_checker(known).check(variable.expression)
            self._variables[variable.name] = Expression(variable.expression, checked)
            known.append((variable.name, checked.result))
        checker = new_checker(known if spec.variables else None)

        def compiled(text: str) -> Expression:
            return Expression(text, checker.check(text))

        self._validations: list[tuple[Validation, Expression, Expression | None]] = [
            (
                validation,
                compiled(validation.expression),
                compiled(validation.message_expression) if validation.message_expression else None,
            )
            for validation in spec.validations or ()
        ]

    def decide(self, values: "Values", budget: "Budget") -> list[_Decision]:
        """What is against a write."""
        try:
            # One that does not hold settles it; one that cannot be evaluated is a failure.
            failures: list[str] = []
            for condition in self._conditions:
                try:
                    if not condition.evaluate(values, budget):
                        return []
                except ConditionError as error:
                    failures.append(str(error))
            if failures:
                text = failures[0] if len(failures) == 1 else "[" + ", ".join(failures) + "]"
                raise ConditionError(text)
        except ConditionError as error:
            return [] if self._fails_open else [_Decision(str(error), "Invalid")]
        known = _Variables(self._variables, values, budget)
        found = []
        for validation, expression, message in self._validations:
            try:
                holds = known.evaluate(expression)
            except ConditionError as error:
                if not self._fails_open:
                    found.append(_Decision(str(error), "Invalid"))
                continue
            if holds is not True:
                found.append(_Decision(_said(validation, message, known), validation.reason or "Invalid"))
        return found


class _Variables:
    """The variables of a policy for one write, each evaluated when it is first asked for."""

    def __init__(self, expressions: Mapping[str, "Expression"], values: "Values", budget: "Budget") -> None:
        self._expressions = expressions
        self._values = values
        self._budget = budget
        self._known: dict[str, Any] = {}
        self._failed: dict[str, str] = {}

    def evaluate(self, expression: "Expression") -> Any:
        """The value of an expression; `ConditionError` when it has none."""
        from koord.cel.failures import EvaluationError

        needed = {name for name in expression.variables if name in self._expressions}
        for name in needed:
            self._provide(name)
        values = self._values
        if needed:
            known = {name: self._known[name] for name in needed if name in self._known}
            values = shared_values({**values.values, "variables": known})
        try:
            return expression.evaluate(values, self._budget)
        except EvaluationError as error:
            why = str(error)
            for name in needed & self._failed.keys():
                if why == f"no such key: {name}":
                    why = f'composited variable "{name}" fails to evaluate: {self._failed[name]}'
            raise ConditionError(f"expression '{expression.text}' resulted in error: {why}") from None

    def _provide(self, name: str) -> None:
        if name in self._known or name in self._failed:
            return
        self._failed[name] = "it refers to itself"
        try:
            self._known[name] = _data(self.evaluate(self._expressions[name]))
            del self._failed[name]
        except ConditionError as error:
            self._failed[name] = str(error).rpartition(" resulted in error: ")[2]


def _data(value: Any) -> Any:
    """A value in the form in which it can be given to another expression."""
    from koord.cel.data import as_data

    return as_data(value)


def _said(validation: Validation, message: "Expression | None", known: _Variables) -> str:
    if message is not None:
        try:
            text = known.evaluate(message)
        except ConditionError:
            text = ""
        text = text.strip() if isinstance(text, str) else ""
        if text and len(text.encode()) <= _LONGEST_MESSAGE and "\n" not in text:
            return str(text)
    return validation.message.strip() or f"failed expression: {validation.expression.strip()}"


class PolicySet:
    """The policies of a cluster and what binds them."""

    def __init__(self, policies: Collection, bindings: Collection, spaces: Collection, registry: Registry) -> None:
        self._policies = policies
        self._bindings = bindings
        self._spaces = spaces
        self._registry = registry
        self._seen = (-1, -1, -1)
        self._bound: list[tuple[_Policy, list[_Binding]]] = []
        self._compiled: dict[tuple[str, int], _Policy | None] = {}
        self._kinds: dict[tuple[str, str, str], bool] = {}

    @property
    def empty(self) -> bool:
        """Whether no policy can hold anywhere."""
        return not self._bindings.count

    def may_hold(self, operation: str, resource: Resource, subresource: str) -> bool:
        """Whether any policy is about this kind of write in any version."""
        if not self._bindings.count:
            return False
        self._refresh()
        key = (operation, resource.key, subresource)
        known = self._kinds.get(key)
        if known is None:
            rules = (rule for policy, _ in self._bound for rule in policy.matcher.rules or ())
            known = self._kinds[key] = any_matches(rules, operation, resource, subresource, self._registry)
        return known

    def check(self, write: Attributes, warnings: list[str]) -> None:
        """Raise unless the policies let a write be; what they warn of is added to `warnings`."""
        if not self.may_hold(write.operation, write.resource, write.subresource) and not write.plural:
            return
        space = self._spaces.get("", write.namespace) if write.namespace else None
        labels: Mapping[str, str] = (space.labels if space is not None else None) or _NO_LABELS
        if write.resource is NAMESPACES and not write.subresource and write.operation != DELETE:
            labels = _labels(write.obj or {})
        shown: dict[Route, Values] = {}
        budget: Budget | None = None
        denied: list[tuple[str, str, _Decision]] = []
        for policy, bindings in self._bound:
            route = policy.matcher.route(write, self._registry, labels)
            if route is None:
                continue
            holding = [found for found in bindings if found.matcher.route(write, self._registry, labels) is not None]
            if not holding:
                continue
            values = shown.get(route)
            if values is None:
                values = shown[route] = self._values(write, route, space)
            budget = budget or new_budget()
            decisions = policy.decide(values, budget)
            for binding in holding:
                for decision in decisions:
                    if "Deny" in binding.actions:
                        denied.append((policy.name, binding.name, decision))
                    if "Warn" in binding.actions:
                        text = (
                            f"Validation failed for ValidatingAdmissionPolicy '{policy.name}' with binding "
                            f"'{binding.name}': {decision.message}"
                        )
                        # A write may be made again after webhooks were asked.
                        if text.isprintable() and text not in warnings:
                            warnings.append(text)
        if denied:
            raise _denial(write, *denied[0])

    @staticmethod
    def _values(write: Attributes, route: Route, space: Entry | None) -> "Values":
        own = write.resource is NAMESPACES
        return shared_values(
            {
                "object": write.outward(route, write.obj),
                "oldObject": write.outward(route, write.old),
                "request": describe(write, route),
                "namespaceObject": namespace_object(decode(space)) if space is not None and not own else None,
            }
        )

    def _refresh(self) -> None:
        now = (self._policies.changed, self._bindings.changed, self._registry.generation)
        if now == self._seen:
            return
        known, self._compiled = self._compiled, {}
        self._seen = now
        self._kinds.clear()
        bindings: dict[str, list[_Binding]] = {}
        for entry in self._bindings.entries():
            if (found := _read_binding(entry)) is not None:
                bindings.setdefault(found.policy, []).append(found)
        self._bound = []
        for entry in self._policies.entries():
            if entry.name in bindings:
                key = (entry.name, entry.version)
                policy = self._compiled[key] = known[key] if key in known else _read_policy(entry)
                if policy is not None:
                    self._bound.append((policy, bindings[entry.name]))


def _denial(write: Attributes, policy: str, binding: str, decision: _Decision) -> ApiError:
    why = f"ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {decision.message}"
    error = forbidden(write.resource, write.name, why)
    details = {**(error.details or {}), "causes": [{"message": why}]}
    return ApiError(_CODES.get(decision.reason, 422), decision.reason, error.message, details)


def _read_binding(entry: Entry) -> _Binding | None:
    try:
        spec = read_spec(decode(entry), BindingSpec)
        actions = tuple(spec.validation_actions or ())
        return _Binding(entry.name, spec.policy_name, _Matcher(spec.match_resources), actions)
    except (msgspec.ValidationError, selectors.SelectorError) as error:
        _log.error("the policy binding %s does not hold: %s", entry.name, error)
        return None


def _read_policy(entry: Entry) -> _Policy | None:
    """A stored policy; None if it was stored by a server with other rules and cannot be evaluated."""
    from koord.cel.failures import CompileError

    try:
        return _Policy(entry.name, read_spec(decode(entry), PolicySpec))
    except (msgspec.ValidationError, selectors.SelectorError, ConditionError, CompileError) as error:
        _log.error("the policy %s does not hold: %s", entry.name, error)
        return None


def _labels(obj: Object) -> Mapping[str, str]:
    metadata = obj.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    return labels if isinstance(labels, dict) else _NO_LABELS
