"""A node's generation: the same for the same node, another for whatever a placement may depend on."""

from collections.abc import Mapping
from typing import Any

import pytest

from koord.accounting.generation import node_generation

Taints = list[tuple[str, str, str]]


def of(
    labels: Mapping[str, str] | None = None,
    taints: Taints | None = None,
    cordoned: bool = False,
    deleting: bool = False,
) -> int:
    return node_generation(labels or {"zone": "a"}, taints or [], unschedulable=cordoned, deleting=deleting)


def test_order_does_not_count() -> None:
    assert of({"a": "1", "b": "2"}) == of({"b": "2", "a": "1"})
    assert of(taints=[("k", "v", "NoSchedule"), ("j", "", "NoExecute")]) == of(
        taints=[("j", "", "NoExecute"), ("k", "v", "NoSchedule")]
    )


@pytest.mark.parametrize(
    "change",
    [
        {"labels": {"zone": "b"}},
        {"labels": {"zone": "a", "x": ""}},
        {"taints": [("k", "", "NoSchedule")]},
        {"cordoned": True},
        {"deleting": True},
    ],
)
def test_a_change_counts(change: dict[str, Any]) -> None:
    assert of(**change) != of()


def test_fits_the_ledger_and_is_never_unknown() -> None:
    assert all(0 < of({"n": str(i)}) < 2**53 for i in range(1000))
