"""What extenders answer: read as upstream reads it, and nothing else gets through."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.scheduler.extenders import wire
from koord.scheduler.extenders.wire import Filtered, Victims, WireError

ASKED = ("n0", "n1", "n2")


def filtered(answer: Any, *, by_name: bool = True) -> Filtered | str:
    return wire.read_filter(json.dumps(answer).encode(), ASKED, by_name=by_name)


def test_a_filter_answers_with_names_or_nodes_and_keys_in_any_case() -> None:
    assert filtered({"NodeNames": ["n2", "n0", "n2"]}) == (("n2", "n0"), {}, {})
    refusals = {"failedNodes": {"n1": "a"}, "failedAndUnresolvableNodes": {"n2": "b"}}
    assert filtered({"nodenames": ["n0"], **refusals}) == (("n0",), {"n1": "a"}, {"n2": "b"})
    nodes = {"items": [{"metadata": {"name": "n1", "labels": {}}, "spec": {}}]}
    assert filtered({"Nodes": nodes, "NodeNames": ["n0"]}, by_name=False) == (("n1",), {}, {})
    # Who knows the nodes itself may answer with nodes as well, when it names none.
    assert filtered({"nodes": nodes, "NodeNames": None}) == (("n1",), {}, {})


def test_nothing_said_is_nothing_left() -> None:
    assert filtered({}) == ((), {}, {})
    assert filtered(None) == ((), {}, {})
    assert filtered({"Nodes": {"items": None}, "NodeNames": None, "FailedNodes": None, "Error": ""}) == ((), {}, {})


def test_an_error_is_told_as_it_is() -> None:
    assert filtered({"NodeNames": ["n0"], "Error": "out of luck"}) == "out of luck"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "is no ExtenderFilterResult"),
        (b"<html>", "is no ExtenderFilterResult"),
        (b"[]", "is no ExtenderFilterResult"),
        (b'{"NodeNames":["n0"]} trailing', "is no ExtenderFilterResult"),
        (b'{"NodeNames":"n0"}', "NodeNames: "),
        (b'{"NodeNames":[1]}', "NodeNames: "),
        (b'{"FailedNodes":{"n0":1}}', "FailedNodes: "),
        (b'{"Error":{}}', "Error: "),
        (b'{"Nodes":{"items":[{"metadata":{}}]}}', "Nodes: "),
        (b'{"NodeNames":["n7"]}', "claims a filtered node 'n7' which is not found in the input node list"),
        (b'{"NodeNames":["\xff"]}', "NodeNames: "),
    ],
)
def test_what_is_no_answer_is_named(body: bytes, text: str) -> None:
    with pytest.raises(WireError) as error:
        wire.read_filter(body, ASKED, by_name=True)
    assert text in str(error.value)


def test_priorities() -> None:
    body = b'[{"Host":"a","Score":3},{"host":"b","SCORE":-4},{"Host":"c"},{"Host":"a","Score":2},null]'
    assert wire.read_priorities(body) == {"a": 5, "b": -4, "c": 0, "": 0}
    assert wire.read_priorities(b"null") == {}
    assert wire.read_priorities(b'[{"Host":"a","Score":9223372036854775807}]') == {"a": wire.MOST_SCORE}
    for bad in (b"", b"{}", b'[{"Host":"a","Score":"9"}]', b'[{"Host":"a","Score":1.5}]', b"[1]"):
        with pytest.raises(WireError):
            wire.read_priorities(bad)


def test_bindings_and_victims() -> None:
    assert wire.read_binding(b'{"Error":""}') == ""
    assert wire.read_binding(b'{"error":"no"}') == "no"
    body = b'{"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"1"},{"uid":"2"}],"NumPDBViolations":1},"b":null,"c":{}}}'
    assert wire.read_victims(body) == {"a": Victims(("1", "2"), 1), "b": Victims((), 0), "c": Victims((), 0)}
    assert wire.read_victims(b"{}") == {}
    with pytest.raises(WireError):
        wire.read_victims(b'{"NodeNameToMetaVictims":[]}')


def test_questions_have_the_fields_of_upstreams_structs() -> None:
    pod = b'{"metadata":{"name":"p"}}'
    named = json.loads(wire.args_by_name(pod, ["n0"]))
    assert named == {"Pod": {"metadata": {"name": "p"}}, "Nodes": None, "NodeNames": ["n0"]}
    whole = json.loads(wire.args_by_object(pod, [b'{"a":1}', b'{"b":2}']))
    assert whole["Nodes"] == {"metadata": {}, "items": [{"a": 1}, {"b": 2}]}
    assert whole["NodeNames"] is None
    assert json.loads(wire.binding_args("p", "ns", "u", "n0")) == {
        "PodName": "p",
        "PodNamespace": "ns",
        "PodUID": "u",
        "Node": "n0",
    }
    victims = {"n0": Victims(("1", "2"), 1)}
    meta = {"Pods": [{"UID": "1"}, {"UID": "2"}], "NumPDBViolations": 1}
    assert json.loads(wire.preemption_args_by_uid(pod, victims))["NodeNameToMetaVictims"] == {"n0": meta}
    told = json.loads(wire.preemption_args_by_object(pod, victims, {"1": b'{"metadata":{"uid":"1","name":"x"}}'}))
    assert told["NodeNameToVictims"]["n0"]["Pods"] == [
        {"metadata": {"uid": "1", "name": "x"}},
        {"metadata": {"uid": "2"}},
    ]


_KEYS = (
    *("NodeNames", "nodes", "Items", "items", "metadata", "name", "FailedNodes", "FailedAndUnresolvableNodes", "Error"),
    *("Host", "Score", "NodeNameToMetaVictims", "Pods", "UID", "NumPDBViolations", "n0"),
)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(_KEYS),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.one_of(st.binary(max_size=60), _json.map(lambda value: json.dumps(value).encode())), st.booleans())
def test_any_answer_is_read_or_named(body: bytes, by_name: bool) -> None:
    for read in (
        lambda: wire.read_filter(body, ASKED, by_name=by_name),
        lambda: wire.read_priorities(body),
        lambda: wire.read_binding(body),
        lambda: wire.read_victims(body),
    ):
        try:
            found = read()
        except WireError:
            continue
        if isinstance(found, Filtered):
            assert set(found.passed) <= set(ASKED)
        elif isinstance(found, dict):
            assert all(isinstance(value, Victims) or abs(value) <= wire.MOST_SCORE for value in found.values())
