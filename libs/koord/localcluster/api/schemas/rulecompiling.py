"""Rules in CEL, checked and compiled: the one place where schemas meet the evaluator."""

from typing import Any, NamedTuple

from koord.cel.cost import bounds, estimate
from koord.cel.declared import Declared, Types
from koord.cel.failures import CompileError
from koord.cel.language import Checker
from koord.cel.tree import Tree


class CheckedRule(NamedTuple):
    """What is to be said of a rule: what is wrong with it and its message, and what one evaluation costs at most."""

    error: str = ""
    message_error: str = ""
    cost: int = 0
    message_cost: int = 0
    uses_old: bool = False
    tree: Tree | None = None
    message_tree: Tree | None = None


class RuleChecker:
    """Checks the rules of one schema, whose values have the type `declared`."""

    def __init__(self, declared: Declared) -> None:
        roots = {"self": declared, "oldSelf": declared}
        types = Types(roots)
        self._checker = Checker(types.types, types.pool)
        self._sizes = bounds(roots)

    def check(self, rule: dict[str, Any]) -> CheckedRule:
        """Check one entry of `x-kubernetes-validations`."""
        optional = bool(rule.get("optionalOldSelf"))
        try:
            checked = self._checker.check(rule["rule"], optional_old=optional)
        except CompileError as error:
            return CheckedRule(f"compilation failed: {error}")
        if checked.result != "bool":
            return CheckedRule("cel expression must evaluate to a bool")
        found = CheckedRule(
            cost=estimate(checked.tree, self._sizes), uses_old=checked.uses("oldSelf"), tree=checked.tree
        )
        expression = rule.get("messageExpression")
        if not expression:
            return found
        try:
            message = self._checker.check(expression, optional_old=optional)
        except CompileError as error:
            return found._replace(message_error=f"messageExpression compilation failed: {error}")
        if message.result != "string":
            return found._replace(message_error="messageExpression must evaluate to a string")
        return found._replace(message_cost=estimate(message.tree, self._sizes), message_tree=message.tree)
