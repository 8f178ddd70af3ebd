"""Runtime quotas as the quota service computed them: one message per tree, or several, the parts of a large one."""

from collections.abc import Iterable
from typing import Annotated, cast

import msgspec

from koord.contracts.codec import encode


class QuotaState(msgspec.Struct, frozen=True, omit_defaults=True):
    """One quota: amounts by resource, cpu in milli-cores, the rest in whole base units.

    ``limit``: what its pods are held to where that is more than the runtime: what was admitted before that fell, or a
    min that it has only to ask for.
    """

    name: str
    namespace: str
    parent: str = ""
    min: dict[str, int] = {}
    max: dict[str, int] = {}
    runtime: dict[str, int] = {}
    used: dict[str, int] = {}
    request: dict[str, int] = {}
    limit: dict[str, int] = {}


class QuotaRuntime(msgspec.Struct, frozen=True, omit_defaults=True):
    """The quotas of one tree, or of part ``part`` of ``parts``; ``version`` grows with each computation of one leader.

    ``ceiling``: max times this (a whole number or ``a/b``) is the most that is ever admitted to a queue; with
    ``by_runtime`` no more than the larger of min and runtime is, either.

    Each part can be read alone; a quota is in one of them. A part that would say the same is not sent again, so the
    parts of a tree may have several versions. Part 0 has the tree's name as ``tree``, the others ``<tree>/<part>``:
    whoever does not know parts takes them for trees. A part that is not below ``parts`` is empty: it is gone.
    """

    tree: str
    version: int
    quotas: list[QuotaState]
    ceiling: str = "1"
    by_runtime: bool = True
    part: Annotated[int, msgspec.Meta(ge=0)] = 0
    parts: Annotated[int, msgspec.Meta(ge=1)] = 1
    v: int = 1

    @property
    def whole(self) -> str:
        """The tree that this is a part of."""
        return self.tree.removesuffix(f"/{self.part}") if self.part else self.tree


def name_of_part(tree: str, part: int) -> str:
    """What a part has as ``tree``; no tree's id, a label's value, has a slash."""
    return f"{tree}/{part}" if part else tree


def encode_runtime(message: QuotaRuntime, states: Iterable[bytes]) -> bytes:
    """The body of ``message`` with ``states``, which are encoded already, as its quotas."""
    raw = cast("list[QuotaState]", [msgspec.Raw(state) for state in states])
    return encode(msgspec.structs.replace(message, quotas=raw))
