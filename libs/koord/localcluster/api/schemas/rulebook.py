"""The rules of a version's schema in CEL, held against objects at every level that has some.

The order, the words and what is passed over (rules about changes without a state before, what was wrong before and was
not changed) are the real server's. Kinds without rules have no rulebook.
"""

from typing import Any, NamedTuple

from koord.cel.budget import SPENT, Budget
from koord.cel.failures import CompileError, CostError, EvaluationError
from koord.cel.language import Program
from koord.cel.metering import Values, is_plain, metered
from koord.cel.tree import Tree
from koord.localcluster.api.apply.comparing import equal
from koord.localcluster.api.errors import Cause
from koord.localcluster.api.schemas.converting import Convert, Converters
from koord.localcluster.api.schemas.declaring import declare
from koord.localcluster.api.schemas.model import Rule, Schema
from koord.localcluster.api.schemas.rulecompiling import RuleChecker
from koord.localcluster.api.schemas.ruledefinitions import field_path
from koord.localcluster.api.schemas.validating import show

_CHEAP = 1_000
_LONGEST_MESSAGE = 5 * 1024
_ABSENT = object()


class _Compiled(NamedTuple):
    """A rule. `cost`: None when its values have to be looked at."""

    rule: Rule
    program: Program
    message: Program | None
    tree: Tree
    cost: int | None
    message_tree: Tree | None
    uses_old: bool
    field: str


class Rulebook:
    """The rules of one schema and of what is below it."""

    __slots__ = ("_additional", "_convert", "_items", "_properties", "_rules", "_schema", "_type")

    def __init__(self, schema: Schema, convert: Convert) -> None:
        self._schema = schema
        self._convert = convert
        self._type = schema.type
        self._rules: list[_Compiled] = []
        self._properties: dict[str, Rulebook] = {}
        self._items: Rulebook | None = None
        self._additional: Rulebook | None = None

    @classmethod
    def of(cls, schema: Schema, *, whole: bool = False) -> "Rulebook | None":
        """The rulebook of a schema; None when neither it nor anything below has rules."""
        return cls._of(schema, Converters(), whole=whole)

    @classmethod
    def _of(cls, schema: Schema, made: Converters, *, whole: bool) -> "Rulebook | None":
        declared = declare(schema, whole=whole, known=made.types)
        if declared is None:
            return None
        book = cls(schema, made.of(schema, whole=whole))
        if schema.rules:
            checker = RuleChecker(declared)
            for rule in schema.rules:
                book._add(rule, checker)
        for name, inner in schema.properties.items():
            if not inner.definition and (below := cls._of(inner, made, whole=inner.embedded_resource)) is not None:
                book._properties[name] = below
        if schema.items is not None:
            book._items = cls._of(schema.items, made, whole=schema.items.embedded_resource)
        if schema.additional is not None:
            book._additional = cls._of(schema.additional, made, whole=schema.additional.embedded_resource)
        found = book._rules or book._properties or book._items or book._additional
        return book if found else None

    def _add(self, rule: Rule, checker: RuleChecker) -> None:
        source = {
            "rule": rule.text,
            "messageExpression": rule.message_expression,
            "optionalOldSelf": rule.optional_old_self,
        }
        checked = checker.check(source)
        if checked.tree is None:
            return  # A definition of an earlier life may hold what is refused today.
        optional = rule.optional_old_self and checked.uses_old
        program = Program(rule.text, optional_old=optional)
        message: Program | None = None
        if rule.message_expression and not checked.message_error:
            try:
                message = Program(rule.message_expression, optional_old=optional)
            except CompileError:
                message = None
        field = (field_path(rule.field_path, self._schema) or "") if rule.field_path else ""
        cost = checked.cost if checked.cost <= _CHEAP and is_plain(checked.tree) else None
        self._rules.append(
            _Compiled(rule, program, message, checked.tree, cost, checked.message_tree, checked.uses_old, field)
        )

    def check(self, value: Any, old: Any = None) -> list[Cause]:
        """The rules that a whole object breaks. `old`: its state before the change."""
        causes: list[Cause] = []
        self._check(value, old, "", _Ratchet(value, old, self._schema), Budget(), causes)
        return causes

    def _check(self, value: Any, old: Any, path: str, ratchet: "_Ratchet", budget: Budget, causes: list[Cause]) -> None:
        if value is None or budget.spent:
            return
        if self._rules:
            self._evaluate(value, old, path, ratchet, budget, causes)
        if isinstance(value, dict):
            before = old if isinstance(old, dict) else {}
            for name, given in value.items():
                if (below := self._properties.get(name)) is not None:
                    inner = f"{path}.{name}" if path else name
                elif self._additional is not None:
                    below, inner = self._additional, f"{path}[{name}]"
                else:
                    continue
                below._check(given, before.get(name), inner, ratchet.below(given, name), budget, causes)
        elif isinstance(value, list) and self._items is not None:
            keyed = _by_keys(old, self._schema) if isinstance(old, list) else {}
            for i, given in enumerate(value):
                # Only elements with keys have a state before; the others are as old as the list.
                counterpart = keyed.get(_key(given, self._schema)) if keyed else None
                below_here = ratchet.of(given, counterpart) if keyed else ratchet
                self._items._check(given, counterpart, f"{path}[{i}]", below_here, budget, causes)

    def _evaluate(
        self, value: Any, old: Any, path: str, ratchet: "_Ratchet", budget: Budget, causes: list[Cause]
    ) -> None:
        before: Values | None = None
        try:
            values = Values({"self": self._convert(value)})
            if old is not None and any(found.uses_old for found in self._rules):
                before = Values({**values.values, "oldSelf": self._convert(aligned(old, value, self._schema))})
        except (ValueError, OverflowError, TypeError, AttributeError) as error:
            # What its schema lets in and has no value in CEL, such as the year 0.
            causes.append(self._failure(self._rules[0].rule, path, EvaluationError(str(error)), budget))
            return
        for found in self._rules:
            given = values
            if found.uses_old:
                if old is None and not found.rule.optional_old_self:
                    continue  # what is new has not changed
                given = before or values
            try:
                budget.pay(found.cost if found.cost is not None else metered(found.tree, given))
                holds = found.program.evaluate(given.values)
            except EvaluationError as error:
                causes.append(self._failure(found.rule, path, error, budget))
                if budget.spent:
                    return
                continue
            if holds is not True and (found.uses_old or not ratchet.unchanged()):
                causes.append(self._broken(found, value, path, given, budget))
                if budget.spent:
                    causes.append(self._failure(found.rule, path, CostError(SPENT), budget))
                    return

    def _failure(self, rule: Rule, path: str, error: EvaluationError, budget: Budget) -> Cause:
        shown = (rule.message or rule.text).strip()
        if str(error) == SPENT:
            budget.spent = True
            words = SPENT
        elif isinstance(error, CostError):
            budget.spent = True
            words = (
                f"'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {shown}"
            )
        elif str(error).startswith("no such overload"):
            words = (
                f"'{error}': call arguments did not match a supported operator, function or macro signature for rule: "
                f"{shown}"
            )
        else:
            words = f"{error} evaluating rule: {shown}"
        return Cause("FieldValueInvalid", path or "<nil>", f"Invalid value: {show(self._type)}: {words}")

    def _broken(self, found: _Compiled, value: Any, path: str, values: Values, budget: Budget) -> Cause:
        rule = found.rule
        detail = _message(found, values, budget) or rule.message.strip() or f"failed rule: {rule.text.strip()}"
        field = (f"{path}.{found.field}" if path and found.field else path or found.field) or "<nil>"
        plain = self._type not in ("object", "array")
        match rule.reason:
            case "FieldValueForbidden":
                words = f"Forbidden: {detail}"
            case "FieldValueRequired":
                words = f"Required value: {detail}"
            case "FieldValueDuplicate":
                words = f"Duplicate value: {show(value)}" if plain else "Duplicate value"
            case _:
                words = f"Invalid value: {show(value)}: {detail}" if plain else f"Invalid value: {detail}"
        return Cause(rule.reason, field, words)


class _Ratchet:
    """Whether a value is what it was before the change; worked out when it is asked for."""

    __slots__ = ("_equal", "_new", "_old", "_schema")

    def __init__(self, new: Any, old: Any, schema: Schema | None) -> None:
        self._new = new
        self._old = old
        self._schema = schema
        self._equal: bool | None = None

    def unchanged(self) -> bool:
        """Whether there is a state before that is the same."""
        if self._equal is None:
            self._equal = self._old is not None and equal(self._new, aligned(self._old, self._new, self._schema))
        return self._equal

    def below(self, new: Any, name: str) -> "_Ratchet":
        """That of a field or map value."""
        schema = self._schema.field(name) if self._schema is not None else None
        return _Ratchet(new, self._old.get(name) if isinstance(self._old, dict) else None, schema)

    def of(self, new: Any, old: Any) -> "_Ratchet":
        """That of an element with keys, and its counterpart."""
        return _Ratchet(new, old, self._schema.items if self._schema is not None else None)


def _message(found: _Compiled, values: Values, budget: Budget) -> str:
    """What a rule's messageExpression says; nothing when it has no value that can be shown."""
    if found.message is None or found.message_tree is None:
        return ""
    try:
        budget.pay(metered(found.message_tree, values))
        text = found.message.evaluate(values.values)
    except EvaluationError:
        return ""
    text = text.strip() if isinstance(text, str) else ""
    return text if len(text.encode()) <= _LONGEST_MESSAGE and "\n" not in text else ""


def _key(item: Any, schema: Schema) -> tuple[Any, ...]:
    return tuple(show(item.get(key)) for key in schema.list_map_keys) if isinstance(item, dict) else (_ABSENT,)


def _by_keys(items: list[Any], schema: Schema) -> dict[tuple[Any, ...], Any]:
    if schema.list_type != "map":
        return {}
    return {_key(item, schema): item for item in items}


def aligned(old: Any, new: Any, schema: Schema | None) -> Any:
    """A state before with sets and lists with keys in the order of the state after: order means nothing in them."""
    if schema is None or not schema.keyed_below:
        return old
    if isinstance(old, dict) and isinstance(new, dict):
        return {
            name: aligned(value, new[name], schema.field(name)) if name in new else value for name, value in old.items()
        }
    if isinstance(old, list) and isinstance(new, list) and schema.list_type in ("set", "map"):
        keyed = schema.list_type == "map"
        named = {(_key(item, schema) if keyed else show(item)): item for item in old}
        first = []
        for item in new:
            known = named.pop(_key(item, schema) if keyed else show(item), _ABSENT)
            if known is not _ABSENT:
                first.append(aligned(known, item, schema.items))
        return [*first, *named.values()]
    return old
