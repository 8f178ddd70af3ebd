"""Results: what became of a decision, told once to its author (a hint: the state stream shows the object itself)."""

from typing import Literal

import msgspec

Outcome = Literal["done", "conflict", "gone", "rejected"]


class MemberResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one member of a bind."""

    uid: str
    outcome: Outcome
    reason: str = ""


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of a decision.

    ``done``: the API shows it. ``conflict``: a precondition failed for good. ``gone``: the object does not exist (any
    more). ``rejected``: refused before or by the API, ``reason`` says why (``claim gone``, ``not allowed``, the
    Status message).
    """

    id: str
    outcome: Outcome
    reason: str = ""
    code: int = 0
    resource_version: str = ""
    members: list[MemberResult] = []
    v: int = 1
