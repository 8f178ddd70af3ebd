"""Subjects and streams: every name on the bus is made here, so that a typo is a missing attribute.

All names start with the cluster (design section 4): two clusters can share one NATS. A Kubernetes name may hold dots,
which separate tokens in NATS; they become ``_``, which no Kubernetes name has.
"""

import re

import msgspec

_NO_TOKEN = re.compile(r"[\s\x00-\x1f\x7f.*>]")
_LONGEST = 200
_CLUSTER = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class SubjectError(ValueError):
    """A name that cannot be part of a subject; says which and why."""


def safe(token: str) -> str:
    """A Kubernetes name as one NATS token."""
    return token.replace(".", "_")


def token_of(text: str) -> str:
    """Any text as one NATS token: decision ids and gang names come from outside and may hold what no subject can."""
    return _NO_TOKEN.sub("_", text[:_LONGEST]) or "_"


class Subjects(msgspec.Struct, frozen=True):
    """All subjects, streams and buckets of one cluster."""

    cluster: str

    def __post_init__(self) -> None:
        if not _CLUSTER.fullmatch(self.cluster):
            raise SubjectError(f"cluster: {self.cluster!r} is not a DNS label (a-z, 0-9, '-', at most 63 characters)")

    @property
    def root(self) -> str:
        """What every subject of this cluster begins with."""
        return f"koord.{self.cluster}"

    # Streams and buckets ------------------------------------------------------------------------------------------

    @property
    def state_stream(self) -> str:
        """API objects, last message per subject."""
        return f"{self.cluster}-KOORD_STATE"

    @property
    def decisions_stream(self) -> str:
        """The work queue of writes to the API."""
        return f"{self.cluster}-KOORD_DECISIONS"

    @property
    def quota_stream(self) -> str:
        """Runtime quotas as computed, last message per tree."""
        return f"{self.cluster}-KOORD_QUOTA"

    @property
    def leases_bucket(self) -> str:
        """Key-value bucket of leader leases; it only elects (fencing epochs come from the ledger)."""
        return f"{self.cluster}-KOORD_LEASES"

    # API objects --------------------------------------------------------------------------------------------------

    def state(self, token: str, namespace: str, name: str) -> str:
        """One object: ``token`` is ``<plural>_<group>``; a cluster-scoped object has namespace ``_``."""
        return f"koord.{self.cluster}.state.{token}.{safe(namespace) or '_'}.{safe(name)}"

    def state_of(self, token: str) -> str:
        """Every object of one resource."""
        return f"koord.{self.cluster}.state.{token}.>"

    @property
    def state_all(self) -> str:
        """What the state stream captures."""
        return f"koord.{self.cluster}.state.>"

    # Live copies --------------------------------------------------------------------------------------------------

    def live_of(self, subject: str) -> str:
        """Where a message on ``subject`` is copied to while its stream has no leader; no stream captures that."""
        root = len(self.cluster) + 7
        return f"koord.{self.cluster}.live.{subject[root:]}"

    def live_state_of(self, token: str) -> str:
        """Live copies of every object of one resource."""
        return f"koord.{self.cluster}.live.state.{token}.>"

    @property
    def live_decision_all(self) -> str:
        """Live copies of every decision."""
        return f"koord.{self.cluster}.live.decision.>"

    # Decisions and their results ----------------------------------------------------------------------------------

    def decision(self, service: str, kind: str) -> str:
        """A decision of ``service``; NATS permissions on this subject say who may publish it."""
        return f"koord.{self.cluster}.decision.{service}.{kind}"

    @property
    def decision_all(self) -> str:
        """What the decisions stream captures."""
        return f"koord.{self.cluster}.decision.>"

    def result(self, service: str, decision_id: str) -> str:
        """Where the outcome of one decision is told."""
        return f"koord.{self.cluster}.result.{service}.{token_of(decision_id)}"

    def results_of(self, service: str) -> str:
        """Every outcome of one service's decisions."""
        return f"koord.{self.cluster}.result.{service}.>"

    # Ledger, gangs, quota: hints ----------------------------------------------------------------------------------

    def ledger(self, event: str) -> str:
        """A hint that the ledger changed: ``claim.held``, ``claim.released``, ``conflict``, ``epoch``, …."""
        return f"koord.{self.cluster}.ledger.{event}"

    @property
    def ledger_all(self) -> str:
        """Every ledger hint."""
        return f"koord.{self.cluster}.ledger.>"

    def gang(self, event: str, namespace: str, name: str) -> str:
        """A gang became ready, satisfied or was rejected."""
        return f"koord.{self.cluster}.gang.{event}.{token_of(namespace)}.{token_of(name)}"

    def quota_runtime(self, tree: str) -> str:
        """Runtime quotas of one tree (``_`` is the default tree), or of a part of one, ``<tree>/<part>``."""
        return f"koord.{self.cluster}.quota.runtime.{token_of(tree)}"

    @property
    def quota_runtime_all(self) -> str:
        """Runtime quotas of every tree."""
        return f"koord.{self.cluster}.quota.runtime.>"

    # Questions ----------------------------------------------------------------------------------------------------

    def ask(self, service: str, verb: str) -> str:
        """A synchronous question; never on a per-pod path."""
        return f"koord.{self.cluster}.ask.{service}.{verb}"
