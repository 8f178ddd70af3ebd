"""Objects of built-in kinds that break rules: refused with the same causes, field by field, word by word.

`tests/golden/refused/refused.json` has what is sent, and what a real server says of it.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.client import Client

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent.parent / "golden" / "refused" / "refused.json").read_text()
)
PATHS = sorted({case["path"] for case in CASES})


@pytest.mark.parametrize("path", PATHS, ids=[path.rpartition("/")[2] for path in PATHS])
@pytest.mark.since("1.34", "words", only=("pods",))
@pytest.mark.since(
    "1.34",
    "words: values as JSON",
    only=("daemonsets", "deployments", "poddisruptionbudgets", "replicasets", "statefulsets"),
)
async def test_what_breaks_a_rule_is_refused_in_its_words(client: Client, namespace: str, path: str) -> None:
    cases = [case for case in CASES if case["path"] == path]
    assert cases
    for case in cases:
        answer = await client.post(path.replace("NAMESPACE", namespace), case["sent"], dryRun="All")
        assert (answer.status, answer.reason) == (422, "Invalid"), (case["sent"], answer.body)
        found = [[cause["reason"], cause["field"], cause["message"]] for cause in answer.body["details"]["causes"]]
        assert sorted(found) == sorted(case["causes"]), case["sent"]
