"""Messages: what is written is read back, older and newer services understand each other, broken bodies are named."""

import re
import types
from typing import Any, get_args, get_origin

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koord.contracts.catalog import CATALOG
from koord.contracts.codec import ContractError, decode, decode_decision, encode
from koord.contracts.decisions import KINDS, MAX_NOTE, Bind, Delete, EventNote, ObjectRef, RecordEvents
from koord.contracts.results import Result
from koord.contracts.subjects import SubjectError, Subjects
from tests.contracts.samples import FULL, MINIMAL

BODIES = {kind.name: kind.body for kind in CATALOG if kind.body is not None}


def test_every_message_of_the_catalogue_has_its_examples() -> None:
    assert set(FULL) == set(MINIMAL) == set(BODIES)
    for name, message in (*FULL.items(), *MINIMAL.items()):
        assert type(message) is BODIES[name]
    assert {type_.__name__ for type_ in KINDS} < set(BODIES)


@pytest.mark.parametrize("name", sorted(BODIES))
def test_messages_survive_the_wire(name: str) -> None:
    for message in (FULL[name], MINIMAL[name]):
        assert decode(type(message), encode(message)) == message
        if type(message) in KINDS:
            assert decode_decision(encode(message)) == message


def _structs(type_: object) -> list[type[msgspec.Struct]]:
    """The struct types inside a field's type."""
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return [type_]
    if get_origin(type_) is not None or isinstance(type_, types.UnionType):
        return [struct for argument in get_args(type_) for struct in _structs(argument)]
    return []


def _newer(type_: type[msgspec.Struct], value: dict[str, Any]) -> dict[str, Any]:
    """The same message as a later version might send it: with fields nobody here knows, at every depth."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(type_)}
    result: dict[str, Any] = {"invented": {"deep": [1, {"x": None}]}, "zz": b"\x00"}
    for key, inner in value.items():
        structs = _structs(fields[key].type) if key in fields else []
        if structs and isinstance(inner, dict):
            inner = _newer(structs[0], inner)
        elif structs and isinstance(inner, list):
            inner = [_newer(structs[0], item) for item in inner]
        result[key] = inner
    return result


def _older(type_: type[msgspec.Struct], value: dict[str, Any]) -> dict[str, Any]:
    """The same message as an earlier version might send it: without any field that has a default."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(type_)}
    return {key: inner for key, inner in value.items() if key not in fields or fields[key].required}


@pytest.mark.parametrize("name", sorted(BODIES))
def test_services_upgrade_one_by_one(name: str) -> None:
    full = FULL[name]
    plain = msgspec.msgpack.decode(encode(full))
    assert decode(type(full), msgspec.msgpack.encode(_newer(type(full), plain))) == full
    older = decode(type(full), msgspec.msgpack.encode(_older(type(full), plain)))
    for field in msgspec.structs.fields(type(full)):
        if not field.required:
            default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
            assert getattr(older, field.name) == default


@pytest.mark.parametrize("name", sorted(BODIES))
def test_messages_are_versioned_but_a_refusal(name: str) -> None:
    if name != "Refusal":
        assert getattr(MINIMAL[name], "v", None) == 1


@pytest.mark.parametrize("name", sorted(BODIES))
def test_every_truncation_is_an_error_that_names_the_message(name: str) -> None:
    body = encode(FULL[name])
    for length in range(len(body)):
        with pytest.raises(ContractError, match=f"^{name}: "):
            decode(type(FULL[name]), body[:length])
        if type(FULL[name]) in KINDS:
            with pytest.raises(ContractError, match=r"^Decision: "):
                decode_decision(body[:length])


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_no_bytes_raise_anything_but_a_contract_error(body: bytes) -> None:
    for read in (decode_decision, lambda data: decode(Result, data)):
        try:
            read(body)
        except ContractError as error:
            assert str(error)


def test_a_body_that_nests_without_end_is_a_contract_error() -> None:
    body = b"\x83\xa4kind\xa6create\xa2id\xa1d\xa1x" + b"\x91" * 100_000 + b"\xc0"
    with pytest.raises(ContractError, match="recursion"):
        decode_decision(body)


def test_errors_name_the_field_and_the_rule() -> None:
    broken = msgspec.msgpack.encode({"kind": "bind", "id": "c", "claim": {"claim": "c", "token": "x", "epoch": 1}})
    with pytest.raises(ContractError, match=r"Expected `int`, got `str` - at `\$\.claim\.token`"):
        decode_decision(broken)
    with pytest.raises(ContractError, match="kind"):
        decode_decision(msgspec.msgpack.encode({"kind": "conquer", "id": "x"}))
    with pytest.raises(ContractError, match="missing required field `members`"):
        decode(
            Bind, msgspec.msgpack.encode({"kind": "bind", "id": "c", "claim": {"claim": "", "token": 1, "epoch": 1}})
        )


def test_a_delete_is_no_bind() -> None:
    with pytest.raises(ContractError):
        decode(Bind, encode(Delete("d", ObjectRef("pods_core", "a", "b"))))


@pytest.mark.parametrize("cluster", ["", "A", "a.b", "a b", "-a", "a-", "a" * 64, "a*", ">"])
def test_a_cluster_that_is_no_dns_label_is_refused(cluster: str) -> None:
    with pytest.raises(SubjectError, match="cluster"):
        Subjects(cluster)


def test_subjects_of_one_cluster_lie_below_its_root() -> None:
    subjects = Subjects("east")
    made = [
        subjects.state("pods_core", "default", "a.b"),
        subjects.state_all,
        subjects.decision("queue", "create"),
        subjects.decision_all,
        subjects.result("queue", "d.1"),
        subjects.ledger("epoch"),
        subjects.gang("ready", "default", "g"),
        subjects.quota_runtime(""),
        subjects.ask("scheduler", "explain"),
    ]
    assert all(subject.startswith("koord.east.") for subject in made)
    assert made[0] == "koord.east.state.pods_core.default.a_b"
    assert made[4] == "koord.east.result.queue.d_1"


@pytest.mark.parametrize("text", ["", " ", "a b", "x\0y", "line\r\nPUB other 0", ">", "*", "a.b.c", "é☃", "h" * 9000])
def test_whatever_comes_from_outside_is_one_token(text: str) -> None:
    """A decision's id and a gang's name may hold anything; a subject may not."""
    subjects = Subjects("east")
    for subject, tokens in ((subjects.result("queue", text), 5), (subjects.gang("ready", text, text), 6)):
        parts = subject.split(".")
        assert len(parts) == tokens
        assert all(parts)
        assert not re.search(r"[\s\0*>]", subject)
        assert len(subject) < 1000


def test_the_text_of_an_event_is_cut_where_the_api_would_refuse_it() -> None:
    target = ObjectRef("pods_core", "ns", "p")
    whole, long = (EventNote(target, "Pod", "v1", "Warning", "Broken", "x" * size) for size in (MAX_NOTE, 10**6))
    assert whole.note == "x" * MAX_NOTE
    assert long.note == "x" * (MAX_NOTE - 1) + "…"
    # What a service of before sends is cut as it is read.
    plain = msgspec.to_builtins(RecordEvents("1", [whole]))
    plain["events"][0]["note"] = "x" * 10**6
    assert decode(RecordEvents, msgspec.msgpack.encode(plain)).events == [long]
    assert len(encode(RecordEvents("1", [long] * 1000))) < 8 << 20
