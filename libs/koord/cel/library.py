"""Kubernetes' functions as the evaluator wants them declared: once with their exact types, to check expressions by, and
once with what they do, to evaluate them.

For the evaluator a function that is called has one implementation per kind of arguments (list, message, ...), and the
type it answers must not be narrower than what it may answer. So the exact types stand in an environment that is only
checked with, and the other one takes and answers anything.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from cel_expr_python import cel

from koord.cel import network, values
from koord.cel.data import as_data
from koord.cel.opaque import CIDR, FORMAT, IP, QUANTITY, SEMVER, URL

_SIMPLE = {
    "bool": cel.Type.BOOL,
    "int": cel.Type.INT,
    "uint": cel.Type.UINT,
    "double": cel.Type.DOUBLE,
    "string": cel.Type.STRING,
    "bytes": cel.Type.BYTES,
    "duration": cel.Type.DURATION,
    "timestamp": cel.Type.TIMESTAMP,
    "dyn": cel.Type.DYN,
    "null": cel.Type.NULL,
}
_NUMBERS = ("int", "uint", "double")
_ORDERED = (*_NUMBERS, "bool", "string", "bytes", "duration", "timestamp")
Impl = Callable[..., Any]


def _type(text: str) -> Any:
    if text.startswith("list "):
        return cel.Type.List(_type(text[5:]))
    if text == "query":
        return cel.Type.Map(cel.Type.STRING, cel.Type.List(cel.Type.STRING))
    return _SIMPLE.get(text) or cel.Type(text)


def _declared() -> Iterator[tuple[str, bool, tuple[str, ...], str, Impl]]:
    """Every function: name, whether it is a member, parameters, result, what it does."""
    for kind in _ORDERED:
        yield "isSorted", True, (f"list {kind}",), "bool", values.is_sorted
        yield "min", True, (f"list {kind}",), kind, values.smallest
        yield "max", True, (f"list {kind}",), kind, values.largest
    for kind in (*_NUMBERS, "duration"):
        yield "sum", True, (f"list {kind}",), kind, values.total
    yield "indexOf", True, ("list dyn", "dyn"), "int", values.index_of
    yield "lastIndexOf", True, ("list dyn", "dyn"), "int", values.last_index_of
    yield "find", True, ("string", "string"), "string", find
    yield "findAll", True, ("string", "string"), "list string", find_all
    yield "findAll", True, ("string", "string", "int"), "list string", find_all
    yield "quantity", False, ("string",), QUANTITY, values.quantity
    yield "isQuantity", False, ("string",), "bool", values.is_quantity
    yield "sign", False, (QUANTITY,), "int", values.sign
    yield "isInteger", True, (QUANTITY,), "bool", values.is_integer
    yield "asInteger", True, (QUANTITY,), "int", values.as_integer
    yield "asApproximateFloat", True, (QUANTITY,), "double", values.as_float
    for other in (QUANTITY, "int"):
        yield "add", True, (QUANTITY, other), QUANTITY, values.add
        yield "sub", True, (QUANTITY, other), QUANTITY, values.subtract
    for kind in (QUANTITY, SEMVER):
        yield "compareTo", True, (kind, kind), "int", values.compare
        yield "isGreaterThan", True, (kind, kind), "bool", values.greater
        yield "isLessThan", True, (kind, kind), "bool", values.less
    for parameters in (("string",), ("string", "bool")):
        yield "semver", False, parameters, SEMVER, values.semver
        yield "isSemver", False, parameters, "bool", values.is_semver
    yield "major", True, (SEMVER,), "int", values.major
    yield "minor", True, (SEMVER,), "int", values.minor
    yield "patch", True, (SEMVER,), "int", values.patch
    for name in values.FORMATS:
        yield f"format.{name}", False, (), FORMAT, values.named_format(name)
    # An optional list to Kubernetes; one that is absent is empty here, which has no value.
    yield "validate", True, (FORMAT, "string"), "dyn", values.validate
    yield "ip", False, ("string",), IP, network.ip
    yield "ip", True, (CIDR,), IP, network.ip
    yield "isIP", False, ("string",), "bool", network.is_ip
    yield "ip.isCanonical", False, ("string",), "bool", network.is_canonical
    yield "family", True, (IP,), "int", network.family
    yield "isUnspecified", True, (IP,), "bool", network.is_unspecified
    yield "isLoopback", True, (IP,), "bool", network.is_loopback
    yield "isLinkLocalMulticast", True, (IP,), "bool", network.is_link_local_multicast
    yield "isLinkLocalUnicast", True, (IP,), "bool", network.is_link_local_unicast
    yield "isGlobalUnicast", True, (IP,), "bool", network.is_global_unicast
    yield "cidr", False, ("string",), CIDR, network.cidr
    yield "isCIDR", False, ("string",), "bool", network.is_cidr
    for other in (IP, "string"):
        yield "containsIP", True, (CIDR, other), "bool", network.contains_ip
    for other in (CIDR, "string"):
        yield "containsCIDR", True, (CIDR, other), "bool", network.contains_cidr
    yield "masked", True, (CIDR,), CIDR, network.masked
    yield "prefixLength", True, (CIDR,), "int", network.prefix_length
    for kind in (IP, CIDR):
        yield "string", False, (kind,), "string", lambda value: value.text
    yield "url", False, ("string",), URL, network.url
    yield "isURL", False, ("string",), "bool", network.is_url
    yield "getScheme", True, (URL,), "string", network.scheme
    yield "getHost", True, (URL,), "string", network.host
    yield "getHostname", True, (URL,), "string", network.hostname
    yield "getPort", True, (URL,), "string", network.port
    yield "getEscapedPath", True, (URL,), "string", network.escaped_path
    yield "getQuery", True, (URL,), "query", network.query


@cache
def exact() -> Any:
    """The functions with their exact types, to check by. An extension may add to functions that there are already."""
    pairs = [(one, other) for one in _NUMBERS for other in _NUMBERS if one != other]
    # Numbers of different types have an order; the evaluator knows it, only not before it sees them.
    compared = [(sign, False, pair, "bool", _same) for sign in ("_<_", "_<=_", "_>_", "_>=_") for pair in pairs]
    return cel.CelExtension("kubernetes", _made([*_declared(), *compared], exactly=True))


@cache
def working() -> Any:
    """The functions with what they do."""
    answers: list[tuple[str, bool, tuple[str, ...], str, Impl]] = [
        ("hasValue", True, ("list string",), "bool", bool),
        ("value", True, ("list string",), "list string", lambda found: found),
    ]
    return cel.CelExtension("kubernetes", _made([*_declared(), *answers], exactly=False))


def _made(declared: Any, *, exactly: bool) -> list[Any]:
    overloads: dict[str, dict[str, Any]] = {}
    for name, member, parameters, result, impl in declared:
        shown = parameters if exactly else tuple(_kind(parameter) for parameter in parameters)
        key = "_".join((name, *shown, "member" if member else "")).replace(" ", "_")
        overloads.setdefault(name, {}).setdefault(
            key,
            cel.Overload(
                key,
                _type(result) if exactly else cel.Type.DYN,
                [_type(parameter) for parameter in shown],
                member,
                None if exactly else _guarded(impl),
            ),
        )
    return [cel.FunctionDecl(name, list(made.values())) for name, made in overloads.items()]


def _kind(parameter: str) -> str:
    if parameter.startswith("list "):
        return "list dyn"
    # One message stands for all: what is called looks at what it got.
    return QUANTITY if "." in parameter else parameter


def _same(*values_: Any) -> Any:
    """Never called: what is only checked has no implementation."""
    return values_


def _guarded(impl: Impl) -> Impl:
    """An implementation whose errors are CEL's, whatever it is given."""

    def call(*arguments: Any) -> Any:
        try:
            return as_data(impl(*arguments))
        except (TypeError, AttributeError):
            raise ValueError("no such overload") from None

    return call


# --- regular expressions are the evaluator's own: they take time that grows with the text alone


@cache
def _finder() -> Any:
    config = cel.NewEnvConfigFromYaml("extensions:\n  - name: optional\n  - name: regex\n")
    environment = cel.NewEnv(config=config, variables={"text": cel.Type.STRING, "pattern": cel.Type.STRING})
    return environment.compile("regex.extractAll(text, pattern)")


_LITERAL = re.compile(r"\\Q(?s:.)*?(?:\\E|\Z)|\\(?s:.)")
_CLASS = re.compile(r"\[\^?\]?")
_NAMED_CLASS = re.compile(r"\[:\^?[a-z]{1,10}:\]")
_NAMED_GROUP = re.compile(r"\(\?P?<\w+>")


def _uncaptured(pattern: str) -> str:
    """A pattern whose groups capture nothing, so that what is found is the whole. One pass, whatever the pattern."""
    parts: list[str] = []
    at, inside = 0, False
    while at < len(pattern):
        char, part = pattern[at], pattern[at]
        if char == "\\" and (literal := _LITERAL.match(pattern, at)):
            part = literal[0]
        elif inside:
            if named := _NAMED_CLASS.match(pattern, at) if char == "[" else None:
                part = named[0]
            inside = char != "]"
        elif char == "[" and (begin := _CLASS.match(pattern, at)):
            part, inside = begin[0], True
        elif char == "(":
            group = _NAMED_GROUP.match(pattern, at)
            taken = group[0] if group else "("
            parts.append("(?:" if group or pattern[at + 1 : at + 2] != "?" else "(")
            at += len(taken)
            continue
        parts.append(part)
        at += len(part)
    return "".join(parts)


def find_all(text: str, pattern: str, most: int = -1) -> list[str]:
    """What a pattern finds in a text, at most so many."""
    answer = _finder().eval(data={"text": text, "pattern": _uncaptured(pattern)})
    if answer.type() == cel.Type.ERROR:
        raise ValueError(f"Illegal regex: {answer.value()}")
    found: list[str] = answer.plain_value()
    return found if most < 0 else found[:most]


def find(text: str, pattern: str) -> str:
    """What a pattern first finds in a text, or nothing."""
    found = find_all(text, pattern)
    return found[0] if found else ""
