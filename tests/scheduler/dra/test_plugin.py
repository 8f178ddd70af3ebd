"""DynamicResources at the plugin contract: where pods with claims go, and what their claims are promised."""

import json

import pytest

from koord.scheduler.dra import trying
from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.inspecting import near_misses, refusals
from koord.scheduler.framework.events import ClusterEvent
from tests.scheduler.clusters import requests
from tests.scheduler.dra.objects import (
    DRIVER,
    ZONE,
    DeviceBed,
    allocated,
    claim,
    device,
    device_class,
    first_of,
    request,
    slice_,
    using,
)

CANNOT = "0/2 nodes are available: 2 cannot allocate all claims."


def bed(a: int = 1, b: int = 1) -> DeviceBed:
    made = DeviceBed("a", "b")
    for name, count in (("a", a), ("b", b)):
        if count:
            made.tell("slice", slice_(f"s-{name}", count, node=name))
    return made


def test_a_pod_goes_where_there_are_devices() -> None:
    world = bed(a=0)
    world.tell("claim", claim("c"))
    placed = world.placed(world.pod("p", using("c")))
    assert (placed.node, placed.slots) == ("b", (f"device/{DRIVER}/b/gpu-0",))
    # The device is promised, so nobody else gets it.
    world.tell("claim", claim("d"))
    assert world.place(world.pod("q", using("d"))) == CANNOT
    world.engine.forget("uid-default-p")
    assert world.place(world.pod("q", using("d"))) == "b"


def test_a_pod_without_claims_has_no_terms() -> None:
    world = bed()
    template = world.pod("p", requests()).class_.template
    plugin, cluster = world.plugin, world.cluster
    for terms in (plugin.prefilter_terms, plugin.filter_terms, plugin.score_terms, plugin.reserve_terms):
        assert terms(template, cluster) is None
    assert world.pod("p", requests()).ref.claims == ()


def test_several_devices_and_all_of_them() -> None:
    world = bed(a=2, b=4)
    world.tell("claim", claim("three", request(count=3)))
    world.tell("claim", claim("all", request(allocationMode="All")))
    assert world.place(world.pod("p", using("three"))) == "b"
    placed = world.placed(world.pod("q", using("all")))
    assert placed.node == "a"
    assert len(placed.slots) == 2
    world.tell("claim", claim("more", request(allocationMode="All")))
    assert world.place(world.pod("r", using("more"))) == CANNOT


def test_selectors_of_class_and_request() -> None:
    world = DeviceBed("a", "b")
    world.tell("class", device_class("gpu", f'device.driver == "{DRIVER}"'))
    world.tell("slice", slice_("s-a", [device("g", model="small", memory="10Gi")], node="a"))
    world.tell("slice", slice_("s-b", [device("g", model="large", memory="80Gi")], node="b"))
    large = f'device.attributes["{DRIVER}"].model == "large"'
    roomy = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0'
    world.tell("claim", claim("c", request("gpu", "gpu", 1, large, roomy)))
    assert world.place(world.pod("p", using("c"))) == "b"
    # Another class: the driver is not the one that it wants.
    world.tell("class", device_class("other", 'device.driver == "nic.example.com"'))
    world.tell("claim", claim("d", request("nic", "other")))
    pod = world.pod("q", using("d"))
    assert world.place(pod) == CANNOT
    # The class changes, and its claims with it.
    world.tell("class", device_class("other"))
    assert world.place(pod) == "a"


def test_a_selector_that_fails_names_claim_request_device_and_rule() -> None:
    world = bed(b=0)
    world.tell("claim", claim("c", request("gpu", "gpu", 1, 'device.attributes["x.io"].model == "a"')))
    world.tell("claim", claim("d", request("gpu", "gpu", 1, "device.driver ==")))
    text = (
        f"claim default/c, request gpu: selector #0 on device {DRIVER}/a/gpu-0: CEL runtime error: no such key: model"
    )
    assert (
        world.place(world.pod("p", using("c"))) == f"0/2 nodes are available: 1 cannot allocate all claims, 1 {text}."
    )
    found = world.place(world.pod("q", using("d")))
    assert "claim default/d, request gpu: selector #0: CEL compile error: compilation failed: ERROR: " in found
    world.tell("class", device_class("gpu", "device.nothing"))
    world.tell("claim", claim("e"))
    assert "class gpu: selector #0: CEL compile error" in world.place(world.pod("r", using("e")))


def test_what_stops_a_pod_before_any_node_is_looked_at() -> None:
    world = bed()
    world.tell("claim", claim("dying", deleting=True))
    world.tell("claim", claim("classless", request("gpu", "none")))
    world.tell("claim", claim("listed", first_of("r", request("one", "gpu"), request("two", "none"))))
    world.tell("claim", claim("odd", {"name": "r"}))
    texts = {
        "missing": 'resourceclaim.resource.k8s.io "missing" not found',
        "dying": 'resourceclaim "dying" is being deleted',
        "classless": "request gpu: device class none does not exist",
        "listed": "request r/two: device class none does not exist",
        "odd": "resource claim default/odd, request r: unknown request type",
    }
    for name, text in texts.items():
        refused = world.refusal(world.pod(f"p-{name}", using(name)))
        assert refused.message == f"0/2 nodes are available: {text}."
        assert not refused.resolvable


def test_pods_are_held_back_while_their_claims_are_not_there() -> None:
    world = bed()
    held = world.plugin.pre_enqueue
    assert held(world.pod("p", requests()).ref) is None
    assert held(world.pod("p", using("c")).ref) == 'resourceclaim.resource.k8s.io "c" not found'
    assert held(world.pod("p", using(templates=["t"])).ref) == 'pod "default/p": ResourceClaim not created yet'
    neither = world.pod("p", requests(resourceClaims=[{"name": "x"}])).ref
    assert held(neither) == 'pod "default/p", spec.resourceClaim "x": none of the supported fields are set'
    world.tell("claim", claim("c"))
    assert held(world.pod("p", using("c")).ref) is None


def test_a_claim_made_of_a_template_is_its_pods_alone() -> None:
    world = bed()
    made = {"resourceClaimStatuses": [{"name": "t", "resourceClaimName": "p-t-x7"}]}
    pod = world.pod_with("p", using(templates=["t"]), made)
    assert pod.class_.template.spec.resource_claims[0].pod_uid == "uid-default-p"
    world.tell("claim", claim("p-t-x7", owner="somebody"))
    text = "ResourceClaim default/p-t-x7 was not created for Pod default/p (Pod is not owner)"
    assert world.plugin.pre_enqueue(pod.ref) == text
    world.tell("claim", claim("p-t-x7", owner="uid-default-p"))
    assert world.plugin.pre_enqueue(pod.ref) is None
    assert world.place(pod) in ("a", "b")
    # An entry for which no claim is needed.
    none = world.pod_with("q", using(templates=["t"]), {"resourceClaimStatuses": [{"name": "t"}]})
    assert none.ref.claims == ()
    assert world.place(none) in ("a", "b")


def test_an_allocated_claim_ties_its_pods_to_its_nodes() -> None:
    world = bed(a=2, b=2)
    world.tell("claim", claim("c", allocation=allocated("gpu-0", pool="b", node="b"), users=["other"]))
    for name in ("p", "q"):
        placed = world.placed(world.pod(name, using("c")))
        assert (placed.node, placed.slots) == ("b", ())
    world.tell("claim", claim("far", allocation=allocated("x", pool="z", node="z"), users=["other"]))
    refused = world.refusal(world.pod("r", using("far")))
    assert refused.message == "0/2 nodes are available: 2 resourceclaim not available on the node."
    assert not refused.resolvable
    # Its device is used.
    world.tell("claim", claim("d", request(count=2)))
    assert world.place(world.pod("s", using("d"))) == "a"


def test_pods_that_share_a_claim_follow_its_promise() -> None:
    world = bed(a=1, b=1)
    world.tell("claim", claim("c"))
    first = world.placed(world.pod("p", using("c")))
    second = world.placed(world.pod("q", using("c")))
    assert (second.node, second.slots) == (first.node, ())
    world.engine.forget("uid-default-p")
    world.tell("claim", claim("d"))
    assert world.place(world.pod("r", using("d"))) != first.node  # q still holds it
    world.engine.forget("uid-default-q")
    world.tell("claim", claim("e"))
    assert world.place(world.pod("s", using("e"))) == first.node


def test_devices_that_many_nodes_reach() -> None:
    world = DeviceBed("a", "b", "c", zones={"c": "z2"})
    where = {"nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["z2"]}]}]}
    world.tell("slice", slice_("s", 1, pool="shared", nodeSelector=where))
    world.tell("claim", claim("c"))
    assert world.place(world.pod("p", using("c"))) == "c"
    world.tell("slice", slice_("t", 1, pool="all", allNodes=True, driver="x.io"))
    for name in "de":
        world.tell("claim", claim(name))
    assert world.place(world.pod("q", using("d"))) in ("a", "b", "c")
    assert "3 cannot allocate all claims" in world.place(world.pod("r", using("e")))
    # A node that gets the label reaches them, too.
    world.engine.forget("uid-default-p")
    world.node("c", labels={ZONE: "z1"})
    assert "3 cannot" in world.place(world.pod("r", using("e")))
    world.node("a", labels={ZONE: "z2"})
    assert world.place(world.pod("r", using("e"))) == "a"


def test_every_device_says_itself_who_reaches_it() -> None:
    world = DeviceBed("a", "b")
    devices = [
        {**device("one"), "nodeName": "a"},
        {**device("two"), "nodeName": "b"},
        {**device("any"), "allNodes": True},
    ]
    world.tell("slice", slice_("s", devices, pool="mixed", perDeviceNodeSelection=True))
    world.tell("claim", claim("c", request(count=2)))
    placed = world.placed(world.pod("p", using("c")))
    own = {"a": "one", "b": "two"}[placed.node]
    assert set(placed.slots) == {f"device/{DRIVER}/mixed/{own}", f"device/{DRIVER}/mixed/any"}
    world.tell("claim", claim("d", request(count=2)))
    assert world.place(world.pod("q", using("d"))) == CANNOT


def test_pools_that_are_not_whole_give_nothing() -> None:
    world = DeviceBed("a", "b")
    pod = world.pod("p", using("c"))
    world.tell("claim", claim("c"))
    world.tell("slice", slice_("s1", 1, node="a", count=2))
    assert world.place(pod) == CANNOT
    # Slices of the newest generation alone count.
    world.tell("slice", slice_("s2", [device("x")], node="a", generation=2, count=2))
    assert world.place(pod) == CANNOT
    world.tell("slice", slice_("s1", [device("y")], node="a", generation=2, count=2))
    assert world.place(pod) == "a"
    world.engine.forget("uid-default-p")
    # Two of one name.
    world.tell("slice", slice_("s1", [device("x")], node="a", generation=2, count=2))
    assert world.place(pod) == CANNOT
    world.tell("claim", claim("every", request(allocationMode="All")))
    text = f"resource pool {DRIVER}/a is currently invalid: duplicate device name x"
    assert f"claim default/every, request gpu: asks for all devices, but {text}" in world.place(
        world.pod("q", using("every"))
    )
    world.gone("slice", "s1")
    assert "is currently being updated" in world.place(world.pod("q", using("every")))


def test_taints_and_tolerations() -> None:
    world = DeviceBed("a", "b")
    taint = {"key": "broken", "value": "yes", "effect": "NoSchedule"}
    world.tell("slice", slice_("s", [device("g", taints=[taint])], node="a"))
    world.tell("slice", slice_("t", [device("g", taints=[{**taint, "effect": "None"}])], node="b"))
    for name in "cde":
        world.tell(
            "claim", claim(name, request(tolerations=[{"key": "broken", "operator": "Exists"}] if name == "e" else []))
        )
    assert world.place(world.pod("p", using("c"))) == "b"
    assert world.place(world.pod("q", using("d"))) == CANNOT
    assert world.place(world.pod("r", using("e"))) == "a"


def test_admin_access_takes_nothing_away() -> None:
    world = bed(b=0)
    world.tell("claim", claim("c"))
    assert world.place(world.pod("p", using("c"))) == "a"
    world.tell("claim", claim("watch", request(adminAccess=True)))
    placed = world.placed(world.pod("q", using("watch")))
    assert (placed.node, placed.slots) == ("a", ())
    assert json.loads(bytes(world.book.promises["default/watch"].allocation.body))["devices"]["results"] == [  # type: ignore[union-attr]
        {"request": "gpu", "driver": DRIVER, "pool": "a", "device": "gpu-0", "adminAccess": True}
    ]


def test_nodes_with_better_alternatives_score_higher() -> None:
    world = DeviceBed("a", "b")
    world.tell("slice", slice_("s-a", [device("g", model="small")], node="a"))
    world.tell("slice", slice_("s-b", [device("g", model="large")], node="b"))
    attribute = f'device.attributes["{DRIVER}"].model'
    wish = first_of("r", request("big", "gpu", 1, f'{attribute} == "large"'), request("any", "gpu"))
    world.tell("claim", claim("c", wish))
    assert world.place(world.pod("p", using("c"))) == "b"
    world.tell("claim", claim("d", wish))
    assert world.place(world.pod("q", using("d"))) == "a"


def test_events_wake_only_pods_that_they_can_help() -> None:
    world = bed(a=0, b=0)
    world.tell("claim", claim("c"))
    template = world.pod("p", using("c")).class_.template
    helps = world.plugin.helps

    def told(kind: str, body: dict[str, object], event: ClusterEvent) -> bool:
        assert world.tell(kind, body) == {event}
        key = next(key for one, key in reversed(world.objects) if one == kind)
        return helps(template, event, world.objects[kind, key][0])

    assert told("slice", slice_("s", 1, node="a"), ClusterEvent.RESOURCE_SLICE_ADD)
    assert told("slice", slice_("s", 2, node="a"), ClusterEvent.RESOURCE_SLICE_UPDATE)
    assert world.tell("slice", slice_("s", 2, node="a")) == set()
    assert not told("class", device_class("other"), ClusterEvent.DEVICE_CLASS_ADD)
    assert told("class", device_class("gpu", "true"), ClusterEvent.DEVICE_CLASS_UPDATE)
    given = claim("d", allocation=allocated("gpu-0", pool="a", node="a"))
    assert not told("claim", given, ClusterEvent.RESOURCE_CLAIM_ADD)
    assert told("claim", claim("d"), ClusterEvent.RESOURCE_CLAIM_UPDATE)
    assert told("claim", claim("c", deleting=True), ClusterEvent.RESOURCE_CLAIM_UPDATE)
    assert world.gone("claim", "default/d") == set()
    world.tell("claim", given)
    assert world.gone("claim", "default/d") == {ClusterEvent.RESOURCE_CLAIM_DELETE}


def test_objects_that_are_not_valid_leave_what_was_known() -> None:
    world = bed(b=0)
    with pytest.raises(ValueError, match=r"spec.sharedCounters\[mem\].counters\[m\]"):
        counters = [{"name": "mem", "counters": {"m": {"value": "many"}}}]
        world.tell("slice", slice_("s-a", 2, node="a", sharedCounters=counters))
    world.tell("claim", claim("c", request(count=2)))
    assert "2 cannot allocate" in world.place(world.pod("p", using("c")))
    world.tell("claim", claim("d"))
    assert world.place(world.pod("q", using("d"))) == "a"


def test_what_takes_long_to_find_out_is_found_out_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trying, "SLICE_S", 0.0)  # one node at a time
    world = DeviceBed("a", "b", "c")
    for name, count in (("a", 1), ("b", 1), ("c", 2)):
        world.tell("slice", slice_(f"s-{name}", count, node=name))
    world.tell("claim", claim("c", request(count=2)))
    pod = world.pod("p", using("c"))
    turns = 0
    while isinstance(refusal := world.engine.place_one(pod, 0.0), Diagnosis):
        # Nobody has to go for it, and it backs off for nothing: it is tried again at the next tick.
        assert refusal.message == "0/3 nodes are available: devices of nodes are still being looked at."
        assert refusal.pending == {"DynamicResources"}
        assert world.plugin.post_filter(pod, world.engine, refusal) is None
        assert world.engine.tick(0.0) == [ClusterEvent.RESOURCE_CLAIM_UPDATE]
        turns += 1
        assert turns < 10
    assert refusal.node == "c"
    assert turns > 1
    assert world.engine.tick(0.0) == []


def test_there_is_a_rest_between_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trying, "SLICE_S", 0.0)
    monkeypatch.setattr(trying, "FEW", 0)
    world = bed(a=0, b=1)
    world.tell("claim", claim("c"))
    pod = world.pod("p", using("c"))
    assert "still being looked at" in world.place(pod)
    # However many claims of however many kinds there are.
    world.tell("claim", claim("other", request("other")))
    world.plugin._tries._rest_until = float("inf")
    waiting = [pod, world.pod("q", using("other"))]
    assert all("still being looked at" in world.place(each) for _ in range(5) for each in waiting)
    # Who asks why is not kept waiting either.
    assert not refusals(world.engine, pod.class_, 5)
    assert not near_misses(world.engine, pod.class_, 5)
    world.plugin._tries._rest_until = 0.0
    assert "still being looked at" not in [world.place(pod) for _ in range(3)][-1]
