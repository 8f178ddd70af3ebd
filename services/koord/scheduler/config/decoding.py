"""Plain values to typed structs, every problem collected with its path: unknown fields, wrong types, numbers too large.

Not msgspec's own conversion: that ends at the first problem and does not name keys of maps.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from math import isfinite
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Self, TypeVar, Union, get_args, get_origin

import msgspec

from koord.kube.protocol.gotext import DurationError, go_duration
from koord.kube.quantity import Quantity, QuantityError, parse
from koord.scheduler.config.errors import Problem, invalid, unsupported
from koord.scheduler.config.text import child

T = TypeVar("T")

Int32 = Annotated[int, 32]
Int64 = Annotated[int, 64]
Seconds = Annotated[float, "duration"]
"""Seconds; in the file a Go duration such as ``1m30s``."""


class Args(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Arguments of a plugin. In the file they also have ``apiVersion`` and ``kind``."""

    def completed(self) -> Self:
        """With the defaults that depend on other fields; idempotent."""
        return self

    def problems(self, path: str) -> Iterator[Problem]:
        """What is not valid once completed; ``path`` is that of the arguments."""
        return iter(())


class Failed:
    """Stands for a value that could not be decoded; the problem is recorded."""


FAILED = Failed()


class Decoder:
    """Decodes values; problems are in ``problems``."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def struct(self, type_: type[T], value: object, path: str) -> T | None:
        """A struct of ``type_`` from a mapping; None if anything in it is wrong."""
        before = len(self.problems)
        found = self._struct(type_, value, path)
        return found if isinstance(found, type_) and len(self.problems) == before else None

    def what_can_be(self, type_: type[T], value: Mapping[str, Any]) -> T:
        """A struct whose fields all have defaults: fields that are wrong are as if they were not given."""
        found = self._struct(type_, value, "")
        assert isinstance(found, type_), type_
        return found

    def _struct(self, type_: Any, value: object, path: str) -> object:
        if not isinstance(value, Mapping):
            return self._wrong(path, value, "must be a mapping")
        fields = _fields(type_)
        given: dict[str, Any] = {}
        for key, inner in value.items():
            field = fields.get(key)
            if field is None:
                known = ", ".join(fields) or "none"
                self.problems.append(Problem(child(path, key), f"unknown field; known: {known}"))
                continue
            decoded = self._value(field[1], inner, child(path, key))
            if decoded is not FAILED:
                given[field[0]] = decoded
        try:
            return type_(**given)
        except TypeError:  # a required field: given, but wrong (reported), or not given
            missing = [key for key, (name, _) in fields.items() if name not in given and key not in value]
            self.problems += [Problem(child(path, key), "Required value") for key in missing]
            return FAILED

    def _value(self, type_: Any, value: object, path: str) -> object:
        if type_ is Any:
            return value
        if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
            return self._struct(type_, value, path)
        origin, arguments = get_origin(type_), get_args(type_)
        if origin is Annotated:
            return self._seconds(value, path) if arguments[1] == "duration" else self._int(arguments[1], value, path)
        if origin in (Union, UnionType):
            members = [member for member in arguments if member is not NoneType]
            assert len(members) == 1, f"{path}: a field has one type, and may be absent"
            return self._value(members[0], value, path)
        if origin in (tuple, list):
            return self._list(origin, arguments[0], value, path)
        if origin is dict:
            return self._map(arguments[1], value, path)
        if origin is Literal:
            return value if value in arguments else self._problem(unsupported(path, value, arguments))
        return self._scalar(type_, value, path)

    def _scalar(self, type_: Any, value: object, path: str) -> object:
        if type_ is str:
            return value if isinstance(value, str) else self._wrong(path, value, "must be text")
        if type_ is bool:
            return value if isinstance(value, bool) else self._wrong(path, value, "must be true or false")
        if type_ is int:
            return self._int(64, value, path)
        if type_ is float:
            if isinstance(value, bool) or not isinstance(value, int | float):
                return self._wrong(path, value, "must be a number")
            return float(value) if abs(value) < 1e300 and isfinite(value) else self._wrong(path, value, "is too large")
        assert type_ is Quantity, f"{path}: no reader for {type_}"
        try:
            return parse(value)  # type: ignore[arg-type]
        except QuantityError as error:
            return self._problem(Problem(path, f"Invalid value: {error}"))

    def _int(self, bits: int, value: object, path: str) -> object:
        if isinstance(value, bool) or not isinstance(value, int):
            return self._wrong(path, value, "must be a whole number")
        if not -(1 << bits - 1) <= value < 1 << bits - 1:
            return self._wrong(path, value, f"must fit in {bits} bits")
        return value

    def _seconds(self, value: object, path: str) -> object:
        if not isinstance(value, str):
            return self._wrong(path, value, "must be a duration in text, like 1m30s")
        try:
            return go_duration(value) / 1e9
        except DurationError as error:
            return self._problem(Problem(path, f"Invalid value: {error}"))

    def _list(self, origin: Any, type_: Any, value: object, path: str) -> object:
        if not isinstance(value, list):
            return self._wrong(path, value, "must be a list")
        items = [self._value(type_, item, f"{path}[{index}]") for index, item in enumerate(value)]
        return FAILED if any(item is FAILED for item in items) else origin(items)

    def _map(self, type_: Any, value: object, path: str) -> object:
        if not isinstance(value, Mapping):
            return self._wrong(path, value, "must be a mapping")
        items = {key: self._value(type_, item, f"{path}[{key}]") for key, item in value.items()}
        return FAILED if any(item is FAILED for item in items.values()) else items

    def _wrong(self, path: str, value: object, rule: str) -> Failed:
        return self._problem(invalid(path, value, rule))

    def _problem(self, problem: Problem) -> Failed:
        self.problems.append(problem)
        return FAILED


@lru_cache(maxsize=256)
def _fields(type_: Any) -> dict[str, tuple[str, Any]]:
    """Name in the file to name and type of the attribute."""
    return {field.encode_name: (field.name, field.type) for field in msgspec.structs.fields(type_)}
