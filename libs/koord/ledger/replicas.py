"""Whether a move must reach a replica before it counts.

A primary that was parted from its replicas may have been replaced by one of them, so it must confirm nothing. Redis
sees to that with ``min-replicas-to-write 1``; without it, a server that once had a replica is waited for as long as it
lives.
"""

from typing import Final

from koord.ledger.replies import info_of
from koord.ledger.resp import Reply

BELIEVED_S: Final = 10.0
"""How long the number of replicas is believed."""


class Replicas:
    """The replicas of the server that the client is connected to. Times are monotonic seconds, passed in."""

    def __init__(self) -> None:
        self.count = 0
        self._run_id = ""
        self._until_s = 0.0

    def due(self, now_s: float) -> bool:
        """Whether they have to be counted again."""
        return now_s >= self._until_s

    def note(self, replication: Reply, now_s: float, run_id: str = "") -> None:
        """What INFO replication says, of the server ``run_id`` (empty: the same)."""
        found = info_of(replication)
        count = int(found.get("connected_slaves", "0"))
        same = not run_id or run_id == self._run_id
        if same and "min_slaves_good_slaves" not in found:  # shown only where Redis itself demands replicas
            count = max(count, min(self.count, 1))
        self.count = count
        self._run_id = run_id or self._run_id
        self._until_s = now_s + BELIEVED_S
