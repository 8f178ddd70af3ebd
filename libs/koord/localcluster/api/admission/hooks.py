"""The webhooks there are, and which of them are to be asked about a write.

What depends on the kind of write alone (operation, resource, version, scope) is worked out once per kind of write;
selectors are tested per object.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from koord.kube import selectors
from koord.localcluster.api.admission.attributes import DELETE, Attributes, GroupVersionResource
from koord.localcluster.api.admission.conditions import Condition, ConditionError, new_budget, shared_values
from koord.localcluster.api.admission.definitions import GROUP, LabelSelector, Rule, Webhook, read_webhooks
from koord.localcluster.api.admission.review import describe
from koord.localcluster.api.builtin import NAMESPACES
from koord.localcluster.api.errors import forbidden, not_found
from koord.localcluster.api.resources import Registry, Resource, Route
from koord.localcluster.api.store import Collection, decode
from koord.localcluster.api.watchcache import Entry
from koord.localcluster.clusterapi import Object

if TYPE_CHECKING:
    from koord.cel.budget import Budget

_NO_LABELS: Mapping[str, str] = {}
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Hook:
    """One webhook, ready to be matched; a selector is None when it selects everything."""

    configuration: str
    webhook: Webhook
    namespaces: selectors.Selector | None
    objects: selectors.Selector | None
    conditions: tuple[Condition, ...] = ()

    @property
    def name(self) -> str:
        """The webhook's name, as errors give it."""
        return self.webhook.name

    @property
    def fails_open(self) -> bool:
        """Whether a webhook that cannot be asked is passed over."""
        return self.webhook.failure_policy == "Ignore"


class Invocation(NamedTuple):
    """A webhook that is to be asked, and the version in which it wants to see the object."""

    hook: Hook
    route: Route


def compile_selector(selector: LabelSelector | None) -> selectors.Selector | None:
    """The compiled selector; None when everything matches."""
    if selector is None or not (selector.match_labels or selector.match_expressions):
        return None
    tests = [
        selectors.LabelSelectorRequirement(key=test.key, operator=test.operator, values=list(test.values or ()))
        for test in selector.match_expressions or ()
    ]
    wanted = selectors.LabelSelector(match_labels=dict(selector.match_labels or {}), match_expressions=tests)
    return selectors.compile_label_selector(wanted)


def _contains(values: list[str] | None, wanted: str) -> bool:
    return values is not None and ("*" in values or wanted in values)


def rule_matches(rule: Rule, operation: str, where: GroupVersionResource, subresource: str, *, in_space: bool) -> bool:
    """Whether a rule is about this kind of write; `in_space`: its object lives in a namespace."""
    if rule.scope not in (None, "*") and (rule.scope == "Namespaced") is not in_space:
        return False
    if not (
        _contains(rule.operations, operation)
        and _contains(rule.api_groups, where.group)
        and _contains(rule.api_versions, where.version)
    ):
        return False
    for text in rule.resources or ():
        resource, _, sub = text.partition("/")
        if resource in ("*", where.resource) and sub in ("*", subresource):
            return True
    return False


def any_matches(
    rules: Iterable[Rule], operation: str, resource: Resource, subresource: str, registry: Registry
) -> bool:
    """Whether any rule is about this kind of write in any version; none is about what says who is asked."""
    plurals = (resource.plural, "bindings") if subresource == "binding" else (resource.plural,)
    return resource.group != GROUP and any(
        rule_matches(
            rule,
            operation,
            GroupVersionResource(route.group, route.version, plural),
            "" if plural == "bindings" else subresource,
            in_space=resource.namespaced,
        )
        for rule in rules
        for route in registry.routes.values()
        if route.resource is resource
        for plural in plurals
    )


class HookSet:
    """The webhooks of one kind of configuration, in the order in which they are asked: configurations by name."""

    def __init__(self, configurations: Collection, spaces: Collection, registry: Registry) -> None:
        self._configurations = configurations
        self._spaces = spaces
        self._registry = registry
        self._seen = (-1, -1)
        self._hooks: list[Hook] = []
        self._candidates: dict[tuple[str, ...], tuple[Invocation, ...]] = {}
        self._kinds: dict[tuple[str, str, str], bool] = {}

    def may_ask(self, operation: str, resource: Resource, subresource: str) -> bool:
        """Whether any webhook is about this kind of write in any version."""
        if not self._configurations.count:
            return False
        self._refresh()
        key = (operation, resource.key, subresource)
        known = self._kinds.get(key)
        if known is None:
            rules = (rule for hook in self._hooks for rule in hook.webhook.rules or ())
            known = self._kinds[key] = any_matches(rules, operation, resource, subresource, self._registry)
        return known

    def select(self, write: Attributes) -> list[Invocation]:
        """The webhooks to ask about a write, in order. 404 when one needs the labels of a namespace that is gone."""
        if not self._configurations.count:
            return []
        self._refresh()
        budget = new_budget() if any(hook.conditions for hook in self._hooks) else None
        return [invocation for invocation in self.candidates(write) if self.selects(invocation, write, budget)]

    def candidates(self, write: Attributes) -> tuple[Invocation, ...]:
        """The webhooks whose rules match this kind of write."""
        in_space = write.resource.namespaced
        where = write.resource_in(write.route)
        key = (write.operation, *where, write.subresource, "in" if in_space else "")
        found = self._candidates.get(key)
        if found is None:
            made = []
            if write.resource.group != GROUP:
                made = [
                    Invocation(hook, route)
                    for hook in self._hooks
                    if (route := self._route(hook.webhook, write, in_space)) is not None
                ]
            found = self._candidates[key] = tuple(made)
        return found

    def _route(self, webhook: Webhook, write: Attributes, in_space: bool) -> Route | None:
        """The version in which a webhook is to be asked: that of the request, or an equivalent one if it must be."""
        rules = webhook.rules or ()
        routes = [write.route]
        if webhook.match_policy != "Exact":
            routes += [
                route
                for route in self._registry.routes.values()
                if route.resource is write.resource and route is not write.route
            ]
        where = write.resource_in(write.route)
        if any(rule_matches(rule, write.operation, where, write.subresource, in_space=in_space) for rule in rules):
            return write.route
        for rule in rules:
            for route in routes[1:]:
                where = write.resource_in(route)
                if rule_matches(rule, write.operation, where, write.subresource, in_space=in_space):
                    return route
        return None

    def selects(self, invocation: Invocation, write: Attributes, budget: "Budget | None" = None) -> bool:
        """Whether the selectors and conditions of a webhook let the write through to it.

        budget: what the conditions of all webhooks that are looked at now may spend.
        """
        hook = invocation.hook
        # What is in no namespace is never exempt.
        spaced = bool(write.namespace) or write.resource is NAMESPACES
        if hook.namespaces is not None and spaced and not hook.namespaces.matches(self._namespace_labels(write)):
            return False
        if hook.objects is not None and not any(
            obj is not None and hook.objects.matches(_labels(obj)) for obj in (write.obj, write.old)
        ):
            return False
        return not hook.conditions or _holds(invocation, write, budget or new_budget())

    def _namespace_labels(self, write: Attributes) -> Mapping[str, str]:
        if write.resource is NAMESPACES and not write.subresource and write.operation != DELETE:
            return _labels(write.obj or {})
        entry = self._spaces.get("", write.namespace)
        if entry is None:
            raise not_found(NAMESPACES, write.namespace)
        return entry.labels or _NO_LABELS

    def _refresh(self) -> None:
        now = (self._configurations.changed, self._registry.generation)
        if now == self._seen:
            return
        self._seen = now
        self._candidates.clear()
        self._kinds.clear()
        self._hooks = [hook for entry in self._configurations.entries() for hook in _read(entry)]


def _read(entry: Entry) -> list[Hook]:
    """The webhooks of a stored configuration; none if it was stored by a server with other rules and is unreadable."""
    try:
        return [
            Hook(
                entry.name,
                webhook,
                compile_selector(webhook.namespace_selector),
                compile_selector(webhook.object_selector),
                tuple(Condition(condition.expression) for condition in webhook.match_conditions or ()),
            )
            for webhook in read_webhooks(decode(entry))
        ]
    except (msgspec.ValidationError, selectors.SelectorError, ConditionError) as error:
        _log.error("the webhooks of configuration %s are not called: %s", entry.name, error)
        return []


def _holds(invocation: Invocation, write: Attributes, budget: "Budget") -> bool:
    """Whether all conditions hold. One that does not settles it; one that cannot be evaluated is a failure.

    403 then, or the webhook is passed over, as its policy says.
    """
    hook, route = invocation
    values = shared_values(
        {
            "object": write.outward(route, write.obj),
            "oldObject": write.outward(route, write.old),
            "request": describe(write, route),
        }
    )
    failures = []
    for condition in hook.conditions:
        try:
            if not condition.evaluate(values, budget):
                return False
        except ConditionError as error:
            failures.append(str(error))
    if failures and not hook.fails_open:
        text = failures[0] if len(failures) == 1 else "[" + ", ".join(failures) + "]"
        raise forbidden(write.resource, write.name, text)
    return not failures


def _labels(obj: Object) -> Mapping[str, str]:
    metadata = obj.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    return labels if isinstance(labels, dict) else _NO_LABELS
