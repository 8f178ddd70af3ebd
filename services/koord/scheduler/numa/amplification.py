"""Amplified nodes: their allocatable says more than the machine has; CPUs of one's own cost the ratio (spec 10 3.14).

Whole numbers: a ratio is read with six decimals, so that the ceiling of a product does not depend on how doubles round.
"""

import numpy as np

from koord.columns.matrix import Floats

_DECIMALS = 1_000_000


def scaled(ratio: float) -> int:
    """The ratio in millionths."""
    return round(ratio * _DECIMALS)


def amplify(amount: int, ratio: float) -> int:
    """ceil(amount · ratio) for a ratio above 1, else the amount."""
    if ratio <= 1.0:
        return amount
    return -(-amount * scaled(ratio) // _DECIMALS)


def with_bound(used: int, bound: int, ratio: float) -> int:
    """What is used of an amplified amount: the part of bound CPUs (``bound``, milli) counts with the ratio.

    As the original: if more is bound than used, what is used stands.
    """
    return used - bound + amplify(bound, ratio) if used >= bound > 0 else used


def amplify_rows(amount: Floats, ratio: Floats) -> Floats:
    """:func:`amplify` for columns. Exact while amount · ratio in millionths is below 2^53, as cpu in milli is."""
    grown: Floats = np.ceil(amount * np.round(ratio * _DECIMALS) / _DECIMALS)
    return np.where(ratio > 1.0, grown, amount)


def with_bound_rows(used: Floats, bound: Floats, ratio: Floats) -> Floats:
    """:func:`with_bound` for columns."""
    return np.where((used >= bound) & (bound > 0), used - bound + amplify_rows(bound, ratio), used)
