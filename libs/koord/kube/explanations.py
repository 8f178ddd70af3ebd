# ruff: noqa: RUF012 - msgspec gives every instance its own copy of an empty default
"""ScheduleExplanation (spec 10 section 2.10): a user's question why pods wait, answered in the status.

A status is written whole, false and empty values included: in a merge patch what is left out stays as it was.
"""

from typing import Any

import msgspec

from koord.kube.meta import TypedObject, View

DEFAULT_TTL = "24h"


class ExplanationSpec(View, frozen=True):
    """``question_object_key``: a pod's or job's ``ns/name``, or a gang group's id. ``ttl``: a Go duration, 0: for ever.

    ``question_object_template`` is not supported; it is read to say so.
    """

    question_object_key: str = ""
    question_object_template: Any = None
    ttl: str = DEFAULT_TTL


class SchedulingResult(View, frozen=True):
    """Where one pod is, or could be."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    node_name: str = ""


class NodeFailedDetail(View, frozen=True, omit_defaults=False):
    """Nodes that one plugin refused for one reason."""

    failed_plugin: str = ""
    reason: str = ""
    preempt_might_help: bool = False
    failed_nodes: list[str] = []


class Explanation(View, frozen=True, omit_defaults=False):
    """The outcome of one look at a domain."""

    schedulable: bool = False
    failed_message: str = ""
    feasible_scheduling_result: list[SchedulingResult] = []
    node_failed_details: list[NodeFailedDetail] = []


class PossibleVictim(View, frozen=True):
    """A pod that would have to go."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    is_nominated_pod: bool = False


class NodePossibleVictims(View, frozen=True):
    """The pods of one node that would have to go."""

    node_name: str = ""
    possible_victims: list[PossibleVictim] = []


class DetailedExplanation(View, frozen=True, omit_defaults=False):
    """What was found in one topology domain; ``""`` is the whole cluster."""

    topology_domain: str = ""
    schedulable: bool = False
    schedulable_after_preemption: bool = False
    failed_message: str = ""
    schedule_explanation: Explanation | msgspec.UnsetType | None = msgspec.UNSET
    node_possible_victims: list[NodePossibleVictims] = []
    preempt_explanation: Explanation | msgspec.UnsetType | None = msgspec.UNSET


class ExplanationStatus(View, frozen=True, omit_defaults=False):
    """The answer, and when it was last written (RFC 3339)."""

    schedulable: bool = False
    schedulable_after_preemption: bool = False
    failed_message: str = ""
    last_update_time: str | msgspec.UnsetType | None = msgspec.UNSET
    detailed_explanation: list[DetailedExplanation] = []


class ScheduleExplanation(TypedObject, frozen=True):
    """One question with its answer."""

    spec: ExplanationSpec = msgspec.field(default_factory=ExplanationSpec)
    status: ExplanationStatus = msgspec.field(default_factory=ExplanationStatus)
