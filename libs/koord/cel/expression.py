"""An expression about objects whose types are not known, with the meter that the evaluator does not have."""

from collections.abc import Mapping
from typing import Any

from koord.cel.budget import Budget
from koord.cel.language import Checked, Program
from koord.cel.metering import Values, is_quick, metered
from koord.cel.tree import SELECT, nodes


class Expression:
    """A checked expression that can be evaluated."""

    def __init__(self, text: str, checked: Checked) -> None:
        self.text = text
        self._program = Program(text)
        self._tree = checked.tree
        self._quick = is_quick(checked.tree)
        self.variables = frozenset(
            node.name
            for node in nodes(checked.tree.root)
            if node.kind == SELECT and node.target is not None and node.target.name == "variables"
        )
        """The variables of the policy that it reads."""

    def evaluate(self, values: Mapping[str, Any] | Values, budget: Budget | None = None) -> Any:
        """The value; `EvaluationError` when there is none or it might cost too much.

        budget: that of everything that is evaluated about the same write.
        """
        given = values if isinstance(values, Values) else Values(values)
        (budget or Budget()).pay(0 if self._quick else metered(self._tree, given))
        return self._program.evaluate(given.values)
