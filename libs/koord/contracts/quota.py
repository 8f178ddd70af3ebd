"""Runtime quotas as the quota service computed them, one message per tree."""

import msgspec


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
    """All quotas of one tree; ``version`` grows with each computation of one leader.

    ``ceiling``: max times this (a whole number or ``a/b``) is the most that is ever admitted to a queue; with
    ``by_runtime`` no more than the larger of min and runtime is, either.
    """

    tree: str
    version: int
    quotas: list[QuotaState]
    ceiling: str = "1"
    by_runtime: bool = True
    v: int = 1
