"""What the operations of CEL mean: the functions that a compiled match condition is made of."""

from collections.abc import Callable
from typing import Any

STEPS = 100_000
_INT = 1 << 63

Values = dict[str, Any]
Node = Callable[["Run"], Any]


class EvaluationError(Exception):
    """An expression that has no value for this request."""


class Run:
    """One evaluation: the variables, and what steps are left."""

    __slots__ = ("steps", "values")

    def __init__(self, values: Values) -> None:
        self.values = values
        self.steps = STEPS

    def step(self) -> None:
        """Count a step; too many are an error, as in Kubernetes."""
        self.steps -= 1
        if self.steps < 0:
            raise EvaluationError("operation cancelled: actual cost limit exceeded")


def constant(value: Any) -> Node:
    """A value."""
    return lambda run: value


class Select:
    """`node.name`, which may also be asked for its presence."""

    def __init__(self, node: Node, name: str) -> None:
        self._node = node
        self._name = name

    def __call__(self, run: Run) -> Any:
        """The member; an error when it is not there."""
        target = self._node(run)
        if not isinstance(target, dict) or self._name not in target:
            raise EvaluationError(f"no such key: {self._name}")
        return target[self._name]

    def present(self, run: Run) -> bool:
        """Whether the member is there."""
        target = self._node(run)
        if not isinstance(target, dict):
            raise EvaluationError("no such overload")
        return self._name in target


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise EvaluationError("no such overload")
    return value


def choice(test: Node, yes: Node, no: Node) -> Node:
    """`test ? yes : no`."""
    return lambda run: yes(run) if _truth(test(run)) else no(run)


def negation(node: Node) -> Node:
    """`!node`."""
    return lambda run: not _truth(node(run))


def minus(node: Node) -> Node:
    """`-node`."""
    return lambda run: number(-_numeric(node(run)))


def logic(left: Node, right: Node, *, decisive: bool) -> Node:
    """`||` or `&&`: a side that decides wins, also over an error of the other."""

    def run_it(run: Run) -> bool:
        try:
            first = _truth(left(run))
        except EvaluationError:
            if _truth(right(run)) is decisive:
                return decisive
            raise
        return first if first is decisive else _truth(right(run))

    return run_it


def binary(operation: Callable[[Any, Any], Any], left: Node, right: Node) -> Node:
    """An operation on two values."""

    def run_it(run: Run) -> Any:
        run.step()
        return operation(left(run), right(run))

    return run_it


def equal(left: Any, right: Any) -> bool:
    """Equality of CEL: numbers by value, and a boolean is no number."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(equal, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(equal(value, right[key]) for key, value in left.items())
    return bool(left == right)


def _numeric(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise EvaluationError("no such overload")
    return value


def number(value: Any) -> Any:
    """A number that an int64 holds."""
    if isinstance(value, int) and not -_INT <= value < _INT:
        raise EvaluationError("integer overflow")
    return value


def _less(left: Any, right: Any) -> bool:
    if isinstance(left, str) and isinstance(right, str):
        return left < right
    if isinstance(left, bool) and isinstance(right, bool):
        return left < right
    return bool(_numeric(left) < _numeric(right))


def _within(value: Any, container: Any) -> bool:
    if isinstance(container, list):
        return any(equal(value, item) for item in container)
    if isinstance(container, dict):
        return isinstance(value, str) and value in container
    raise EvaluationError("no such overload")


def index(target: Any, key: Any) -> Any:
    """`target[key]`."""
    if isinstance(target, dict):
        if not isinstance(key, str) or key not in target:
            raise EvaluationError(f"no such key: {key}")
        return target[key]
    if isinstance(target, list) and isinstance(key, int) and not isinstance(key, bool):
        if not 0 <= key < len(target):
            raise EvaluationError(f"index out of bounds: {key}")
        return target[key]
    raise EvaluationError("no such overload")


def key(value: Any) -> str:
    """The key of a map: a text."""
    if not isinstance(value, str):
        raise EvaluationError("unsupported key type")
    return value


def _add(left: Any, right: Any) -> Any:
    if (isinstance(left, str) and isinstance(right, str)) or (isinstance(left, list) and isinstance(right, list)):
        if len(left) + len(right) > STEPS:
            raise EvaluationError("operation cancelled: actual cost limit exceeded")
        return left + right  # type: ignore[operator]
    return _calculate(left, right, lambda a, b: a + b)


def _calculate(left: Any, right: Any, operation: Callable[[Any, Any], Any]) -> Any:
    if type(_numeric(left)) is not type(_numeric(right)):
        raise EvaluationError("no such overload")
    return number(operation(left, right))


def _divide(left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int):
        if right == 0:
            raise EvaluationError("division by zero")
        # Toward zero, as in Go.
        quotient = abs(left) // abs(right)
        return _calculate(left, right, lambda a, b: quotient if (a < 0) is (b < 0) else -quotient)
    if right == 0:
        raise EvaluationError("division by zero")
    return _calculate(left, right, lambda a, b: a / b)


def _modulo(left: Any, right: Any) -> Any:
    if not isinstance(left, int) or not isinstance(right, int):
        raise EvaluationError("no such overload")
    if right == 0:
        raise EvaluationError("modulus by zero")
    return _calculate(left, right, lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1))


RELATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": equal,
    "!=": lambda left, right: not equal(left, right),
    "<": _less,
    ">": lambda left, right: _less(right, left),
    "<=": lambda left, right: not _less(right, left),
    ">=": lambda left, right: not _less(left, right),
    "in": _within,
}
ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": _add,
    "-": lambda left, right: _calculate(left, right, lambda a, b: a - b),
    "*": lambda left, right: _calculate(left, right, lambda a, b: a * b),
    "/": _divide,
    "%": _modulo,
}


def method(target: Node, name: str, *arguments: Node) -> Node:
    """A function on a value."""

    def run_it(run: Run) -> Any:
        run.step()
        value = target(run)
        if name == "size":
            if isinstance(value, str | list | dict):
                return len(value)
            raise EvaluationError("no such overload")
        other = arguments[0](run)
        if not isinstance(value, str) or not isinstance(other, str):
            raise EvaluationError("no such overload")
        if name == "startsWith":
            return value.startswith(other)
        return value.endswith(other) if name == "endsWith" else other in value

    return run_it


def comprehension(target: Node, name: str, variable: str, test: Node | None, result: Node | None) -> Node:
    """A macro that looks at each item of a list, or each key of a map."""

    def each(run: Run, node: Node, item: Any) -> Any:
        run.step()
        outer, had = run.values.get(variable), variable in run.values
        run.values[variable] = item
        try:
            return node(run)
        finally:
            if had:
                run.values[variable] = outer
            else:
                del run.values[variable]

    def holds(run: Run, item: Any) -> bool:
        return test is None or _truth(each(run, test, item))

    def run_it(run: Run) -> Any:
        items = target(run)
        if not isinstance(items, list | dict):
            raise EvaluationError("no such overload")
        if name in ("all", "exists"):
            decisive, failed = name == "exists", None
            for item in items:
                try:
                    if holds(run, item) is decisive:
                        return decisive
                except EvaluationError as error:
                    failed = error
            if failed is not None:
                raise failed
            return not decisive
        if name == "exists_one":
            return sum(holds(run, item) for item in items) == 1
        kept = [item for item in items if holds(run, item)]
        return kept if result is None else [each(run, result, item) for item in kept]

    return run_it
