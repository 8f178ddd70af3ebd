"""The plugin's arguments, and what pods ask for in their annotations."""

from collections.abc import Iterator, Mapping

import msgspec

from koord.scheduler.framework.arguments import Args, Int32, Problem, invalid, unsupported

PRODUCT = "licenses.example.com/product"
"""On a pod: the product whose seats it needs."""
SEATS = "licenses.example.com/seats"
"""On a pod: how many."""
GIVEN = "licenses.example.com/given"
"""Written to the pod with its binding: ``<pool>:<seat>,<seat>``."""
MOST_SEATS = 64
STRATEGIES = ("MostFree", "LeastFree")


class LicenseSeatsArgs(Args, frozen=True, kw_only=True):
    """``defaultSeats`` for pods that name a product alone; ``scoringStrategy``: spread over pools, or fill them up."""

    default_seats: Int32 = 1
    scoring_strategy: str = "MostFree"

    def problems(self, path: str) -> Iterator[Problem]:
        """What is not valid; ``path`` is that of the arguments."""
        below = f"{path}." if path else ""
        if not 1 <= self.default_seats <= MOST_SEATS:
            yield invalid(f"{below}defaultSeats", self.default_seats, f"must be in 1..{MOST_SEATS}")
        if self.scoring_strategy not in STRATEGIES:
            yield unsupported(f"{below}scoringStrategy", self.scoring_strategy, STRATEGIES)


class SeatTerms(msgspec.Struct, frozen=True):
    """What a class of pods needs; ``problem`` says why that is not valid."""

    product: str
    seats: int = 0
    problem: str = ""


def seat_terms(annotations: Mapping[str, str], default_seats: int) -> SeatTerms | None:
    """What the annotations ask for; None: nothing."""
    product = annotations.get(PRODUCT)
    if product is None:
        return None
    text = annotations.get(SEATS, str(default_seats))
    if not product:
        return SeatTerms("", problem=f"annotation {PRODUCT}: must not be empty")
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and 1 <= int(text) <= MOST_SEATS):
        return SeatTerms(
            product, problem=f'annotation {SEATS}: "{text}": must be a whole number from 1 to {MOST_SEATS}'
        )
    return SeatTerms(product, int(text))


def given_text(pool: str, seats: tuple[int, ...]) -> str:
    """Seats of a pool as they are written to a pod."""
    return f"{pool}:{','.join(map(str, seats))}"


def given_seats(text: str) -> tuple[str, tuple[int, ...]] | None:
    """The same, read; None: this is none."""
    pool, _, listed = text.rpartition(":")
    numbers = listed.split(",")
    if not pool or not all(number.isascii() and number.isdecimal() and len(number) < 10 for number in numbers):
        return None
    return pool, tuple(map(int, numbers))
