"""One full and one minimal example of every message of the catalogue."""

import msgspec

from koord.contracts.asks import (
    BarrierRaised,
    BindingGuarantees,
    BindingRecord,
    BindingsSettled,
    ExplainPod,
    NodeReason,
    PodExplanation,
    QuotaLevel,
    RaiseBarrier,
    Refusal,
    SettleBindings,
    SettledBinding,
    WhichGuarantees,
)
from koord.contracts.decisions import (
    Bind,
    BindMember,
    ClaimRef,
    Create,
    Delete,
    EventNote,
    Evict,
    ObjectRef,
    Patch,
    RecordEvents,
)
from koord.contracts.gang import GangHint
from koord.contracts.ledger import EpochHint, LedgerHint
from koord.contracts.quota import QuotaRuntime, QuotaState
from koord.contracts.results import MemberResult, Result

CLAIM = ClaimRef("c-1", 7, 1)
POD = ObjectRef("pods_core", "default", "a", "uid-1", "42")
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

FULL: dict[str, msgspec.Struct] = {
    "Bind": Bind(
        "c-1", CLAIM, [BindMember("u", "default", "a", "n1", {"k": "v"}, "default/g", TRACE)], {"default/g": 1}
    ),
    "Create": Create("d-1", "queueunits_scheduling_x-k8s_io", "default", "a", b'{"spec":{}}', "owner-uid"),
    "Patch": Patch("d-2", POD, b"{}", "json", "status", CLAIM, "event"),
    "Delete": Delete("d-3", POD, "Foreground"),
    "Evict": Evict("d-4", POD, "hot node"),
    "RecordEvents": RecordEvents(
        "d-5", [EventNote(POD, "Pod", "v1", "Warning", "FailedScheduling", "0/3", "Scheduling", "koord-scheduler", 1)]
    ),
    "Result": Result("c-1", "conflict", "claim gone", 409, "43", [MemberResult("u", "gone", "NotFound")]),
    "LedgerHint": LedgerHint("released", ["node/n1"], ["u"], ["c-1"]),
    "EpochHint": EpochHint(3),
    "GangHint": GangHint("rejected", "default", "g", "default/g", 3, 3, "0/3 nodes"),
    "QuotaRuntime": QuotaRuntime(
        "gpu/1",
        5,
        [QuotaState("q", "default", "root", {"cpu": 1}, {"cpu": 2}, {"cpu": 2}, {"cpu": 1}, {"cpu": 3})],
        part=1,
        parts=2,
    ),
    "ExplainPod": ExplainPod("default", "a"),
    "PodExplanation": PodExplanation(
        "default",
        "a",
        "unschedulable",
        "n1",
        "0/3 nodes",
        2,
        3,
        0,
        [NodeReason("NodeResourcesFit", "Insufficient cpu", 3)],
        [QuotaLevel("q", {"cpu": 1}, {"cpu": 1}, {"cpu": 1})],
        "default/g",
        2,
        2,
        "none",
    ),
    "SettleBindings": SettleBindings([BindingRecord(POD, "c-1")]),
    "BindingsSettled": BindingsSettled([SettledBinding("uid-1", "bound", "n1")]),
    "RaiseBarrier": RaiseBarrier("r-1", 7, 8, ["pods_core"]),
    "BarrierRaised": BarrierRaised("r-1", "done", 8, 7, "g-1", 3),
    "WhichGuarantees": WhichGuarantees("host-scheduler-1"),
    "BindingGuarantees": BindingGuarantees("ignored", "v1.22.17", "host-scheduler-1"),
    "Refusal": Refusal("pod default/a: not known"),
}

MINIMAL: dict[str, msgspec.Struct] = {
    "Bind": Bind("c-1", CLAIM, []),
    "Create": Create("d-1", "pods_core", "default", "a", b"{}"),
    "Patch": Patch("d-2", ObjectRef("pods_core", "default", "a"), b"{}"),
    "Delete": Delete("d-3", ObjectRef("pods_core", "default", "a")),
    "Evict": Evict("d-4", ObjectRef("pods_core", "default", "a")),
    "RecordEvents": RecordEvents("d-5", []),
    "Result": Result("c-1", "done"),
    "LedgerHint": LedgerHint("held"),
    "EpochHint": EpochHint(3),
    "GangHint": GangHint("ready", "default", "g"),
    "QuotaRuntime": QuotaRuntime("", 5, []),
    "ExplainPod": ExplainPod("default", "a"),
    "PodExplanation": PodExplanation("default", "a", "unknown"),
    "SettleBindings": SettleBindings([]),
    "BindingsSettled": BindingsSettled([]),
    "RaiseBarrier": RaiseBarrier("r-1", 7, 8, []),
    "BarrierRaised": BarrierRaised("r-1", "listing"),
    "WhichGuarantees": WhichGuarantees(),
    "BindingGuarantees": BindingGuarantees("unknown"),
    "Refusal": Refusal("why"),
}
