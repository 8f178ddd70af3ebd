"""The rules in CEL that a definition gives (`x-kubernetes-validations`): whether they may be stored.

Each must be complete, compile against the type of where it stands, and not cost more than Kubernetes allows by its
estimate. Rules are looked at in the real server's order and refused in its words.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from koord.cel.limits import DEFINITION_LIMIT, MOST, REQUEST_BYTES, RULE_LIMIT
from koord.localcluster.api.errors import Cause, forbidden_value, invalid_value, not_supported, required
from koord.localcluster.api.schemas.model import Schema
from koord.localcluster.api.schemas.reading import read

RULES = "x-kubernetes-validations"
REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_LONG_RULE, _MANY_BELOW = 1_000, 250
_LINES = re.compile(r"[\n\r]")
_FACTOR = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are "
    "declared)"
)
_TOKENS = re.compile(r"[.\[\]]|'(?:[^'\\]|\\.)*'|[^.\[\]']+|'")
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "'": "'", "\\": "\\"}
Source = dict[str, Any]


class _Place(NamedTuple):
    """Where a schema stands. `times`: how many values it can have in an object, None when that is not bounded.

    `loose`: the path of the list whose elements have no counterparts in the object before a change.
    """

    path: str
    whole: bool
    times: int | None
    loose: str


def has_rules(source: Source) -> bool:
    """Whether a schema has rules."""
    if source.get(RULES):
        return True
    below = [*(source.get("properties") or {}).values(), source.get("items"), source.get("additionalProperties")]
    return any(isinstance(inner, dict) and has_rules(inner) for inner in below)


def weight_of_rules(source: Source) -> int:
    """How many rules a schema has. What takes as long to compile counts as more: long texts, and all that lies below a
    rule, as it makes the type of `self`.
    """
    return _weights(source)[0]


def _weights(source: Source) -> tuple[int, int]:
    """The weight of the rules of a schema and of what is below, and how many schemas these are."""
    weight, count = 0, 1
    for inner in (*(source.get("properties") or {}).values(), source.get("items"), source.get("additionalProperties")):
        if isinstance(inner, dict):
            more, below = _weights(inner)
            weight += more
            count += below
    rules = source.get(RULES) or ()
    for rule in rules:
        weight += 1 + (len(rule.get("rule") or "") + len(rule.get("messageExpression") or "")) // _LONG_RULE
    return weight + (count // _MANY_BELOW if rules else 0), count


def check_rules(source: Source, path: str) -> list[Cause]:
    """Every rule of a version's schema that may not be stored; `path` is where the schema lies."""
    if not has_rules(source):
        return []
    walk = _Walk()
    walk.visit(source, _Place(path, True, 1, ""))
    return walk.causes + walk.total_causes(path)


def _below(source: Source, place: _Place) -> Iterator[tuple[Source, _Place]]:
    additional, items = source.get("additionalProperties"), source.get("items")
    most: int | None = 1
    if source.get("type") == "array":
        most = source.get("maxItems")
    elif source.get("type") == "object" and additional is not None:
        most = source.get("maxProperties")
    count = None if place.times is None or most is None else place.times * max(most, 0)
    inner = [(additional, f"{place.path}.additionalProperties", place.loose)]
    properties = (source.get("properties") or {}).items()
    inner += [(found, f"{place.path}.properties[{name}]", place.loose) for name, found in properties]
    keyed = source.get("x-kubernetes-list-type") == "map"
    inner.append((items, f"{place.path}.items", place.loose if keyed else place.loose or place.path))
    for found, path, loose in inner:
        if isinstance(found, dict):
            yield found, _Place(path, bool(found.get("x-kubernetes-embedded-resource")), count, loose)


class _Walk:
    """What has been found: what is refused, and what all rules cost."""

    def __init__(self) -> None:
        self.causes: list[Cause] = []
        self._total = 0
        self._expensive: list[tuple[str, int]] = []

    def visit(self, source: Source, place: _Place) -> bool:
        """Look at a schema, what is below first; whether all of it is complete."""
        complete = True
        for inner, where in _below(source, place):
            complete &= self.visit(inner, where)
        rules = source.get(RULES) or ()
        if not rules:
            return complete
        node = read(source)
        incomplete = [
            cause for i, rule in enumerate(rules) for cause in _incomplete(rule, node, f"{place.path}.{RULES}[{i}]")
        ]
        self.causes += incomplete
        if incomplete or not complete:
            return False
        self._compile(rules, node, place)
        return True

    def _compile(self, rules: list[Source], node: Schema, place: _Place) -> None:
        # Loaded only by whoever has a rule.
        from koord.localcluster.api.schemas.declaring import declare
        from koord.localcluster.api.schemas.rulecompiling import RuleChecker

        declared = declare(node, whole=place.whole)
        if declared is None:
            words = "Internal error: failed to retrieve type information for x-kubernetes-validations"
            self.causes.append(Cause("InternalError", f"{place.path}.{RULES}", words))
            return
        checker = RuleChecker(declared)
        count = REQUEST_BYTES // (declared.least + 1) if place.times is None else place.times
        for i, rule in enumerate(rules):
            where = f"{place.path}.{RULES}[{i}]"
            found = checker.check(rule)
            self._price(f"{where}.rule", "estimated rule cost", found.cost * count)
            if found.error:
                self.causes.append(_shown(f"{where}.rule", rule, found.error))
            if found.message_error:
                self.causes.append(_shown(f"{where}.messageExpression", rule, found.message_error))
            elif rule.get("messageExpression") and not found.error:
                self._price(f"{where}.messageExpression", "estimated messageExpression cost", found.message_cost)
            if found.uses_old and place.loose:
                why = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {place.loose}"
                self.causes.append(invalid_value(f"{where}.rule", rule["rule"], why))
            elif not found.uses_old and rule.get("optionalOldSelf") is not None:
                given = rule["optionalOldSelf"]
                why = "may not be set if oldSelf is not used in rule"
                self.causes.append(invalid_value(f"{where}.optionalOldSelf", given, why))

    def _price(self, path: str, what: str, cost: int) -> None:
        cost = min(cost, MOST)
        if cost > RULE_LIMIT:
            self.causes.append(forbidden_value(path, _too_much(what, cost, RULE_LIMIT)))
        self._total = min(MOST, self._total + cost)
        if cost >= DEFINITION_LIMIT // 100:
            self._expensive = sorted([*self._expensive, (path, cost)], key=lambda found: -found[1])[:4]

    def total_causes(self, path: str) -> list[Cause]:
        """What is refused because all rules together cost too much."""
        if self._total <= DEFINITION_LIMIT:
            return []
        why = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
        found = [forbidden_value(where, why) for where, _ in self._expensive]
        what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        return [*found, forbidden_value(path, _too_much(what, self._total, DEFINITION_LIMIT))]


def _too_much(what: str, cost: int, limit: int) -> str:
    factor = cost / limit
    shown = "more than 100x" if factor > 100 else f"{factor:.6f}x" if factor < 1.5 else f"{factor:.1f}x"
    return f"{what} exceeds budget by factor of {shown} {_FACTOR}"


def _shown(path: str, rule: Source, why: str) -> Cause:
    """A cause that shows a rule as the real server does."""
    value = {
        "Rule": rule.get("rule", ""),
        "Message": rule.get("message", ""),
        "MessageExpression": rule.get("messageExpression", ""),
        "Reason": rule.get("reason"),
        "FieldPath": rule.get("fieldPath", ""),
        "OptionalOldSelf": rule.get("optionalOldSelf"),
    }
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return Cause("FieldValueInvalid", path, f"Invalid value: {text}: {why}")


def _quoted(path: str, value: str, why: str) -> Cause:
    return Cause("FieldValueInvalid", path, f"Invalid value: {json.dumps(value, ensure_ascii=False)}: {why}")


def _incomplete(rule: Source, node: Schema, path: str) -> Iterator[Cause]:
    text, message = rule.get("rule", ""), rule.get("message", "")
    if not text.strip():
        yield required(f"{path}.rule", "rule is not specified")
    elif message and not message.strip():
        yield _quoted(f"{path}.message", message, "must be non-empty if specified")
    elif _LINES.search(message.strip()):
        yield _quoted(f"{path}.message", message, "must not contain line breaks")
    elif _LINES.search(text.strip()) and not message.strip():
        yield required(f"{path}.message", "message must be specified if rule contains line breaks")
    expression = rule.get("messageExpression", "")
    if expression and not expression.strip():
        yield required(f"{path}.messageExpression", "messageExpression must be non-empty if specified")
    reason = rule.get("reason")
    if reason is not None and reason not in REASONS:
        yield not_supported(f"{path}.reason", reason, REASONS)
    field = rule.get("fieldPath", "")
    if field and not field.strip():
        yield _quoted(f"{path}.fieldPath", field, "must be non-empty if specified")
    if _LINES.search(field):
        yield _quoted(f"{path}.fieldPath", field, "must not contain line breaks")
    if field and field_path(field, node) is None:
        yield _quoted(f"{path}.fieldPath", field, "must be a valid path")


def field_path(text: str, node: Schema) -> str | None:
    """A rule's `fieldPath` as causes show it: what is below the value; None when it leads nowhere."""
    tokens = _TOKENS.findall(text)
    at, shown = 0, ""
    found: Schema | None = node
    while at < len(tokens) and found is not None:
        match tokens[at : at + 3]:
            case ["[", quoted, "]"] if len(quoted) > 1 and quoted[0] == quoted[-1] == "'":
                name = re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[0]), quoted[1:-1])
                at += 3
            case [".", name, *_] if name not in ".[]":
                at += 2
            case _:
                return None
        if found.properties:
            shown += f".{name}"
            found = found.properties.get(name)
        else:
            shown += f"[{name}]"
            found = found.additional
    return shown.removeprefix(".") if found is not None and tokens else None
