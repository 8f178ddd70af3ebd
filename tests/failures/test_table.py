"""The index of the table names tests that exist, and every row that is built."""

import ast
from pathlib import Path

import tests.failures

ROOT = Path(__file__).parents[2]
ROWS = {
    "S dies before publishing",
    "S dies after publishing",
    "G dies before advance / after it / after the API write",
    "Decision redelivered late",
    "Result lost",
    "Decision lost with its stream",
    "R slow, dead, or two",
    "Node deleted",
    "Gang partly bound",
    "Quota lowered or closed",
    "Foreign scheduler binds",
    "Redis unreachable",
    "Redis out of memory",
    "Redis closed",
    "Redis writes lost",
}


def test_every_row_names_a_test_that_exists() -> None:
    lines = [line.strip() for line in (tests.failures.__doc__ or "").splitlines() if "::" in line]
    entries = [line.rsplit(": ", 1) for line in lines]
    assert {row for row, _ in entries} == ROWS
    for _, test in entries:
        file, name = test.split("::")
        body = ast.parse((ROOT / file).read_text()).body
        found = {one.name for one in body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert name in found, f"{file} has no {name}"
