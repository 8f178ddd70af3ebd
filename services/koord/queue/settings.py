"""Settings of the queue service."""

import msgspec

from koord.queue.backoff import Timeouts

DEFAULT_TIMEOUTS = {
    "TFJob": Timeouts(backoff=60.0),
    "PyTorchJob": Timeouts(backoff=60.0),
    "RayJob": Timeouts(backoff=60.0),
    "Job": Timeouts(),
}
"""Spec 70 section 2.8: a minute of backoff for training jobs, none for batch Jobs, no limit on Pending."""


class QueueSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``timeouts`` by job kind, in seconds. ``manage_all_jobs``: hold jobs that do not start suspended, too.

    ``requeue_state``: double the backoff with every failure; false keeps the released version's flat wait.
    """

    timeouts: dict[str, Timeouts] = {}
    manage_all_jobs: bool = False
    requeue_state: bool = True

    def __post_init__(self) -> None:
        for kind in self.timeouts:
            if kind not in DEFAULT_TIMEOUTS:
                raise ValueError(f"queue.timeouts.{kind}: unknown kind, known are {', '.join(DEFAULT_TIMEOUTS)}")

    def all_timeouts(self) -> dict[str, Timeouts]:
        """The defaults and what was set."""
        return {**DEFAULT_TIMEOUTS, **self.timeouts}
