"""Selectors: what matches, and how a bad one is named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.kube.manyterms import matcher
from koord.kube.nodes import PREFER_NO_SCHEDULE, Taint
from koord.kube.nodeselectors import (
    compile_node_selector,
    compile_preferred,
    matches_node,
    matches_node_selector,
    tolerates,
    untolerated,
)
from koord.kube.pods import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodSpec,
    PreferredSchedulingTerm,
    Toleration,
)
from koord.kube.selectors import (
    EVERYTHING,
    LabelSelector,
    LabelSelectorRequirement,
    SelectorError,
    compile_label_selector,
    matches,
)
from koord.kube.selectortexts import parse_field_selector, parse_label_selector

SETS: list[dict[str, str]] = [
    {},
    {"a": "b"},
    {"a": "c"},
    {"a": ""},
    {"a": "5", "x/y": "z"},
    {"in": "notin", "b": "b"},
    {"a": "b", "b": "c", "c": "10"},
]

# text, which of SETS match: recorded from apimachinery's labels.Parse
LABELS = [
    ("", "1111111"),
    ("a", "0111101"),
    ("!a", "1000010"),
    ("a=", "0001000"),
    ("a==b", "0100001"),
    ("a!=b", "1011110"),
    ("a in (b,c)", "0110001"),
    ("a in ()", "0001000"),
    ("a in (,)", "0001000"),
    ("a notin (b)", "1011110"),
    ("a,b", "0000001"),
    ("a>4", "0000100"),
    ("c>9,c<11", "0000001"),
    ("a = b , b = c", "0000001"),
    ("in in (notin)", "0000010"),
    ("in=notin", "0000010"),
    ("x/y", "0000100"),
    ("a=,!b", "0001000"),
]


@pytest.mark.parametrize(("text", "expected"), LABELS)
def test_text_form(text: str, expected: str) -> None:
    selector = parse_label_selector(text)
    assert "".join(str(int(selector.matches(labels))) for labels in SETS) == expected
    again = parse_label_selector(str(selector))
    assert [again.matches(labels) for labels in SETS] == [selector.matches(labels) for labels in SETS]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("a,,b", "expected a key"),
        (",", "expected a key"),
        ("a,", "must follow"),
        ("a=b=c", 'expected "," or the end'),
        ("a>b", "whole number"),
        ("a>-10", "value"),
        ("a in b", '"(" must follow'),
        ("a in (b", 'expected "," or ")"'),
        ("a b", "expected =, ==, !=, in, notin"),
        ("-a", "name must be 1 to 63"),
        ("A/b", "DNS subdomain"),
        ("/b", "DNS subdomain"),
        ("a=-b", "must be empty or at most 63"),
        ("a" * 64, "name must be 1 to 63"),
        ("a=" + "b" * 64, "at most 63"),
        ("!", "expected a key at the end"),
    ],
)
def test_bad_text_is_named_with_the_rule(text: str, rule: str) -> None:
    with pytest.raises(SelectorError) as caught:
        parse_label_selector(text)
    assert f'selector "{text}"' in str(caught.value)
    assert rule in str(caught.value)


def test_object_form() -> None:
    selector = LabelSelector(
        match_labels={"a": "b"},
        match_expressions=[
            LabelSelectorRequirement(key="b", operator="In", values=["c", "d"]),
            LabelSelectorRequirement(key="z", operator="DoesNotExist"),
            LabelSelectorRequirement(key="c", operator="Exists"),
            LabelSelectorRequirement(key="c", operator="NotIn", values=["11"]),
        ],
    )
    assert [matches(selector, labels) for labels in SETS] == [False] * 6 + [True]
    assert matches(LabelSelector(), {})
    assert not matches(None, {})
    assert EVERYTHING.matches({"a": "b"})


@pytest.mark.parametrize(
    ("requirement", "message"),
    [
        (LabelSelectorRequirement(key="a", operator="Equals", values=["b"]), "matchExpressions[0].operator"),
        (LabelSelectorRequirement(key="a", operator="Gt", values=["1"]), "must be In, NotIn, Exists or DoesNotExist"),
        (LabelSelectorRequirement(key="a", operator="In"), "matchExpressions[0].values: must not be empty"),
        (LabelSelectorRequirement(key="a", operator="Exists", values=["b"]), "must be empty for operator Exists"),
        (LabelSelectorRequirement(key="", operator="Exists"), "name must be 1 to 63"),
        (LabelSelectorRequirement(key="a", operator="In", values=["b c"]), 'value "b c"'),
    ],
)
def test_bad_object_form(requirement: LabelSelectorRequirement, message: str) -> None:
    with pytest.raises(SelectorError) as caught:
        compile_label_selector(LabelSelector(match_expressions=[requirement]))
    assert message in str(caught.value)


def test_field_selectors() -> None:
    fields = {"metadata.name": "a,b=c", "status.phase": "Running", "spec.nodeName": ""}
    assert parse_field_selector("").matches({})
    assert parse_field_selector("metadata.name=a\\,b\\=c,status.phase!=Failed").matches(fields)
    assert parse_field_selector("spec.nodeName=").matches(fields)
    assert parse_field_selector("spec.nodeName=").matches({}), "an absent field reads as empty"
    assert not parse_field_selector("status.phase==Pending").matches(fields)
    assert str(parse_field_selector("a=b\\,c,d!=e")) == "a=b\\,c,d!=e"
    for bad in ("status.phase", "=x", "a=b=c", "a=\\x", "a=b\\"):
        with pytest.raises(SelectorError) as caught:
            parse_field_selector(bad)
        assert f'field selector "{bad}"' in str(caught.value)


def expression(key: str, operator: str, *values: str) -> NodeSelectorRequirement:
    return NodeSelectorRequirement(key=key, operator=operator, values=list(values))


def term(
    *expressions: NodeSelectorRequirement, fields: list[NodeSelectorRequirement] | None = None
) -> NodeSelectorTerm:
    return NodeSelectorTerm(match_expressions=list(expressions), match_fields=fields or [])


def test_node_selector_terms() -> None:
    labels = {"zone": "a", "cores": "64", "gpu": ""}
    cases = [
        (term(expression("zone", "In", "a", "b")), True),
        (term(expression("zone", "NotIn", "a")), False),
        (term(expression("rack", "NotIn", "r1")), True),
        (term(expression("gpu", "Exists")), True),
        (term(expression("gpu", "DoesNotExist")), False),
        (term(expression("cores", "Gt", "63")), True),
        (term(expression("cores", "Gt", "64")), False),
        (term(expression("cores", "Lt", "65")), True),
        (term(expression("zone", "Lt", "65")), False),
        (term(expression("rack", "Gt", "0")), False),
        (term(expression("zone", "In", "a"), expression("cores", "Lt", "8")), False),
        (term(), False),
        (term(fields=[expression("metadata.name", "In", "n1")]), True),
        (term(fields=[expression("metadata.name", "NotIn", "n1")]), False),
        (term(expression("zone", "In", "a"), fields=[expression("metadata.name", "In", "n2")]), False),
    ]
    for case, expected in cases:
        assert matches_node_selector(NodeSelector(node_selector_terms=[case]), labels, "n1") is expected, case
    either = NodeSelector(node_selector_terms=[term(expression("zone", "In", "z")), term(expression("gpu", "Exists"))])
    assert matches_node_selector(either, labels, "n1")
    assert not matches_node_selector(NodeSelector(), labels, "n1")


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (term(expression("zone", "Near", "a")), "nodeSelectorTerms[0].matchExpressions[0].operator"),
        (term(expression("cores", "Gt", "many")), 'must be a whole number for operator Gt, got "many"'),
        (term(expression("cores", "Gt", "1", "2")), "must have exactly one element"),
        (term(expression("a b", "Exists")), 'key "a b"'),
        (term(fields=[expression("spec.x", "In", "a")]), "matchFields[0].key: must be metadata.name"),
        (term(fields=[expression("metadata.name", "Exists")]), "must be In or NotIn"),
        (term(fields=[expression("metadata.name", "In", "a", "b")]), "exactly one element, got 2"),
    ],
)
def test_bad_node_selectors(bad: NodeSelectorTerm, message: str) -> None:
    with pytest.raises(SelectorError) as caught:
        compile_node_selector(NodeSelector(node_selector_terms=[bad]))
    assert message in str(caught.value)


def test_pod_against_node() -> None:
    required = NodeSelector(node_selector_terms=[term(expression("zone", "In", "a"))])
    spec = PodSpec(node_selector={"pool": "gpu"}, affinity=Affinity(node_affinity=NodeAffinity(required=required)))
    assert matches_node(spec, {"pool": "gpu", "zone": "a"}, "n")
    assert not matches_node(spec, {"pool": "cpu", "zone": "a"}, "n")
    assert not matches_node(spec, {"pool": "gpu", "zone": "b"}, "n")
    assert matches_node(PodSpec(), {}, "n")


def test_preferred_terms_that_change_nothing_are_left_out() -> None:
    preferred = [
        PreferredSchedulingTerm(weight=5, preference=term(expression("zone", "In", "a"))),
        PreferredSchedulingTerm(weight=0, preference=term(expression("zone", "In", "b"))),
        PreferredSchedulingTerm(weight=9, preference=term()),
    ]
    compiled = compile_preferred(preferred)
    assert [weight for weight, _ in compiled] == [5]
    assert compiled[0][1].matches({"zone": "a"}, "n")


def test_tolerations() -> None:
    taint = Taint(key="gpu", value="a100", effect="NoSchedule")
    cases = [
        (Toleration(key="gpu", value="a100", effect="NoSchedule"), True),
        (Toleration(key="gpu", value="a100"), True),
        (Toleration(key="gpu", operator="", value="a100"), True),
        (Toleration(key="gpu", value="h100"), False),
        (Toleration(key="gpu", operator="Exists"), True),
        (Toleration(key="gpu", operator="Exists", effect="NoExecute"), False),
        (Toleration(operator="Exists"), True),
        (Toleration(key="cpu", operator="Exists"), False),
        (Toleration(key="gpu", operator="Sometimes", value="a100"), False),
    ]
    for toleration, expected in cases:
        assert tolerates(toleration, taint) is expected, toleration
    soft = Taint(key="old", effect=PREFER_NO_SCHEDULE)
    assert untolerated([soft], []) is None
    assert untolerated([soft, taint], []) == taint
    assert untolerated([soft, taint], [Toleration(operator="Exists")]) is None
    assert untolerated([soft], [], (PREFER_NO_SCHEDULE,)) == soft


@given(
    st.lists(
        st.sampled_from(
            ["a", "b", "in", "notin", "x/y", "5", "=", "==", "!=", "!", "(", ")", ",", ">", "<", " ", "-", "é"]
        ),
        max_size=10,
    )
)
def test_any_text_is_a_selector_or_a_selector_error(parts: list[str]) -> None:
    text = "".join(parts)
    for parse in (parse_label_selector, parse_field_selector):
        try:
            parse(text).matches({"a": "b"})
        except SelectorError as error:
            assert text in str(error)


_KEYS = st.sampled_from("abc")
_VALUES = st.sampled_from(["", "1", "5", "x", "-3"])
_TERMS = st.one_of(
    st.builds(lambda k, v: f"{k} in ({','.join(v)})", _KEYS, st.lists(st.sampled_from(["1", "5", "x"]), min_size=1)),
    st.builds(lambda k, v: f"{k} notin ({','.join(v)})", _KEYS, st.lists(st.sampled_from(["1", "5"]), min_size=1)),
    st.builds(lambda k, sign, n: f"{k}{sign}{n}", _KEYS, st.sampled_from("<>"), st.integers(0, 6)),
    st.builds(lambda sign, k: sign + k, st.sampled_from(["", "!"]), _KEYS),
)


@given(st.lists(_TERMS, max_size=20), st.lists(st.dictionaries(_KEYS, _VALUES), min_size=1, max_size=8))
def test_many_terms_say_what_few_say(terms: list[str], objects: list[dict[str, str]]) -> None:
    selector = parse_label_selector(",".join(terms * 3))
    for labels in objects:
        assert matcher(selector)(labels) is selector.matches(labels)
