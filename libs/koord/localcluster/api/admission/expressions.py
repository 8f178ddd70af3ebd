"""The part of CEL that match conditions are written in, compiled to functions.

Literals, lists, maps, `.` and `[]`, arithmetic, comparison, `in`, `&&`, `||`, `!`, `? :`, `has`, `size`, the macros
`all`, `exists`, `exists_one`, `filter` and `map`, and on texts `startsWith`, `endsWith` and `contains`. Anything else
does not compile: a condition is evaluated as Kubernetes would, or its configuration is refused.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from koord.localcluster.api.admission.celvalues import (
    ARITHMETIC,
    RELATIONS,
    EvaluationError,
    Node,
    Run,
    Select,
    binary,
    choice,
    comprehension,
    constant,
    index,
    logic,
    method,
    minus,
    negation,
    number,
)

VARIABLES = frozenset(("object", "oldObject", "request"))
_LONGEST = 10_000
_DEEPEST = 50


class ExpressionError(ValueError):
    """An expression that does not compile."""


class Expression:
    """A compiled condition."""

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            self._node = _Parser(text).parse()
        except (EvaluationError, RecursionError) as error:
            raise ExpressionError(str(error)) from error

    def evaluate(self, values: Mapping[str, Any]) -> bool:
        """Whether the condition holds; `EvaluationError` when that cannot be said."""
        try:
            value = self._node(Run(dict(values)))
        except EvaluationError as error:
            raise EvaluationError(f"expression '{self.text}' resulted in error: {error}") from None
        except RecursionError:
            raise EvaluationError(f"expression '{self.text}' resulted in error: too deep") from None
        if not isinstance(value, bool):
            raise EvaluationError(f"expression '{self.text}' resulted in error: must evaluate to bool")
        return value


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


_TOKENS = re.compile(
    r"""(?P<space>\s+|//[^\n]*)
    |(?P<float>\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)
    |(?P<int>0x[0-9a-fA-F]+|\d+)
    |(?P<raw>[rR](?:"[^"\n]*"|'[^'\n]*'))
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<sign>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:.,()\[\]{}])""",
    re.VERBOSE,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'", "`": "`", "?": "?"}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))")
_MACROS = ("all", "exists", "exists_one", "filter", "map")
_METHODS = ("startsWith", "endsWith", "contains", "size")


def _tokens(text: str) -> list[_Token]:
    if len(text) > _LONGEST:
        raise ExpressionError(f"the expression is longer than {_LONGEST} characters")
    found, at = [], 0
    while at < len(text):
        match = _TOKENS.match(text, at)
        if match is None:
            raise ExpressionError(f"Syntax error: token recognition error at position {at}: {text[at]!r}")
        if match.lastgroup != "space":
            found.append(_Token(match.lastgroup or "", match.group(), at))
        at = match.end()
    return [*found, _Token("end", "<EOF>", len(text))]


class _Parser:
    """Recursive descent, one method per level of precedence; `_names` are the variables that are bound."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0
        self._depth = 0
        self._names = set(VARIABLES)
        self._booleans: list[Node] = []

    def parse(self) -> Node:
        node = self._condition()
        if self._peek().kind != "end":
            raise self._error()
        if not self._is_boolean(node):
            raise ExpressionError("must evaluate to bool")
        return node

    def _boolean(self, node: Node) -> Node:
        """Note that a node can be nothing else than true or false."""
        self._booleans.append(node)
        return node

    def _is_boolean(self, node: Node) -> bool:
        return any(node is known for known in self._booleans)

    def _peek(self) -> _Token:
        return self._tokens[self._at]

    def _next(self) -> _Token:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _take(self, *signs: str) -> str | None:
        token = self._peek()
        if token.kind in ("sign", "name") and token.text in signs:
            self._at += 1
            return token.text
        return None

    def _expect(self, sign: str) -> None:
        if self._take(sign) is None:
            raise self._error()

    def _error(self) -> ExpressionError:
        token = self._peek()
        return ExpressionError(f"Syntax error: mismatched input '{token.text}' at position {token.at}")

    def _condition(self) -> Node:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ExpressionError("the expression is nested too deeply")
        test = self._either()
        if self._take("?"):
            yes = self._either()
            self._expect(":")
            no = self._condition()
            both = self._is_boolean(yes) and self._is_boolean(no)
            test = choice(test, yes, no)
            if both:
                self._boolean(test)
        self._depth -= 1
        return test

    def _either(self) -> Node:
        node = self._both()
        while self._take("||"):
            node = self._boolean(logic(node, self._both(), decisive=True))
        return node

    def _both(self) -> Node:
        node = self._relation()
        while self._take("&&"):
            node = self._boolean(logic(node, self._relation(), decisive=False))
        return node

    def _relation(self) -> Node:
        node = self._sum()
        while sign := self._take("==", "!=", "<=", ">=", "<", ">", "in"):
            node = self._boolean(binary(RELATIONS[sign], node, self._sum()))
        return node

    def _sum(self) -> Node:
        node = self._product()
        while sign := self._take("+", "-"):
            node = binary(ARITHMETIC[sign], node, self._product())
        return node

    def _product(self) -> Node:
        node = self._unary()
        while sign := self._take("*", "/", "%"):
            node = binary(ARITHMETIC[sign], node, self._unary())
        return node

    def _unary(self) -> Node:
        signs: list[str] = []
        while sign := self._take("!", "-"):
            signs.append(sign)
        node = self._member()
        for sign in reversed(signs):
            node = self._boolean(negation(node)) if sign == "!" else minus(node)
        return node

    def _member(self) -> Node:
        node = self._primary()
        while sign := self._take(".", "["):
            if sign == "[":
                node = binary(index, node, self._condition())
                self._expect("]")
                continue
            name = self._name()
            node = self._call(node, name) if self._take("(") else Select(node, name)
        return node

    def _name(self) -> str:
        token = self._next()
        if token.kind != "name":
            self._at -= 1
            raise self._error()
        return token.text

    def _call(self, target: Node, name: str) -> Node:
        if name in _MACROS:
            return self._macro(target, name)
        if name not in _METHODS:
            raise ExpressionError(f"undeclared reference to '{name}' (in container '')")
        arguments = self._list(")")
        if len(arguments) != (0 if name == "size" else 1):
            raise ExpressionError(f"found no matching overload for '{name}'")
        made = method(target, name, *arguments)
        return made if name == "size" else self._boolean(made)

    def _macro(self, target: Node, name: str) -> Node:
        variable = self._name()
        self._expect(",")
        known = variable in self._names
        self._names.add(variable)
        test: Node | None = self._condition()
        result = None
        if name == "map":
            result, test = (self._condition(), test) if self._take(",") else (test, None)
        if not known:
            self._names.discard(variable)
        self._expect(")")
        made = comprehension(target, name, variable, test, result)
        return made if name in ("map", "filter") else self._boolean(made)

    def _list(self, end: str) -> list[Node]:
        items: list[Node] = []
        while not self._take(end):
            if items:
                self._expect(",")
                if self._take(end):
                    break
            items.append(self._condition())
        return items

    def _primary(self) -> Node:
        token = self._next()
        match token.kind:
            case "int":
                if len(token.text) > 20:
                    raise ExpressionError("Syntax error: invalid int literal")
                value = int(token.text, 0) if token.text.startswith("0x") else int(token.text)
                return constant(number(value))
            case "float":
                return constant(float(token.text))
            case "text":
                return constant(_unescape(token.text[1:-1]))
            case "raw":
                return constant(token.text[2:-1])
            case "name":
                return self._word(token)
        if token.text == "(" and token.kind == "sign":
            node = self._condition()
            self._expect(")")
            return node
        if token.text == "[" and token.kind == "sign":
            items = self._list("]")
            return lambda run: [item(run) for item in items]
        if token.text == "{" and token.kind == "sign":
            return self._map()
        self._at -= 1
        raise self._error()

    def _map(self) -> Node:
        pairs: list[tuple[Node, Node]] = []
        while not self._take("}"):
            if pairs:
                self._expect(",")
            key = self._condition()
            self._expect(":")
            pairs.append((key, self._condition()))
        return lambda run: {key(key(run)): value(run) for key, value in pairs}

    def _word(self, token: _Token) -> Node:
        name = token.text
        if name in ("true", "false"):
            return self._boolean(constant(name == "true"))
        if name == "null":
            return constant(None)
        if self._take("("):
            arguments = self._list(")")
            if name == "has" and len(arguments) == 1 and isinstance(arguments[0], Select):
                return self._boolean(arguments[0].present)
            if name == "size" and len(arguments) == 1:
                return method(arguments[0], "size")
            raise ExpressionError(f"undeclared reference to '{name}' (in container '')")
        if name not in self._names:
            raise ExpressionError(f"undeclared reference to '{name}' (in container '')")
        return lambda run: run.values[name]


def _unescape(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        code = match[1] or match[2]
        if code:
            return chr(int(code, 16))
        if match[3] not in _ESCAPES:
            raise ExpressionError(f"Syntax error: unknown escape \\{match[3]}")
        return _ESCAPES[match[3]]

    return _ESCAPE.sub(replace, text)
