"""What goes wrong, in the words of Kubernetes' evaluator (cel-go); the one here (cel-cpp) has others."""

import re

_STATUS = re.compile(r"\A(?:[A-Z_]+: )?(.*?)(?: \[[A-Z_]+\])?\Z", re.DOTALL)
_ERROR = re.compile(r"^(?=ERROR: <input>:)", re.MULTILINE)
_PLACE = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): ")
_NO_OVERLOAD = re.compile(r"found no matching overload for '(\w+)' applied to '\((.*)\)'")
_CHAIN = re.compile(r"undeclared reference to '((\w+)(?:\.\w+)+)' (.*)\n")
_SPACES = ("sets", "lists", "optional", "format", "ip", "strings")
_OTHER_WORDS = (
    (re.compile(r"(undefined field '[^']*') not found in struct '[^']*'"), r"\1"),
    (
        re.compile(r"expression of type ('[^']*') cannot be the operand of a select operation"),
        r"type \1 does not support field selection",
    ),
    (re.compile(r"has\(\) argument must be a field selection"), "invalid argument to has() macro"),
    (re.compile(r"cannot be the range of a comprehension"), "cannot be range of a comprehension"),
    (re.compile(r"\bnull_type\b"), "null"),
)
_EVALUATION_WORDS = (
    (re.compile(r'Key not found in map : "?(.*?)"?$'), r"no such key: \1"),
    (re.compile(r"Index error: index=(-?\d+) size=\d+"), r"index out of bounds: \1"),
    (re.compile(r"divide by zero"), "division by zero"),
    (re.compile(r"No matching overloads found.*", re.DOTALL), "no such overload"),
    (re.compile(r"Applying SELECT to non-message type.*"), "no such overload"),
)


def bare(text: str) -> str:
    """A message without the status code around it."""
    match = _STATUS.match(text)
    return match[1] if match is not None else text


def in_kubernetes_words(text: str, source: str, line_shift: int) -> str:
    """The errors of a compilation, first to last. `line_shift`: how many lines stood before the expression."""
    found = []
    for error in _ERROR.split(text):
        match = _PLACE.match(error)
        if match is None:
            found.append((0, 0, error))
            continue
        line, column = int(match[1]) - line_shift, int(match[2])
        words = _member_words(error[match.end() :], source, line, column)
        if (chain := _CHAIN.match(words)) is not None and 0 < line <= source.count("\n") + 1:
            # Of `a.b.c` it is `a` that is not known.
            column -= chain[1].rindex(".")
            shown = source.split("\n")[line - 1]
            words = f"undeclared reference to '{chain[2]}' {chain[3]}\n | {shown}\n | {'.' * (column - 1)}^"
        for pattern, other in _OTHER_WORDS:
            words = pattern.sub(other, words, count=1)
        found.append((line, column, f"ERROR: <input>:{line}:{column}: {words}"))
    lines = "\n".join(error.rstrip("\n") for _, _, error in sorted(found, key=lambda entry: entry[:2]) if error)
    return "\n".join(line.rstrip() for line in lines.split("\n"))


def _member_words(words: str, source: str, line: int, column: int) -> str:
    """A call of a member is shown as one."""
    match = _NO_OVERLOAD.match(words)
    lines = source.split("\n")
    if match is None or not 0 < line <= len(lines):
        return words
    before = lines[line - 1][: column - 1]
    if not before.endswith(f".{match[1]}") or before.removesuffix(f".{match[1]}").endswith(_SPACES):
        return words
    target, _, others = _first(match[2])
    return words.replace(f"'({match[2]})'", f"'{target}.({others})'", 1)


def _first(types: str) -> tuple[str, str, str]:
    """A list of types in its first one and the rest."""
    depth = 0
    for at, char in enumerate(types):
        depth += (char == "(") - (char == ")")
        if char == "," and not depth:
            return types[:at], ",", types[at + 1 :].lstrip()
    return types, "", ""


def located(source: str, at: int, why: str) -> str:
    """An error at a character of an expression."""
    line = source.count("\n", 0, at)
    column = at - (source.rfind("\n", 0, at) + 1)
    text = source.split("\n")[line]
    return f"ERROR: <input>:{line + 1}:{column + 1}: {why}\n | {text}\n | {'.' * column}^"


def evaluation_words(text: str) -> str:
    """Why an expression has no value."""
    text = bare(text)
    for pattern, words in _EVALUATION_WORDS:
        found, count = pattern.subn(words, text, count=1)
        if count:
            return found
    return text
