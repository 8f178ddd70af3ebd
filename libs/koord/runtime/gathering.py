"""Company for what comes alone: under load a few milliseconds' wait makes batches, and batches are what is cheap.

A single message costs every process on its way a wake-up, a system call and a round trip, several times what it costs
as one of many. While little comes nobody waits; when so much comes that ``company`` things arrive within ``most_s``
anyway, whoever reads them pauses for that long after each batch. The pause gets shorter the more comes. Pure: times are
monotonic seconds, passed in.
"""

from math import exp

MEMORY_S = 0.1


class Gathering:
    """Counts what comes and says how long to wait before looking again.

    ``company``: how many to wait for. ``most_s``: the longest wait; below ``company / most_s`` a second nobody waits.
    """

    def __init__(self, company: int, most_s: float) -> None:
        self._company = company
        self._most_s = most_s
        # Decays by 1/e in MEMORY_S, so that it is the rate times MEMORY_S.
        self._level = 0.0
        self._at = 0.0

    def came(self, count: int, now: float) -> None:
        """So many came."""
        self._level = self._level * exp((self._at - now) / MEMORY_S) + count
        self._at = now

    def pause_s(self, now: float) -> float:
        """How long to wait from now on before looking again; 0 while little comes."""
        rate = self._level * exp((self._at - now) / MEMORY_S) / MEMORY_S
        return self._company / rate if rate * self._most_s >= self._company else 0.0
