"""Questions that the CLI and services put to services, and the answers. Never on a per-pod path."""

from typing import Literal

import msgspec

from koord.contracts.decisions import ObjectRef


class Refusal(msgspec.Struct, frozen=True, tag="refusal", tag_field="kind", omit_defaults=True):
    """An answer that is an error: names the object and the rule. Its tag tells it from every other answer."""

    error: str


class ExplainPod(msgspec.Struct, frozen=True):
    """Why is this pod where it is, or why is it nowhere? Subject ``ask.scheduler.explain``."""

    namespace: str
    name: str
    v: int = 1


class NodeReason(msgspec.Struct, frozen=True):
    """How many nodes one plugin refused, in the words users know."""

    plugin: str
    reason: str
    nodes: int


class QuotaLevel(msgspec.Struct, frozen=True, omit_defaults=True):
    """One quota on the pod's chain, leaf first."""

    name: str
    limit: dict[str, int]
    used: dict[str, int]
    short: dict[str, int] = {}


class NearNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node that comes near to taking a pod: all that its rules say, and what is missing of which resource."""

    node: str
    reasons: list[str] = []
    short: dict[str, int] = {}


class PodExplanation(msgspec.Struct, frozen=True, omit_defaults=True):
    """The scheduler's view of one pod.

    ``state``: active, backoff, unschedulable, gated, planned, binding, bound, unknown, foreign (another scheduler's),
    elsewhere (another replica's of this scheduler: ask again, any of them may answer).

    Of a pod that waits: ``waiting_s`` since it entered the queue, ``backoff_s`` until it may be tried, ``rejected_by``
    the plugins that refused it last and ``wakes_on`` the events after which it is tried again, ``nearest`` the nodes
    that are refused by the fewest rules and short of the least.
    """

    namespace: str
    name: str
    state: str
    node: str = ""
    message: str = ""
    attempts: int = 0
    total_nodes: int = 0
    feasible_nodes: int = 0
    reasons: list[NodeReason] = []
    quota: list[QuotaLevel] = []
    gang: str = ""
    gang_members: int = 0
    gang_minimum: int = 0
    error: str = ""
    waiting_s: float = 0.0
    backoff_s: float = 0.0
    rejected_by: list[str] = []
    wakes_on: list[str] = []
    nearest: list[NearNode] = []
    v: int = 1


class BindingRecord(msgspec.Struct, frozen=True):
    """A ledger record that is BINDING: its pod or QueueUnit (with uid), and its claim.

    ``decision``: what advanced it; ``age_s``: for so many seconds the reconciler has seen nobody advance it again.
    """

    target: ObjectRef
    claim: str
    decision: str = ""
    age_s: float = 0.0


class SettleBindings(msgspec.Struct, frozen=True):
    """Is a write for these still to come? If not, make sure of it. Subject ``ask.gateway.settle``; at most 256."""

    records: list[BindingRecord]
    v: int = 1


BindingState = Literal["busy", "bound", "gone", "unbound"]


class SettledBinding(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the gateway found.

    ``busy``: a decision with that claim waits or runs, or nothing final can be said; ask again later. ``bound``: the
    API has the pod on ``node``, or the unit with admissions. ``gone``: no object with this uid. ``unbound``: none of
    these, and the object's version was changed, so that every write that may still be under way fails.
    """

    uid: str
    state: BindingState
    node: str = ""


class RaiseBarrier(msgspec.Struct, frozen=True):
    """Let no write for a claim succeed any more, raise the ledger's epoch, list anew. Subject ``ask.gateway.barrier``.

    ``id`` names one barrier: asked again with the same id it goes on, with another one it begins afresh. ``epoch``:
    the new epoch is at least this; ``role_epoch``: the reconciler's own, an older one is refused. ``resources``: what
    has to be listed, as tokens. The answer comes within two seconds, finished or not; ask until it is.
    """

    id: str
    role_epoch: int
    epoch: int
    resources: list[str]
    v: int = 1


class BarrierRaised(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far the barrier is: ``step`` is ``settling`` (and how far, in words), ``raising``, ``listing``
    or ``done``.

    Once done: ``epoch`` is what the ledger may be opened under, ``id`` the mark that follows the lists in the state
    stream, ``role_epoch`` and ``incarnation`` those of the gateway, which a ledger that lost its data must know again.
    """

    id: str
    step: str
    epoch: int = 0
    role_epoch: int = 0
    incarnation: str = ""
    settled: int = 0
    v: int = 1


class BindingsSettled(msgspec.Struct, frozen=True):
    """The answer to SettleBindings, in its order."""

    records: list[SettledBinding]
    v: int = 1


Preconditions = Literal["unknown", "honoured", "ignored"]


class WhichGuarantees(msgspec.Struct, frozen=True, omit_defaults=True):
    """What does the API server promise about Bindings? Subject ``ask.gateway.guarantees``.

    ``scheduler`` is the incarnation of a scheduler that asks for itself, each two seconds; empty: somebody else asks.
    """

    scheduler: str = ""
    v: int = 1


class BindingGuarantees(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether uid and resourceVersion of a Binding are preconditions of the write, as the gateway has tried it.

    Unless they are ``honoured`` only one scheduler may bind: ``scheduler`` is its incarnation, empty if there is none
    at the moment. ``server`` is the version that the API server names.
    """

    preconditions: Preconditions
    server: str = ""
    scheduler: str = ""
    v: int = 1
