"""Every kind of message once: its subject, who sends it, and whether it may travel without a trace context.

The bus test fails on a message without ``traceparent`` whose kind is not exempt here; AsyncAPI is generated from this
list.
"""

import msgspec

from koord.contracts.asks import (
    BarrierRaised,
    BindingGuarantees,
    BindingsSettled,
    ExplainPod,
    PodExplanation,
    RaiseBarrier,
    Refusal,
    SettleBindings,
    WhichGuarantees,
)
from koord.contracts.decisions import Bind, Create, Delete, Evict, Patch, RecordEvents
from koord.contracts.gang import GangHint
from koord.contracts.ledger import EpochHint, LedgerHint
from koord.contracts.quota import QuotaRuntime
from koord.contracts.results import Result


class MessageKind(msgspec.Struct, frozen=True, omit_defaults=True):
    """One kind of message. ``subject`` is below ``koord.<cluster>.``; ``exempt`` says why it needs no trace context.

    ``answers`` names the question that a reply belongs to; empty: any question. ``copies`` names the kinds of
    which copies travel here; such a kind has no message of its own.
    """

    name: str
    subject: str
    sender: str
    summary: str
    body: type | None = None
    exempt: str = ""
    answers: str = ""
    copies: tuple[str, ...] = ()


CATALOG: tuple[MessageKind, ...] = (
    MessageKind(
        "State",
        "state.{token}.{namespace}.{name}",
        "gateway",
        "An API object as the API server sent it, less managedFields; header Koord: type, resourceVersion, epoch.",
        exempt="the object itself carries its trace in the annotation koord.sh/traceparent",
    ),
    MessageKind(
        "LiveState",
        "live.state.{token}.{namespace}.{name}",
        "gateway",
        "A copy of a State message, sent while the state stream confirms nothing (NATS cluster only).",
        exempt="the object itself carries its trace in the annotation koord.sh/traceparent",
    ),
    MessageKind("Bind", "decision.{service}.bind", "scheduler", "Bind the members of one claim.", Bind),
    MessageKind("Create", "decision.{service}.create", "queue, quota, manager", "Create an object.", Create),
    MessageKind("Patch", "decision.{service}.patch", "queue, quota, scheduler, manager", "Patch an object.", Patch),
    MessageKind("Delete", "decision.{service}.delete", "queue", "Delete an object.", Delete),
    MessageKind("Evict", "decision.{service}.evict", "scheduler, quota", "Evict a pod.", Evict),
    MessageKind("RecordEvents", "decision.{service}.event", "every service", "Record Kubernetes Events.", RecordEvents),
    MessageKind(
        "LiveDecision",
        "live.decision.{service}.{kind}",
        "queue, quota, scheduler, manager",
        "A copy of a decision that its stream does not confirm (NATS cluster only); the stream's own copy settles it.",
        copies=("Bind", "Create", "Patch", "Delete", "Evict"),
    ),
    MessageKind("Result", "result.{service}.{id}", "gateway", "What became of a decision.", Result),
    MessageKind(
        "LedgerHint",
        "ledger.claim.{event}",
        "reconciler, gateway, scheduler, queue, quota",
        "Records moved; room may have come free.",
        LedgerHint,
        exempt="a wake-up for many flows at once; carries no work",
    ),
    MessageKind(
        "EpochHint",
        "ledger.epoch",
        "reconciler",
        "The ledger was opened under a new epoch.",
        EpochHint,
        exempt="a wake-up for many flows at once; carries no work",
    ),
    MessageKind(
        "GangHint",
        "gang.{event}.{namespace}.{name}",
        "scheduler",
        "A gang became ready, was satisfied or rejected.",
        GangHint,
        exempt="a wake-up about many pods at once; carries no work",
    ),
    MessageKind(
        "QuotaRuntime",
        "quota.runtime.{tree}",
        "quota",
        "Runtime quotas of one tree, or of a part of a large one.",
        QuotaRuntime,
        exempt="a periodic value computed from many objects",
    ),
    MessageKind(
        "LiveQuotaRuntime",
        "live.quota.runtime.{tree}",
        "quota",
        "A copy of runtime quotas that their stream does not confirm (NATS cluster only); never the record.",
        exempt="a periodic value computed from many objects",
        copies=("QuotaRuntime",),
    ),
    MessageKind("ExplainPod", "ask.scheduler.explain", "cli", "Why is this pod where it is?", ExplainPod),
    MessageKind(
        "PodExplanation",
        "(reply)",
        "scheduler",
        "The scheduler's view of one pod.",
        PodExplanation,
        answers="ExplainPod",
    ),
    MessageKind(
        "SettleBindings",
        "ask.gateway.settle",
        "reconciler",
        "Is a write for these records still to come? If not, make sure that none succeeds.",
        SettleBindings,
    ),
    MessageKind(
        "BindingsSettled",
        "(reply)",
        "gateway",
        "Which of the records are bound, gone, still in hand, or unbound for good.",
        BindingsSettled,
        answers="SettleBindings",
    ),
    MessageKind(
        "RaiseBarrier",
        "ask.gateway.barrier",
        "reconciler",
        "The ledger is to be rebuilt: let no older write succeed, raise its epoch, list anew.",
        RaiseBarrier,
    ),
    MessageKind(
        "BarrierRaised",
        "(reply)",
        "gateway",
        "How far the barrier is, and once it is done the ledger's new epoch.",
        BarrierRaised,
        answers="RaiseBarrier",
    ),
    MessageKind(
        "WhichGuarantees",
        "ask.gateway.guarantees",
        "scheduler",
        "Does the API server honour preconditions of Bindings, and if not, who may bind?",
        WhichGuarantees,
    ),
    MessageKind(
        "BindingGuarantees",
        "(reply)",
        "gateway",
        "What was tried of the API server, and the one scheduler that may bind where it must be one.",
        BindingGuarantees,
        answers="WhichGuarantees",
    ),
    MessageKind("Refusal", "(reply)", "any service", "The question could not be answered.", Refusal),
)
