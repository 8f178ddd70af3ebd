"""What all expressions about one write may cost together, as nobody else is served while they run."""

from time import thread_time

from koord.cel.failures import COST_EXCEEDED, CostError
from koord.cel.limits import BUDGET, CALL_LIMIT, MOST_SECONDS

SPENT = "validation failed due to running out of cost budget, no further validation rules will be run"
# What an evaluation takes however little it does (about 4 µs).
_LEAST = 80


class Budget:
    """What may still be spent; `spent` when nothing more is run."""

    def __init__(self) -> None:
        self.spent = False
        self._left = BUDGET
        self._end = thread_time() + MOST_SECONDS

    def pay(self, cost: int) -> None:
        """Take what an evaluation costs; CostError when it must not be run."""
        if cost > CALL_LIMIT:
            self.spent = True
            raise CostError(COST_EXCEEDED)
        self._left -= max(cost, _LEAST)
        # The cost is an estimate, and says nothing of getting values ready; the clock (0.3 µs) is what holds anyway.
        if self._left < 0 or thread_time() > self._end:
            self.spent = True
            raise CostError(SPENT)
