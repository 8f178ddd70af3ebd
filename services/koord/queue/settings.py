"""Settings of the queue service."""

from fractions import Fraction

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

    ``oversell_rate``: max times this may be admitted; set the quota service's to the same, it writes the limits.
    ``requeue_state``: double the backoff with every failure; false keeps the released version's flat wait.
    """

    timeouts: dict[str, Timeouts] = {}
    manage_all_jobs: bool = False
    requeue_state: bool = True
    oversell_rate: str | float = 1.0

    def __post_init__(self) -> None:
        self.rate()
        for kind in self.timeouts:
            if kind not in DEFAULT_TIMEOUTS:
                raise ValueError(f"queue.timeouts.{kind}: unknown kind, known are {', '.join(DEFAULT_TIMEOUTS)}")

    def all_timeouts(self) -> dict[str, Timeouts]:
        """The defaults and what was set."""
        return {**DEFAULT_TIMEOUTS, **self.timeouts}

    def rate(self) -> Fraction:
        """``oversell_rate``, exactly; ValueError if it is no number above 0."""
        try:
            rate = Fraction(str(self.oversell_rate))
        except (ValueError, ZeroDivisionError) as error:
            raise ValueError(f"queue.oversell_rate: must be a number above 0, got {self.oversell_rate!r}") from error
        if rate <= 0:
            raise ValueError(f"queue.oversell_rate: must be a number above 0, got {self.oversell_rate!r}")
        return rate
