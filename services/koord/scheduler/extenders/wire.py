"""What goes to an extender and what comes back: the types of kube-scheduler's ``extender/v1``, as JSON. Pure.

Field names are those of upstream's Go structs (``NodeNames``). Go reads keys whatever their case, and extenders rely on
it, so answers are read like that here, too. A null is a field that is not given.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

MOST_SCORE = 1 << 48
"""Scores are cut to +-this: far beyond what a weight can make of 0..10, and sums of them stay whole numbers."""
_NULL = b"null"
_encode = msgspec.json.Encoder().encode
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

T = TypeVar("T")


class WireError(ValueError):
    """An answer that is not what the protocol says; names the field."""


class Filtered(NamedTuple):
    """What a filter leaves of the nodes that it was shown, and why it refuses others."""

    passed: tuple[str, ...]
    failed: Mapping[str, str]
    unresolvable: Mapping[str, str]


class Victims(NamedTuple):
    """Pods of one node that have to go (their uids), and how many of them no disruption budget has room for."""

    uids: tuple[str, ...]
    violations: int


class _Name(msgspec.Struct):
    name: str


class _Named(msgspec.Struct):
    metadata: _Name


class _Nodes(msgspec.Struct):
    items: list[_Named] | None = None


# Questions ------------------------------------------------------------------------------------------------------------


def args_by_name(pod: bytes, names: Sequence[str]) -> bytes:
    """``ExtenderArgs`` for an extender that knows the nodes itself."""
    return b'{"Pod":%s,"Nodes":null,"NodeNames":%s}' % (pod, _encode(names))


def args_by_object(pod: bytes, nodes: Iterable[bytes]) -> bytes:
    """``ExtenderArgs`` with whole nodes."""
    return b'{"Pod":%s,"Nodes":{"metadata":{},"items":[%s]},"NodeNames":null}' % (pod, b",".join(nodes))


def binding_args(name: str, namespace: str, uid: str, node: str) -> bytes:
    """``ExtenderBindingArgs``."""
    return _encode({"PodName": name, "PodNamespace": namespace, "PodUID": uid, "Node": node})


def preemption_args_by_uid(pod: bytes, victims: Mapping[str, Victims]) -> bytes:
    """``ExtenderPreemptionArgs`` for an extender that knows the pods itself."""
    nodes = {
        node: {"Pods": [{"UID": uid} for uid in found.uids], "NumPDBViolations": found.violations}
        for node, found in victims.items()
    }
    return b'{"Pod":%s,"NodeNameToVictims":null,"NodeNameToMetaVictims":%s}' % (pod, _encode(nodes))


def preemption_args_by_object(pod: bytes, victims: Mapping[str, Victims], bodies: Mapping[str, bytes]) -> bytes:
    """``ExtenderPreemptionArgs`` with whole pods, ``bodies`` by uid; one without a body is told by its uid alone."""
    nodes: list[bytes] = []
    for node, found in victims.items():
        pods = b",".join(bodies.get(uid) or _encode({"metadata": {"uid": uid}}) for uid in found.uids)
        nodes.append(b'%s:{"Pods":[%s],"NumPDBViolations":%d}' % (_encode(node), pods, found.violations))
    return b'{"Pod":%s,"NodeNameToVictims":{%s},"NodeNameToMetaVictims":null}' % (pod, b",".join(nodes))


# Answers --------------------------------------------------------------------------------------------------------------


def read_filter(body: bytes, asked: Sequence[str], *, by_name: bool) -> Filtered | str:
    """An ``ExtenderFilterResult``, or the error it tells. WireError: no such, or it names a node nobody asked about.

    As upstream, an answer with neither nodes nor names leaves none.
    """
    fields = _object(body, "ExtenderFilterResult")
    error: str | None = _as(fields, "Error", str)
    if error:
        return error
    names: list[str] | None = _as(fields, "NodeNames", list[str]) if by_name else None
    field = "NodeNames"
    if names is None:
        nodes = _as(fields, "Nodes", _Nodes)
        names = [item.metadata.name for item in nodes.items or ()] if nodes is not None else []
        field = "Nodes"
    shown = frozenset(asked)
    for name in names:
        if name not in shown:
            raise WireError(f"{field}: claims a filtered node {name[:253]!r} which is not found in the input node list")
    failed = _as(fields, "FailedNodes", dict[str, str]) or {}
    unresolvable = _as(fields, "FailedAndUnresolvableNodes", dict[str, str]) or {}
    return Filtered(tuple(dict.fromkeys(names)), failed, unresolvable)


def read_priorities(body: bytes) -> dict[str, int]:
    """A ``HostPriorityList`` as score by node; a node that is in it twice has the sum. WireError: it is none."""
    if body.strip() in (b"", _NULL):
        if not body.strip():
            raise WireError("is empty")
        return {}
    scores: dict[str, int] = {}
    for number, item in enumerate(_decode(body, list[msgspec.Raw], "HostPriorityList")):
        fields = _object(bytes(item), f"HostPriorityList[{number}]")
        host = _as(fields, "Host", str) or ""
        score = _as(fields, "Score", int) or 0
        scores[host] = max(-MOST_SCORE, min(MOST_SCORE, scores.get(host, 0) + score))
    return scores


def read_binding(body: bytes) -> str:
    """An ``ExtenderBindingResult``: the error it tells, empty if there is none. WireError: it is none."""
    return _as(_object(body, "ExtenderBindingResult"), "Error", str) or ""


def read_victims(body: bytes) -> dict[str, Victims]:
    """An ``ExtenderPreemptionResult``: the victims by node that are left. WireError: it is none."""
    nodes = _as(_object(body, "ExtenderPreemptionResult"), "NodeNameToMetaVictims", dict[str, msgspec.Raw])
    found: dict[str, Victims] = {}
    for node, raw in (nodes or {}).items():
        if bytes(raw) == _NULL:
            found[node] = Victims((), 0)
            continue
        where = f"NodeNameToMetaVictims[{node[:253]}]"
        fields = _object(bytes(raw), where)
        pods: list[msgspec.Raw] = _as(fields, "Pods", list[msgspec.Raw]) or []
        uids: list[str] = [_as(_object(bytes(pod), f"{where}.Pods"), "UID", str) or "" for pod in pods]
        found[node] = Victims(tuple(dict.fromkeys(uids)), _as(fields, "NumPDBViolations", int) or 0)
    return found


def _object(body: bytes, what: str) -> dict[str, msgspec.Raw]:
    """Fields by their names in small letters."""
    if body.strip() == _NULL:
        return {}
    try:
        return {key.lower(): value for key, value in _fields(body).items()}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"is no {what}: {error}") from error


def _as(fields: Mapping[str, msgspec.Raw], name: str, type_: Any) -> Any:
    raw = fields.get(name.lower())
    if raw is None or bytes(raw) == _NULL:
        return None
    return _decode(bytes(raw), type_, name)


def _decode(body: bytes, type_: type[T], what: str) -> T:
    try:
        return msgspec.json.decode(body, type=type_)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"{what}: {error}") from error
