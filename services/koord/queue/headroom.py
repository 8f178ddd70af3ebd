"""Whether a unit's total fits on every level of its quota chain, and if not, in whose words (70 §3.11).

The limit is what the quota service wrote to the ledger: max, or the runtime (at least min) that the quota has now.
The ledger is the judge; this is the queue's own copy of the admitted amounts, read once per cycle. It answers most of
the refusals without a claim, keeps one cycle from asking for the same room twice, and writes the refusal texts.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Final

import msgspec

WAITING = "WaitingForQuota"
EXCEEDS_MAX = "ExceedsMaxQuota"
MISCONFIGURED = "Misconfigured"

PLAIN: Final = Fraction(1)
UNLIMITED = 2**53
"""Limits from here on cannot be reached: the ledger counts in doubles, exact below 2**53."""


class Refusal(msgspec.Struct, frozen=True):
    """Why a unit was not admitted.

    ``reason`` is the word of condition QuotaReserved, ``quota`` and ``resource`` what was short (both empty where no
    amount is to blame), ``needed`` and ``available`` in the ledger's integers.
    """

    message: str
    reason: str
    quota: str = ""
    resource: str = ""
    needed: int = 0
    available: int = 0


def short_of(quota: str, resource: str, needed: int, available: int, reason: str = WAITING) -> Refusal:
    """``resource`` is short in ``quota``."""
    text = f"limited quotaName:{quota}, limited resKey:{resource},"
    return Refusal(text, reason, quota, resource, needed, available)


def empty_quota(quota: str) -> Refusal:
    """The quota has no max at all, so nothing that asks for something fits."""
    return Refusal(
        f"limited quotaName:{quota}, quota spec is empty but queue unit res is not empty", EXCEEDS_MAX, quota
    )


def blocked_by_another(quota: str) -> Refusal:
    """A unit ahead of the same quota does not fit, and the queue's policy lets nobody of the quota pass it."""
    text = f"quota {quota} is blocked: a unit of it that comes first does not fit"
    return Refusal(text, WAITING, quota)


def rate_of(ceiling: str) -> Fraction:
    """The rate that the quota service published, a whole number or a fraction of two. ValueError: not above 0."""
    above, _, below = ceiling.partition("/")
    try:
        rate = Fraction(int(above), int(below or 1))
    except ZeroDivisionError as error:
        raise ValueError(f"{ceiling!r} is no number") from error
    if rate <= 0:
        raise ValueError(f"{ceiling!r} is not above 0")
    return rate


def oversold(maximum: Mapping[str, int], rate: Fraction) -> dict[str, int]:
    """What may be admitted below ``maximum``: each amount times ``rate``, exactly, rounded down."""
    return {name: amount * rate.numerator // rate.denominator for name, amount in maximum.items()}


def uncountable(total: Mapping[str, int]) -> str:
    """What is wrong with a total that no ledger can count, or ``""``; names the resource and the rule."""
    for name, amount in sorted(total.items()):
        if amount >= UNLIMITED:
            return f"{name}: {amount} is more than can be counted, it must be below 2^53 (cpu in milli)"
    return ""


class Headroom:
    """Limits and taken amounts of ``admitted/<quota>``, with what this cycle has already given away.

    ``limits``: quota → resource → limit in force (a missing resource is unlimited; an empty map is no quota at all).
    ``taken``: quota → resource → what is used or held there. ``maxima``: what the quotas' objects say; the ledger may
    not have the newest edit yet, and only what the objects say makes a request hopeless. ``rate`` oversells maxima; the
    limits in force have it in them already. Without ``maxima`` the limits are the objects'.
    """

    def __init__(
        self,
        limits: Mapping[str, Mapping[str, int]],
        taken: Mapping[str, Mapping[str, int]],
        maxima: Mapping[str, Mapping[str, int]] | None = None,
        rate: Fraction = PLAIN,
    ) -> None:
        given = limits if maxima is None else maxima
        self._maxima = {quota: oversold(amounts, rate) for quota, amounts in given.items()} if rate != PLAIN else given
        self._limits = self._maxima if maxima is None else limits
        self._taken = {quota: dict(amounts) for quota, amounts in taken.items()}

    def check(self, chain: Sequence[str], request: Mapping[str, int]) -> Refusal | None:
        """None if ``request`` fits on every level, else the first refusal, leaf first, resources by name.

        Equality admits. A request above the max itself is told apart (reason ExceedsMaxQuota) wherever on the chain
        it is, since no release can ever make it fit.
        """
        asked = [(name, amount) for name, amount in sorted(request.items()) if amount > 0]
        if not asked:
            return None
        for quota in chain:
            maxima = self._maxima.get(quota, {})
            if not maxima:
                return empty_quota(quota)
            for name, amount in asked:
                limit = maxima.get(name, UNLIMITED)
                if limit < amount and limit < UNLIMITED:
                    return short_of(quota, name, amount, limit, EXCEEDS_MAX)
        for quota in chain:
            limits = self._limits.get(quota, self._maxima[quota])
            taken = self._taken.get(quota, {})
            for name, amount in asked:
                limit = limits.get(name, UNLIMITED)
                if limit >= UNLIMITED:
                    continue
                available = limit - taken.get(name, 0)
                if available < amount:
                    return short_of(quota, name, amount, available)
        return None

    def take(self, chain: Sequence[str], request: Mapping[str, int]) -> None:
        """Count ``request`` as taken on every level."""
        for quota in chain:
            taken = self._taken.setdefault(quota, {})
            for name, amount in request.items():
                taken[name] = taken.get(name, 0) + amount
