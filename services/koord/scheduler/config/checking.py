"""Rules of the file's own fields, with upstream's messages: leader election, back-off, shares."""

from collections.abc import Iterator

from koord.scheduler.config.document import Document
from koord.scheduler.config.errors import Problem, invalid
from koord.scheduler.config.extenders import check_extenders
from koord.scheduler.config.model import LeaderElection


def check_document(document: Document, leader: LeaderElection) -> Iterator[Problem]:
    """What is wrong above the profiles. ``leader`` has its defaults."""
    if document.client_connection.burst < 0:
        yield invalid("clientConnection.burst", document.client_connection.burst, "must be non-negative")
    yield from _check_leader_election(leader)
    if document.parallelism is not None and document.parallelism <= 0:
        yield invalid("parallelism", document.parallelism, "should be an integer value greater than zero")
    percentage = document.percentage_of_nodes_to_score
    if percentage is not None and not 0 <= percentage <= 100:
        yield invalid("percentageOfNodesToScore", percentage, "not in valid range [0-100]")
    first = 1 if document.pod_initial_backoff_seconds is None else document.pod_initial_backoff_seconds
    most = 10 if document.pod_max_backoff_seconds is None else document.pod_max_backoff_seconds
    if first <= 0:
        yield invalid("podInitialBackoffSeconds", first, "must be greater than 0")
    if most < first:
        yield invalid("podMaxBackoffSeconds", most, "must be greater than or equal to PodInitialBackoffSeconds")
    yield from check_extenders(document.extenders)


def _check_leader_election(leader: LeaderElection) -> Iterator[Problem]:
    if not leader.leader_elect:
        return
    path = "leaderElection"
    for field, seconds in (
        ("leaseDuration", leader.lease_duration),
        ("renewDeadline", leader.renew_deadline),
        ("retryPeriod", leader.retry_period),
    ):
        if seconds <= 0:
            yield invalid(f"{path}.{field}", f"{seconds:g}s", "must be greater than zero")
    if leader.lease_duration <= leader.renew_deadline:
        yield invalid(f"{path}.leaseDuration", f"{leader.renew_deadline:g}s", "must be greater than `RenewDeadline`")
    if leader.resource_lock != "leases":
        yield invalid(f"{path}.resourceLock", leader.resource_lock, 'resourceLock value must be "leases"')
