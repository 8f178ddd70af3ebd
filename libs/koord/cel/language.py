"""Expressions: checked against the types of their variables, compiled, evaluated.

The evaluator is Google's (cel-expr-python, C++). Its own limits stand besides Kubernetes': an expression is at most 32
levels deep, 100,000 characters long, and makes 10,000 steps of loops.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from cel_expr_python import cel
from google.protobuf import descriptor_pool

from koord.cel import library
from koord.cel.failures import COST_EXCEEDED, CompileError, CostError, EvaluationError
from koord.cel.literals import literal_problems
from koord.cel.opaque import shared_pool
from koord.cel.tree import Tree, names, read
from koord.cel.wording import bare, evaluation_words, in_kubernetes_words, located

_EXTENSIONS = """extensions:
  - name: strings
    version: 2
  - name: sets
  - name: lists
    version: 2
  - name: optional
  - name: two-var-comprehensions
"""
VARIABLES = ("self", "oldSelf", "object", "oldObject", "request", "namespaceObject", "variables", "params")
_EARLIER = "__earlier"
# `oldSelf` as an optional: a loop of one step that binds it. The expression begins on the second line.
_OPTIONAL = "(size(__earlier) > 0 ? [optional.of(__earlier[0])] : [optional.none()]).map(oldSelf, (\n{}\n))[0]"
_OPTIONAL_TYPES = "[optional.of(self)].map(oldSelf, (\n{}\n))[0]"


@cache
def _config() -> Any:
    return cel.NewEnvConfigFromYaml(_EXTENSIONS)


class Checked(NamedTuple):
    """An expression that is right; `result`: the type of its value in CEL's words."""

    tree: Tree
    result: str

    def uses(self, name: str) -> bool:
        """Whether a variable is read."""
        return name in names(self.tree.root)


class Checker:
    """Checks expressions in which variables have known types (`cel.Type`, its messages in `pool`)."""

    def __init__(self, variables: Mapping[str, Any], pool: descriptor_pool.DescriptorPool | None = None) -> None:
        self._environment = cel.NewEnv(
            descriptor_pool=pool or shared_pool(),
            config=_config(),
            variables=dict(variables),
            extensions=[library.exact()],
        )

    def check(self, text: str, *, optional_old: bool = False) -> Checked:
        """The checked expression; `CompileError` in the real server's words. `optional_old`: of `oldSelf`."""
        source = _OPTIONAL_TYPES.format(text) if optional_old else text
        first = _OPTIONAL_TYPES.index("{}") if optional_old else 0
        try:
            expression = self._environment.compile(source)
            checked = Checked(read(expression.serialize()), expression.return_type().name().lower())
        except (RuntimeError, UnicodeEncodeError, TypeError) as error:
            raise CompileError(in_kubernetes_words(bare(str(error)), text, 1 if optional_old else 0)) from None
        if problems := list(literal_problems(checked.tree, first)):
            raise CompileError("\n".join(located(text, at, why) for at, why in sorted(problems)))
        return checked


@cache
def _environment() -> Any:
    variables = dict.fromkeys((*VARIABLES, _EARLIER), cel.Type.DYN)
    return cel.NewEnv(
        descriptor_pool=shared_pool(), config=_config(), variables=variables, extensions=[library.working()]
    )


class Program:
    """An expression that can be evaluated; what it says must have been checked."""

    __slots__ = ("_expression", "_optional_old", "text")

    def __init__(self, text: str, *, optional_old: bool = False) -> None:
        self.text = text
        self._optional_old = optional_old
        try:
            self._expression = _environment().compile(
                _OPTIONAL.format(text) if optional_old else text, disable_check=True
            )
        except RuntimeError as error:
            raise CompileError(bare(str(error))) from None

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """The value; `EvaluationError` when there is none."""
        data = dict(values)
        if self._optional_old:
            data[_EARLIER] = [data.pop("oldSelf")] if "oldSelf" in data else []
        try:
            answer = self._expression.eval(data=data)
        except (RuntimeError, ValueError, OverflowError, MemoryError, LookupError, TypeError) as error:
            if "Iteration budget" in str(error):
                raise CostError(COST_EXCEEDED) from None
            raise EvaluationError(evaluation_words(str(error))) from None
        if answer.type() == cel.Type.ERROR:
            raise EvaluationError(evaluation_words(answer.value()))
        return answer.plain_value()
