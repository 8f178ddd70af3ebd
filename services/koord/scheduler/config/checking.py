"""Rules of the file's own fields, with upstream's messages: leader election, back-off, extenders."""

from collections.abc import Iterator, Sequence

from koord.scheduler.config.document import Document, Extender
from koord.scheduler.config.errors import Problem, invalid
from koord.scheduler.config.model import LeaderElection
from koord.scheduler.config.rules import check_qualified_name, is_extended


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
    yield from _check_extenders(document.extenders)


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


def _check_extenders(extenders: Sequence[Extender]) -> Iterator[Problem]:
    managed: set[str] = set()
    for index, extender in enumerate(extenders):
        path = f"extenders[{index}]"
        if extender.prioritize_verb and extender.weight <= 0:
            yield invalid(f"{path}.weight", extender.weight, "must have a positive weight applied to it")
        for number, resource in enumerate(extender.managed_resources):
            where = f"{path}.managedResources[{number}].name"
            found = list(check_qualified_name(where, resource.name))
            yield from found
            if not found and not is_extended(resource.name):
                yield invalid(where, resource.name, "is an invalid extended resource name")
            if resource.name in managed:
                yield invalid(where, resource.name, "duplicate extender managed resource name")
            managed.add(resource.name)
    binders = sum(bool(extender.bind_verb) for extender in extenders)
    if binders > 1:
        value = f"found {binders} extenders implementing bind"
        yield invalid("extenders", value, "only one extender can implement bind")
