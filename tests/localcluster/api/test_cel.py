"""CEL in the embedded server: whatever is written into an expression, nothing is held up and nothing breaks."""

import contextlib
import subprocess
import sys
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from cel_expr_python import cel
from hypothesis import given, settings
from hypothesis import strategies as st

from koord.cel.declared import escape
from koord.cel.expression import Expression
from koord.cel.failures import CompileError, EvaluationError
from koord.cel.language import Checker
from koord.cel.metering import metered
from koord.localcluster.api.admission.conditions import Condition, ConditionError, new_checker
from koord.localcluster.api.schemas.converting import converter, nanoseconds
from koord.localcluster.api.schemas.custom import custom_schema
from koord.localcluster.api.schemas.reading import read
from koord.localcluster.api.schemas.rulebook import Rulebook, aligned

RULES = "x-kubernetes-validations"
_CHECKER = Checker({"object": cel.Type.DYN})


def value_of(text: str, obj: Any = None) -> Any:
    return Expression(text, _CHECKER.check(text)).evaluate({"object": obj})


# --- what would take long has no value, and is not begun


@pytest.mark.parametrize(
    ("text", "obj"),
    [
        ("object.all(a, object.all(b, object.all(c, a + b + c >= 0)))", list(range(200))),
        ("object.all(a, a >= 0)", list(range(300_000))),
        ("object.replace('', object).size() > object.replace('', object).size() + 1", "x" * 200_000),
        ("object.all(a, a.matches('(x|y|z)*a{1,1000}'))", ["a" * 10_000] * 100),
        ("object.all(a, a.find('(x|y|z)*a{1,1000}') == '')", ["a" * 10_000] * 100),
        ("lists.range(object).size() > 0", 2_000_000_000),
        ("object.distinct().size() > 0", [str(i) for i in range(20_000)]),
        ("sets.contains(object, object)", list(range(20_000))),
        ("object.join(object[0]).size() > 0", ["x" * 10_000] * 10_000),
    ],
    ids=["cubic", "long", "replace", "matches", "find", "range", "distinct", "sets", "join"],
)
def test_an_expression_that_costs_too_much_has_no_value(text: str, obj: Any) -> None:
    started = time.process_time()
    with pytest.raises(EvaluationError, match="cost limit exceeded"):
        value_of(text, obj)
    # Nothing is timed to the point: begun, most of these would take minutes.
    assert time.process_time() - started < 20


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5_000 + "true" + ")" * 5_000,
        "[" * 5_000 + "1" + "]" * 5_000,
        "true" + " ? true : false" * 5_000,
        "1" + " + 1" * 5_000 + " == 1",
        "object" + ".a" * 5_000,
        "x" * 200_000,
        "'\\q'",
        "'a\nb'",
        "",
        "\x00",
        "\ud800",
    ],
    ids=[
        "parentheses",
        "lists",
        "choices",
        "sums",
        "fields",
        "length",
        "escape",
        "newline",
        "empty",
        "zero",
        "surrogate",
    ],
)
def test_what_is_no_expression_does_not_compile(text: str) -> None:
    with pytest.raises(CompileError):
        _CHECKER.check(text)


def test_deep_objects_and_catastrophic_patterns() -> None:
    deep: Any = 1
    for _ in range(5_000):
        deep = {"a": deep}
    with contextlib.suppress(EvaluationError):
        value_of("object == object", deep)
    assert value_of("object.matches('^(a+)+$')", "a" * 5_000 + "b") is False
    assert value_of("object.find('(a|aa)+$') == ''", "a" * 2_000 + "b") is True


_TEXT = """object request x . ( ) [ ] { } , : ? ! - + * / % && || == < in has size all map filter exists true null 1 2.5
2u 'a' "b" r'\\' \\ a .? [? optional.of quantity ip cidr url matches format duration timestamp sets.contains"""
_WORDS = st.sampled_from(_TEXT.split())


@given(st.lists(_WORDS, max_size=25).map(" ".join))
@settings(max_examples=120, deadline=None)
def test_any_text_is_an_expression_or_none(text: str) -> None:
    """Nothing but the two errors that are expected, whatever a configuration says."""
    with contextlib.suppress(CompileError, EvaluationError):
        value_of(text, {"a": [1, {"b": "c"}], "x": None})


_ASKED = [
    Expression(text, _CHECKER.check(text))
    for text in ("object.a == 1", "object == object", "has(object.a)", "size(object) > 1", "object in [object]")
]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=10,
    )
)
@settings(max_examples=40, deadline=None)
def test_any_object_can_be_asked_about(obj: Any) -> None:
    for text in (
        "object.a == 1",
        "object == object",
        "has(object.a)",
        "size(object) > 1",
        "object in [object]",
        "!object",
    ):
        with contextlib.suppress(EvaluationError):
            assert value_of(text, obj) in (True, False)


# --- conditions


def test_a_condition_says_yes_or_no() -> None:
    with pytest.raises(ConditionError, match="must evaluate to bool but got int"):
        Condition("1")
    with pytest.raises(ConditionError, match="undefined field 'nope'"):
        Condition("request.nope == ''")
    condition = Condition("object.a.exists(x, x.matches('^b'))")
    assert condition.evaluate({"object": {"a": ["a", "b"]}}) is True
    with pytest.raises(ConditionError, match="resulted in error: no such key: a"):
        condition.evaluate({"object": {}})


def test_variables_have_the_types_of_their_values() -> None:
    checker = new_checker([("n", "int"), ("any", "list<int>")])
    assert checker.check("variables.n + 1").result == "int"
    assert checker.check("variables.any").result == "dyn"
    with pytest.raises(CompileError, match="undefined field 'm'"):
        checker.check("variables.m")


# --- schemas and values


def test_names_in_expressions() -> None:
    assert [escape(name) for name in ("a", "a-b", "a.b/c", "a__b", "for", "namespace", "_a", "a$", "1a", "é", "")] == [
        "a",
        "a__dash__b",
        "a__dot__b__slash__c",
        "a__underscores__b",
        "__for__",
        "__namespace__",
        "_a",
        None,
        None,
        None,
        None,
    ]


def test_values_have_the_types_of_their_schema() -> None:
    text = {"type": "string"}
    fields = {
        "n": {"type": "number"},
        "i": {"type": "integer"},
        "d": {**text, "format": "duration"},
        "t": {**text, "format": "date-time"},
        "b": {**text, "format": "byte"},
        "a-b": text,
        "fooBar": text,
        "foo_bar": text,
        "null": text,
        "open": {"x-kubernetes-preserve-unknown-fields": True},
    }
    convert = converter(read({"type": "object", "properties": fields}), whole=True)
    found = convert(
        {
            **{"n": 1, "i": 2.0, "d": "1h0.5s", "t": "2024-01-01T01:00:00.000000001+01:00", "b": "aGk=", "a-b": "x"},
            **{"fooBar": "1", "foo_bar": "2", "null": None, "open": {"x": 1}, "unknown": 1},
            "metadata": {"name": "m", "labels": {"a": "b"}},
        }
    )
    assert isinstance(found["n"], float) and isinstance(found["i"], int)
    assert (found["d"].seconds, found["d"].nanos) == (3600, 500_000_000)
    assert (found["t"].seconds, found["t"].nanos) == (int(datetime(2024, 1, 1, tzinfo=UTC).timestamp()), 1)
    assert found["b"] == b"hi" and found["a__dash__b"] == "x" and (found["fooBar"], found["foo_bar"]) == ("1", "2")
    assert found["metadata"] == {"name": "m"}
    assert not found.keys() & {"null", "__null__", "open", "unknown"}
    assert [nanoseconds(given) for given in ("-1.5h", "1us1ns", "0", ".5s")] == [-54 * 10**11, 1001, 0, 5 * 10**8]


def test_times_that_few_write_so() -> None:
    """Whatever the formats of schemas let in has a value, or is told by name."""
    assert [nanoseconds(given) // 10**9 for given in ("2 days", "1w", "3 hours", "1.9 m")] == [
        172_800,
        604_800,
        10_800,
        60,
    ]
    when = {"type": "string", "format": "date-time", RULES: [{"rule": "self > timestamp('2000-01-01T00:00:00Z')"}]}
    book = Rulebook.of(custom_schema({"type": "object", "properties": {"t": when}}), whole=True)
    assert book is not None
    assert book.check({"t": "2016-12-31T23:59:60Z"}) == [] == book.check({"t": "2016-12-31t23:59:59.5z"})
    (cause,) = book.check({"t": "0000-01-01T00:00:00Z"})
    assert cause.field == "t" and cause.message.endswith("evaluating rule: self > timestamp('2000-01-01T00:00:00Z')")


def test_rules_of_very_many_elements_are_not_all_run() -> None:
    """The object is refused then; what was not looked at is not let in."""
    items = {"type": "integer", RULES: [{"rule": "self > 0"}]}
    book = Rulebook.of(
        custom_schema({"type": "object", "properties": {"l": {"type": "array", "items": items}}}), whole=True
    )
    assert book is not None and book.check({"l": [1] * 1_000}) == []
    (cause,) = book.check({"l": [1] * 250_000})
    assert cause.message == (
        'Invalid value: "integer": validation failed due to running out of cost budget, no further validation rules '
        "will be run"
    )


def test_order_means_nothing_in_sets_and_lists_with_keys() -> None:
    keyed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}
    items = {"type": "object", "properties": {"k": {"type": "string"}}}
    schema = custom_schema(
        {
            "type": "object",
            "properties": {
                "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "map": {"type": "array", "items": items, **keyed},
                "list": {"type": "array", "items": {"type": "string"}},
            },
        }
    )
    old = {"set": ["a", "b", "c"], "map": [{"k": "a"}, {"k": "b"}], "list": ["a", "b"]}
    new = {"set": ["c", "x", "a"], "map": [{"k": "b"}, {"k": "a"}], "list": ["b", "a"]}
    assert aligned(old, new, schema) == {"set": ["c", "a", "b"], "map": [{"k": "b"}, {"k": "a"}], "list": ["a", "b"]}


def test_a_schema_without_rules_has_no_rulebook() -> None:
    schema = custom_schema({"type": "object", "properties": {"a": {"type": "integer"}}})
    assert not schema.rules_below and Rulebook.of(schema, whole=True) is None


def test_the_evaluator_is_not_loaded_by_a_server_without_rules() -> None:
    program = (
        "import sys\n"
        "from koord.localcluster.api.cluster import Cluster\n"
        "Cluster()\n"
        "print([name for name in sys.modules if name.startswith('cel_expr') or name.startswith('google.protobuf')])"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert answer.stdout.strip() == "[]"


def test_the_estimate_is_never_less_than_what_is_done() -> None:
    """Loops over values whose sizes no path tells are taken for as large as anything there is."""
    obj = {"a": [[1] * 50] * 10, "m": {"k": ["x" * 100] * 20}}
    for text, least in (
        ("object.a.all(l, l.all(v, v > 0))", 10 * 50),
        ("object.m.k.map(t, t + 'y').all(t, t.matches('y$'))", 20 * 10),
        ("object.a.map(l, l.size()).sum() > 0", 10),
    ):
        assert least <= metered(_CHECKER.check(text).tree, {"object": obj}) < 1_000_000, text
