"""What is wrong with a configuration, by field path, in the words of the Kubernetes API's field errors."""

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_SHOWN = 200


class Problem(NamedTuple):
    """One thing that is wrong: where, and what."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}" if self.path else self.text


class ConfigError(ValueError):
    """A configuration that cannot be used; every problem names its field and the rule."""

    def __init__(self, problems: Iterable[Problem], source: str = "") -> None:
        self.problems = tuple(problems)
        self.source = source
        where = f"{source}: " if source else ""
        super().__init__(where + "; ".join(str(problem) for problem in self.problems))


def unreadable(error: OSError | UnicodeDecodeError) -> str:
    """Why a file could not be read, in words."""
    if isinstance(error, UnicodeDecodeError):
        return "is not text in UTF-8"
    return error.strerror or str(error)


def invalid(path: str, value: object, rule: str) -> Problem:
    """``path: Invalid value: VALUE: rule``."""
    return Problem(path, f"Invalid value: {shown(value)}: {rule}")


def required(path: str, rule: str = "") -> Problem:
    """``path: Required value: rule``."""
    return Problem(path, f"Required value: {rule}" if rule else "Required value")


def duplicate(path: str, value: object) -> Problem:
    """``path: Duplicate value: VALUE``."""
    return Problem(path, f"Duplicate value: {shown(value)}")


def forbidden(path: str, rule: str) -> Problem:
    """``path: Forbidden: rule``."""
    return Problem(path, f"Forbidden: {rule}")


def not_found(path: str, value: object) -> Problem:
    """``path: Not found: VALUE``."""
    return Problem(path, f"Not found: {shown(value)}")


def unsupported(path: str, value: object, supported: Sequence[str]) -> Problem:
    """``path: Unsupported value: VALUE: supported values: "A", "B"``."""
    values = ", ".join(f'"{text}"' for text in supported)
    return Problem(path, f"Unsupported value: {shown(value)}: supported values: {values}")


def shown(value: object) -> str:
    """A value as JSON has it, cut when it is long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
