"""What expressions may cost in the embedded server: nothing that is written into one holds the event loop for long.

Nothing here is timed to the point: without its limit each of these would take minutes, or all memory.
"""

import time
from typing import Any

import pytest
from cel_expr_python import cel

from koord.cel.budget import Budget
from koord.cel.expression import Expression
from koord.cel.failures import EvaluationError
from koord.cel.language import Checker
from koord.cel.library import find
from koord.localcluster.api.admission.conditions import new_checker
from koord.localcluster.api.schemas.custom import custom_schema
from koord.localcluster.api.schemas.rulebook import Rulebook
from koord.localcluster.api.schemas.ruledefinitions import weight_of_rules

RULES = "x-kubernetes-validations"
_CHECKER = Checker({"object": cel.Type.DYN})


@pytest.mark.parametrize(
    "text",
    [
        "self.l.map(x, x + 'a').size() > 0",
        "self.l.filter(x, true).size() > 0",
        "[self.s].map(a, '%s%s%s%s%s%s%s%s'.format([a, a, a, a, a, a, a, a])).map(a, '%s%s%s%s%s%s%s%s'.format("
        "[a, a, a, a, a, a, a, a])).map(a, '%s%s%s%s%s%s%s%s'.format([a, a, a, a, a, a, a, a])).size() > 0",
        "[self].map(a, [a, a, a, a, a, a, a, a]).map(a, [a, a, a, a, a, a, a, a]).map(a, [a, a, a, a, a, a, a, a]) == "
        "[self].map(a, [a, a, a, a, a, a, a, a]).map(a, [a, a, a, a, a, a, a, a]).map(a, [a, a, a, a, a, a, a, a])",
        "self.l.all(x, quantity(x).isLessThan(quantity('9')) && semver('1.2.3').isLessThan(semver('1.2.4')))",
        "self.s.findAll('x').size() > 0",
    ],
    ids=["map", "filter", "format", "nested", "python", "findAll"],
)
def test_what_is_dear_in_this_evaluator_alone_is_paid(text: str) -> None:
    """Lists that loops make, texts that grow, lists that hold themselves several times, functions in Python."""
    texts = {"type": "array", "items": {"type": "string", "maxLength": 5}, "maxItems": 9_000}
    schema = {"type": "object", "properties": {"l": texts, "s": {"type": "string"}}, RULES: [{"rule": text}]}
    book = Rulebook.of(custom_schema(schema), whole=True)
    assert book is not None
    (cause,) = book.check({"l": ["5"] * 9_000, "s": "x" * 500_000})
    assert "call cost exceeds limit for rule" in cause.message
    assert book.check({"l": ["5"] * 10, "s": "x" * 10}) == []


def test_messages_are_paid_like_rules() -> None:
    items = {"type": "string", "maxLength": 5}
    text = "self.all(x, isQuantity(x)) ? 'bad' : 'worse'"
    rules = [{"rule": "self.size() == 0", "messageExpression": text} for _ in range(40)]
    book = Rulebook.of(
        custom_schema({"type": "object", "properties": {"l": {"type": "array", "items": items, RULES: rules}}})
    )
    assert book is not None
    causes = book.check({"l": ["5"] * 9_000})
    assert 0 < len(causes) < 40 and "running out of cost budget" in causes[-1].message
    assert [cause.message for cause in book.check({"l": ["5"]})] == ["Invalid value: bad"] * 40


def test_values_that_hold_themselves_are_not_taken_out_of_an_expression() -> None:
    """A policy's variables could double what they hold thirty times."""
    budget, values = Budget(), {"object": {f"k{i}": i for i in range(100)}}
    value: Any = None
    with pytest.raises(EvaluationError, match="cost"):
        for _ in range(40):
            text = "[object, object]" if value is None else "[variables.v, variables.v]"
            checker = new_checker([("v", "list")])
            value = Expression(text, checker.check(text)).evaluate({**values, "variables": {"v": value}}, budget)
    assert budget.spent


@pytest.mark.parametrize("pattern", ["[" * 100_000, "(" * 100_000, "[[:" * 30_000, "\\" * 99_999, "(?P<a" * 20_000])
def test_any_pattern_is_read_once(pattern: str) -> None:
    started = time.process_time()
    with pytest.raises(ValueError, match="Illegal regex"):
        find("x", pattern)
    assert time.process_time() - started < 20


@pytest.mark.parametrize(
    ("text", "pattern", "found"),
    [
        ("a(b", r"\Q(b\E", "(b"),
        ("ab", "(?P<first>a)(b)", "ab"),
        ("x(]", "[(]+[]]", "(]"),
        ("x1-", "[[:digit:](]-", "1-"),
        ("ab", "(?:a)(?i)B", "ab"),
    ],
)
def test_groups_capture_nothing(text: str, pattern: str, found: str) -> None:
    assert find(text, pattern) == found


def test_what_the_evaluator_cannot_make_is_an_error_of_the_expression() -> None:
    text = "lists.range(-9223372036854775807).size() == 0"
    with pytest.raises(EvaluationError):
        Expression(text, _CHECKER.check(text)).evaluate({"object": 1})


def test_types_of_deep_and_wide_schemas() -> None:
    """Each level is worked out once, and an object with more fields than a message can have has no type."""
    deep: dict[str, Any] = {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(5_000)}}
    for _ in range(150):
        deep = {"type": "object", "properties": {"a": deep}}
    deep[RULES] = [{"rule": "has(self.a)"}]
    started = time.process_time()
    book = Rulebook.of(custom_schema({"type": "object", "properties": {"spec": deep}}), whole=True)
    assert book is not None and book.check({"spec": {"a": {}}}) == []
    assert len(book.check({"spec": {}})) == 1
    assert time.process_time() - started < 20


def test_definitions_with_very_many_rules_are_not_compiled() -> None:
    """They are compiled on the event loop: what counts is the time that takes."""
    one: dict[str, Any] = {"type": "string", RULES: [{"rule": "self != 'x'"}]}
    many = {"type": "object", "properties": {f"p{i}": one for i in range(501)}}
    wide = {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(2_000)}}
    below: dict[str, Any] = wide
    for _ in range(100):
        below = {"type": "object", "properties": {"a": below}, RULES: [{"rule": "true"}]}
    assert weight_of_rules(many) == 501 and weight_of_rules(wide) == 0
    assert weight_of_rules(below) > 500 < weight_of_rules({**one, RULES: [{"rule": "self != 'x' && " * 40_000}]})
