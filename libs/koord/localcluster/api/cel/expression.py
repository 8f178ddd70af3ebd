"""An expression about objects whose types are not known, with the meter that the evaluator does not have."""

import re
from collections.abc import Mapping
from typing import Any

from koord.localcluster.api.cel.cost import metered
from koord.localcluster.api.cel.failures import COST_EXCEEDED, CostError
from koord.localcluster.api.cel.language import Checked, Program
from koord.localcluster.api.cel.limits import CALL_LIMIT
from koord.localcluster.api.cel.tree import CALL, LOOP, SELECT, nodes

# What takes the same time however large its arguments are, or looks at one argument once.
_QUICK = re.compile(r"!_|-_|_\[_\]|_\?_:_|_([=!<>]=|[-+*/%<>]|&&|\|\|)_|@in|size|startsWith|endsWith|type|int|bool|dyn")


class Expression:
    """A checked expression that can be evaluated."""

    def __init__(self, text: str, checked: Checked) -> None:
        self.text = text
        self._program = Program(text)
        self._tree = checked.tree
        self._metered = any(
            node.kind == LOOP or (node.kind == CALL and _QUICK.fullmatch(node.name) is None)
            for node in nodes(checked.tree.root)
        )
        self.variables = frozenset(
            node.name
            for node in nodes(checked.tree.root)
            if node.kind == SELECT and node.target is not None and node.target.name == "variables"
        )
        """The variables of the policy that it reads."""

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """The value; `EvaluationError` when there is none or it might cost too much."""
        if self._metered and metered(self._tree, values) > CALL_LIMIT:
            raise CostError(COST_EXCEEDED)
        return self._program.evaluate(values)
