"""Hints about gangs, for tools that follow them; nobody may rely on them arriving."""

from typing import Literal

import msgspec

GangEvent = Literal["ready", "satisfied", "rejected"]


class GangHint(msgspec.Struct, frozen=True, omit_defaults=True):
    """A gang moved to ``event``.

    ``ready``: its members are there and may be tried. ``satisfied``: the gang group has what it needs, its bind is
    published. ``rejected``: the group found no place or gave back what it held, ``reason`` says why. ``members`` exist,
    ``minimum`` are needed; ``group`` is the id of the gang group.
    """

    event: GangEvent
    namespace: str
    name: str
    group: str = ""
    members: int = 0
    minimum: int = 0
    reason: str = ""
    v: int = 1
