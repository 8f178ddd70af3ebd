"""What became of decisions: so that one that comes again is answered again, and not executed again.

A decision comes again when its acknowledgement was lost, when its publisher heard nothing and repeats it, and, in a
NATS cluster, once for each way on which it came while the queue had no leader. That takes seconds, at most a few
minutes.
"""

from collections import OrderedDict

from koord.contracts.codec import decode, encode
from koord.contracts.results import Result

LEAST = 20_000
KEEP_S = 300.0
MOST = 100_000


class Remembered:
    """The last ``least`` results, and all of the last ``keep_s`` seconds up to ``most``. Times are passed in.

    Kept as they travel: a third of the memory, and nothing for the collector to look through.
    """

    def __init__(self, least: int = LEAST, keep_s: float = KEEP_S, most: int = MOST) -> None:
        self._least = least
        self._keep_s = keep_s
        self._most = most
        self._results: OrderedDict[str, tuple[float, bytes]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._results)

    def put(self, result: Result, now: float) -> None:
        """A final result; ``now`` in monotonic seconds."""
        results = self._results
        results[result.id] = (now, encode(result))
        while len(results) > self._most or (
            len(results) > self._least and next(iter(results.values()))[0] < now - self._keep_s
        ):
            results.popitem(last=False)

    def get(self, id_: str) -> Result | None:
        """What became of a decision, if that is remembered."""
        found = self._results.get(id_)
        return None if found is None else decode(Result, found[1])
