"""What an operator wants done, and how it says that a job is malformed.

Decisions are pure: a job, its pods and the time in, a plan out.
"""

from typing import Literal, NamedTuple, Protocol

import msgspec

from koord.localcluster.clusterapi import Object, Objects
from koord.localcluster.operators.observed import Observed, PodSeen


class JobInvalid(Exception):
    """A job that cannot be obeyed: names the field and the rule. It becomes an Event on the job and nothing else."""

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(f"{field}: {rule}")
        self.field = field
        self.rule = rule


class Notice(NamedTuple):
    """An Event on the job."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


class Plan(msgspec.Struct):
    """The writes to make: the status first, then deletes, then creates.

    `status` is the whole new status (None: leave it); `again_s` asks for another look after so many seconds;
    `delete_job` ends a finished job whose time to live is over.
    """

    status: Object | None = None
    delete: list[PodSeen] = []
    create: Objects = []
    notices: list[Notice] = []
    again_s: float | None = None
    delete_job: bool = False

    def look_again(self, seconds: float) -> None:
        """Ask for another look, at the latest after `seconds`."""
        self.again_s = seconds if self.again_s is None else min(self.again_s, seconds)


class Operator(Protocol):
    """One stand-in operator: a resource (as `ClusterApi` names it) and its decision."""

    @property
    def resource(self) -> str:
        """The resource whose objects it obeys, such as `jobs.batch`."""
        ...

    @property
    def api_version(self) -> str:
        """Their apiVersion."""
        ...

    @property
    def kind(self) -> str:
        """Their kind."""
        ...

    def decide(self, job: Object, observed: Observed, now: float) -> Plan:
        """What to do about `job` now (seconds since the epoch); `JobInvalid` if it cannot be read. Changes nothing."""
        ...
