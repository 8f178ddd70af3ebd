"""Expressions about a write: what they may speak of, and the conditions of webhooks and policies.

`object` and `oldObject` are whatever was sent; `request` and `namespaceObject` have types, so that a field they do not
have is an error when the expression is stored.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from koord.localcluster.api.schemas.reading import read

if TYPE_CHECKING:
    from koord.cel.budget import Budget
    from koord.cel.language import Checker
    from koord.cel.metering import Values

_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
_LABELS = {"type": "object", "additionalProperties": _TEXT}
_DYN = {"x-kubernetes-int-or-string": True}
_TIME = {"type": "string", "format": "date-time"}


def _object(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": fields}


_KIND = _object(group=_TEXT, version=_TEXT, kind=_TEXT)
_RESOURCE = _object(group=_TEXT, version=_TEXT, resource=_TEXT)
_USER = _object(username=_TEXT, uid=_TEXT, groups=_TEXTS, extra={"type": "object", "additionalProperties": _TEXTS})
_REQUEST = _object(
    kind=_KIND,
    resource=_RESOURCE,
    subResource=_TEXT,
    requestKind=_KIND,
    requestResource=_RESOURCE,
    requestSubResource=_TEXT,
    name=_TEXT,
    namespace=_TEXT,
    operation=_TEXT,
    userInfo=_USER,
    dryRun={"type": "boolean"},
    options=_DYN,
)
_CONDITION = _object(status=_TEXT, type=_TEXT, lastTransitionTime=_TIME, message=_TEXT, reason=_TEXT)
_NAMESPACE = _object(
    metadata=_object(
        name=_TEXT,
        generateName=_TEXT,
        namespace=_TEXT,
        labels=_LABELS,
        annotations=_LABELS,
        UID=_TEXT,
        creationTimestamp=_TIME,
        deletionGracePeriodSeconds={"type": "integer"},
        deletionTimestamp=_TIME,
        generation={"type": "integer"},
        resourceVersion=_TEXT,
        finalizers=_TEXTS,
    ),
    spec=_object(finalizers=_TEXTS),
    status=_object(conditions={"type": "array", "items": _CONDITION}, phase=_TEXT),
)
_KINDS = frozenset(("bool", "int", "double", "string", "bytes", "timestamp", "duration"))


@cache
def _converter() -> Any:
    from koord.localcluster.api.schemas.converting import converter

    return converter(read(_NAMESPACE))


def namespace_object(namespace: Mapping[str, Any]) -> Any:
    """A Namespace as `namespaceObject` shows it."""
    return _converter()(namespace)


def new_checker(variables: Sequence[tuple[str, str]] | None = None) -> "Checker":
    """A checker of expressions about writes; `variables` of a policy that has some, each with the type of its value."""
    from cel_expr_python import cel

    from koord.cel.declared import Declared, Types
    from koord.cel.language import Checker
    from koord.localcluster.api.schemas.declaring import declare

    roots: dict[str, Declared] = {}
    for name, source in (("request", _REQUEST), ("namespaceObject", _NAMESPACE)):
        declared = declare(read(source))
        assert declared is not None
        roots[name] = declared
    if variables is not None:
        roots["variables"] = composed = Declared("object")
        for name, kind in variables:
            composed.fields[name] = Declared(kind if kind in _KINDS else "dyn")
    types = Types(roots)
    return Checker({"object": cel.Type.DYN, "oldObject": cel.Type.DYN, **types.types}, types.pool)


def shared_values(values: Mapping[str, Any]) -> "Values":
    """The values that several expressions are about."""
    from koord.cel.metering import Values

    return Values(values)


def new_budget() -> "Budget":
    """What all expressions about one write may spend."""
    from koord.cel.budget import Budget

    return Budget()


class ConditionError(ValueError):
    """A condition that does not compile or does not say yes or no."""


class Condition:
    """A compiled condition. Raises `ConditionError`."""

    def __init__(self, text: str) -> None:
        from koord.cel.expression import Expression
        from koord.cel.failures import CompileError

        self.text = text
        try:
            checked = _checker().check(text)
        except CompileError as error:
            raise ConditionError(f"compilation failed: {error}") from None
        if checked.result != "bool":
            raise ConditionError(f"must evaluate to bool but got {checked.result}")
        self._expression = Expression(text, checked)

    def evaluate(self, values: "Mapping[str, Any] | Values", budget: "Budget | None" = None) -> bool:
        """Whether the condition holds; `ConditionError` when that cannot be said."""
        from koord.cel.failures import EvaluationError

        try:
            return bool(self._expression.evaluate(values, budget))
        except EvaluationError as error:
            raise ConditionError(f"expression '{self.text}' resulted in error: {error}") from None


@cache
def _checker() -> "Checker":
    return new_checker()
