"""DynamicResources' PreBind at the plugin contract: what is written, in which order, and what becomes of it."""

import copy
import json
from typing import Any

from koord.kube.dynamicresources import FINALIZER
from koord.scheduler.framework.contract import PodRef, PreBind, Release, Write
from koord.scheduler.framework.events import ClusterEvent
from tests.scheduler.dra.objects import DRIVER, DeviceBed, Object, allocated, claim, request, slice_, using


class Api(DeviceBed):
    """Executes writes as the API server does: those for another version are conflicts."""

    def __init__(self) -> None:
        super().__init__("a", "b")
        for name in ("a", "b"):
            self.tell("slice", slice_(f"s-{name}", 1, node=name))

    def plan(self, name: str, *claims: str) -> tuple[PodRef, str]:
        pod = self.pod(name, using(*claims))
        return pod.ref, self.placed(pod).node

    def start(self, ref: PodRef, node: str) -> tuple[Write, ...]:
        wanted = self.plugin.prebind(ref, node)
        assert isinstance(wanted, PreBind), wanted
        assert wanted.timeout_s == 600.0
        return wanted.writes

    def more(self, ref: PodRef) -> tuple[Write, ...]:
        wanted = self.plugin.prebound(ref.uid)
        assert isinstance(wanted, PreBind), wanted
        return wanted.writes

    def execute(self, write: Write) -> bool:
        body = copy.deepcopy(self.claim_of(write.name))
        meta = body["metadata"]
        assert write.uid == meta["uid"]
        if write.resource_version != meta["resourceVersion"]:
            return False
        change: Any = json.loads(write.body)
        assert set(change) == ({"status"} if write.subresource else {"metadata"})
        for part, fields in change.items():
            for name, value in fields.items():
                if value is None:
                    body[part].pop(name, None)
                else:
                    body[part][name] = value
        self.tell("claim", body)
        return True


def test_the_finalizer_comes_first_then_devices_and_user() -> None:
    api = Api()
    api.tell("claim", claim("c", finalizers=["x.io/mine"]))
    ref, node = api.plan("p", "c")
    [mark] = api.start(ref, node)
    assert json.loads(mark.body) == {"metadata": {"finalizers": ["x.io/mine", FINALIZER]}}
    assert api.plugin.prebound(ref.uid) is False
    assert api.execute(mark)
    [give] = api.more(ref)
    assert (give.subresource, give.name, give.namespace) == ("status", "c", "default")
    assert json.loads(give.body)["status"] == {
        "allocation": allocated("gpu-0", pool=node, node=node),
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "uid-default-p"}],
    }
    assert api.plugin.prebound(ref.uid) is False
    assert api.execute(give)
    assert api.plugin.prebound(ref.uid) is True
    assert api.book.promises == {}


def test_a_claim_that_has_devices_is_told_its_user_alone() -> None:
    api = Api()
    given = allocated("gpu-0", pool="a", node="a")
    api.tell("claim", claim("c", allocation=given, users=["other"], finalizers=[FINALIZER]))
    ref, node = api.plan("p", "c")
    [write] = api.start(ref, node)
    assert node == "a"
    users = [{"resource": "pods", "name": name, "uid": f"uid-default-{name}"} for name in ("other", "p")]
    assert json.loads(write.body) == {"status": {"reservedFor": users}}
    assert api.execute(write)
    assert api.plugin.prebound(ref.uid) is True
    # Whoever is in the list already needs nothing.
    api.engine.forget(ref.uid)
    again, node = api.plan("p", "c")
    assert api.plugin.prebind(again, node) is None


def test_one_write_for_all_pods_that_are_planned_by_then() -> None:
    api = Api()
    api.tell("claim", claim("c", finalizers=[FINALIZER]))
    first, node = api.plan("p", "c")
    second, same = api.plan("q", "c")
    assert same == node
    [write] = api.start(first, node)
    assert api.start(second, node) == ()
    # Further ones wait until it is there.
    refused = api.refusal(api.pod("r", using("c")))
    text = "resource claim default/c is in the process of being allocated"
    assert refused.message == f"0/2 nodes are available: {text}."
    assert api.plugin.prebound(second.uid) is False
    assert api.execute(write)
    assert api.plugin.prebound(first.uid) is True
    assert api.plugin.prebound(second.uid) is True
    assert api.placed(api.pod("r", using("c"))).node == node


def test_somebody_else_changed_the_claim() -> None:
    api = Api()
    api.tell("claim", claim("c", finalizers=[FINALIZER]))
    ref, node = api.plan("p", "c")
    [write] = api.start(ref, node)
    api.tell("claim", {**claim("c", finalizers=[FINALIZER, "y.io/more"])})
    assert not api.execute(write)
    assert api.plugin.prebound(ref.uid) == "resource claim default/c was changed while it was allocated"
    assert api.book.promises == {}
    api.engine.forget(ref.uid)
    ref, node = api.plan("p", "c")
    [write] = api.start(ref, node)
    assert api.execute(write)
    assert api.plugin.prebound(ref.uid) is True


def test_claims_that_go_or_are_made_anew() -> None:
    api = Api()
    api.tell("claim", claim("c", finalizers=[FINALIZER]))
    ref, node = api.plan("p", "c")
    api.start(ref, node)
    api.gone("claim", "default/c")
    assert api.plugin.prebound(ref.uid) == 'resourceclaim.resource.k8s.io "c" not found'
    api.engine.forget(ref.uid)
    api.tell("claim", claim("c"))
    ref, node = api.plan("p", "c")
    api.gone("claim", "default/c")
    assert api.plugin.prebind(ref, node) == 'resourceclaim.resource.k8s.io "c" not found'
    # One of the same name is another claim.
    api.tell("claim", claim("c") | {"metadata": {**claim("c")["metadata"], "uid": "another"}})
    assert api.plugin.prebind(ref, node) == "resource claim default/c was changed while it was allocated"


def test_a_write_of_which_nobody_knows_keeps_its_devices() -> None:
    api = Api()
    api.tell("claim", claim("c", finalizers=[FINALIZER]))
    ref, node = api.plan("p", "c")
    [lost] = api.start(ref, node)
    api.engine.forget(ref.uid)  # time is up; the write may still happen
    other = "b" if node == "a" else "a"
    api.tell("claim", claim("d"))
    assert api.plan("q", "d")[1] == other
    api.tell("claim", claim("e"))
    assert "2 cannot allocate all claims" in api.refusal(api.pod("r", using("e"))).message
    # The pod is tried again: the same devices, for the same version of the claim.
    ref, again = api.plan("p", "c")
    assert again == node
    [write] = api.start(ref, node)
    assert json.loads(write.body) == json.loads(lost.body)
    assert api.execute(lost)
    assert not api.execute(write)
    assert api.plugin.prebound(ref.uid) is True


def test_devices_in_doubt_are_free_once_the_claim_has_another_version() -> None:
    api = Api()
    api.tell("claim", claim("c", finalizers=[FINALIZER]))
    ref, node = api.plan("p", "c")
    [lost] = api.start(ref, node)
    api.engine.forget(ref.uid)
    api.tell("claim", claim("c", finalizers=[FINALIZER, "y.io/more"]))
    assert not api.execute(lost)
    for name in ("d", "e"):
        api.tell("claim", claim(name))
    assert {api.plan("q", "d")[1], api.plan("r", "e")[1]} == {"a", "b"}


def test_what_keeps_a_pod_from_every_node_is_given_back() -> None:
    api = Api()
    api.tell("claim", claim("c", allocation=allocated("gpu-0", pool="a", node="a"), finalizers=[FINALIZER]))
    api.node("a", cpu=0)
    pod = api.pod("p", using("c"))
    refused = api.refusal(pod)
    found = api.plugin.post_filter(pod, api.engine, refused)
    assert isinstance(found, Release)
    assert found.text == "deallocation of ResourceClaim completed"
    [write] = found.writes
    assert (write.subresource, json.loads(write.body)) == (
        "status",
        {"status": {"allocation": None, "reservedFor": None}},
    )
    assert api.execute(write)
    assert api.plan("p", "c")[1] == "b"
    # Not if somebody uses it, and not where it keeps nobody off.
    api.tell("claim", claim("d", allocation=allocated("x", pool="z", node="z"), users=["other"]))
    pod = api.pod("q", using("d"))
    assert api.plugin.post_filter(pod, api.engine, api.refusal(pod)) is None
    api.tell("claim", claim("e", request("gpu", "gpu", 9)))
    pod = api.pod("r", using("e"))
    assert api.plugin.post_filter(pod, api.engine, api.refusal(pod)) is None


def test_a_write_in_doubt_that_keeps_a_pod_from_every_node_is_made_void() -> None:
    api = Api()
    api.tell("claim", claim("c", finalizers=[FINALIZER]))
    ref, node = api.plan("p", "c")
    [lost] = api.start(ref, node)
    api.engine.forget(ref.uid)
    api.node(node, cpu=0)
    pod = api.pod("p", using("c"))
    found = api.plugin.post_filter(pod, api.engine, api.refusal(pod))
    assert isinstance(found, Release)
    [write] = found.writes
    body: Object = json.loads(write.body)
    assert write.subresource == "" and list(body["metadata"]["annotations"]) == ["koord.sh/allocation-dropped"]
    api.claim_of("c")["metadata"].setdefault("annotations", {})
    assert api.execute(write)
    assert not api.execute(lost)
    assert api.plan("p", "c")[1] != node


def test_slots_are_the_devices_that_nobody_else_may_have() -> None:
    api = Api()
    api.tell("claim", claim("c"))
    placed = api.placed(api.pod("p", using("c")))
    assert placed.slots == (f"device/{DRIVER}/{placed.node}/gpu-0",)
    assert api.plugin.helps(
        api.pod("q", using("c")).class_.template, ClusterEvent.POD_DELETE, api.engine.counted("uid-default-p")
    )
