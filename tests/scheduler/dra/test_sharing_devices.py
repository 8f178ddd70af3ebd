"""Devices that several claims share: what each takes of their capacities, by their policies, and that it lasts."""

import json
from typing import Any

import pytest

from koord.kube.dynamicresources import DeviceCapacity
from koord.kube.meta import decode
from koord.scheduler.dra.allocator import allocate
from koord.scheduler.dra.consuming import Limit, limit, portion_of
from koord.scheduler.dra.demand import demand_of
from koord.scheduler.dra.results import allocation
from tests.scheduler.dra.objects import DRIVER, DeviceBed, Object, claim, device, request, slice_, using
from tests.scheduler.dra.test_allocator import claim_of, matcher, names, pool

MEMORY = f"{DRIVER}/memory"


def shared(name: str = "g", memory: str = "40Gi", policy: Object | None = None, **more: Any) -> Object:
    body = {**device(name, memory=memory), "allowMultipleAllocations": True, **more}
    if policy is not None:
        body["capacity"]["memory"]["requestPolicy"] = policy
    return body


def part(amount: str, count: int = 1, **more: Any) -> Object:
    return request("gpu", "gpu", count, capacity={"requests": {"memory": amount}}, **more)


def made(policy: Object | None, value: str = "40") -> Limit:
    body: Object = {"value": value} if policy is None else {"value": value, "requestPolicy": policy}
    return limit("memory", decode(DeviceCapacity, json.dumps(body).encode()))


@pytest.mark.parametrize(
    ("policy", "asked", "taken"),
    [
        (None, None, 40),
        (None, "7", 7),
        (None, "41", None),
        ({"default": "10"}, None, 10),
        ({"default": "5", "validValues": ["5", "10", "20"]}, "6", 10),
        ({"default": "5", "validValues": ["5", "10", "20"]}, "21", None),
        ({"default": "2", "validRange": {"min": "4", "max": "20"}}, "1", 4),
        ({"default": "2", "validRange": {"min": "4", "max": "20"}}, "21", None),
        ({"default": "2", "validRange": {"min": "4", "max": "20", "step": "4"}}, "9", 12),
        ({"default": "2", "validRange": {"min": "4", "max": "20", "step": "4"}}, "8", 8),
        ({"default": "2", "validRange": {"min": "4", "max": "20", "step": "4"}}, None, 2),
    ],
)
def test_policies(policy: Object | None, asked: str | None, taken: int | None) -> None:
    portion = made(policy).portion(None if asked is None else portion_of(asked))
    assert (None if portion is None else portion.nanos // 10**9) == taken


def test_claims_share_a_device_as_long_as_it_lasts() -> None:
    one = pool(slice_("s", [shared("g", "40Gi"), shared("h", "10Gi")], node="a"))
    thrice = [claim(name, part("15Gi")) for name in "cde"]
    assert names(one.groups, *thrice[:2]) == [[("gpu", "g")], [("gpu", "g")]]
    assert names(one.groups, *thrice) is None
    # One claim may have a device several times, unless it says otherwise.
    assert names(one.groups, claim("c", part("10Gi", 5))) == [[("gpu", "g")] * 4 + [("gpu", "h")]]
    other = [{"distinctAttribute": f"{DRIVER}/index"}]
    apart = [{**shared("g"), "attributes": {"index": {"int": 0}}}, {**shared("h"), "attributes": {"index": {"int": 1}}}]
    assert names(pool(slice_("s", apart, node="a")).groups, claim("c", part("1Gi", 2), constraints=other)) == [
        [("gpu", "g"), ("gpu", "h")]
    ]
    # All of them, each once; nothing asked of a capacity is all of it.
    assert names(one.groups, claim("c", part("5Gi", allocationMode="All"))) == [[("gpu", "g"), ("gpu", "h")]]
    assert names(one.groups, claim("c", request(count=3))) is None


def test_capacities_that_a_device_does_not_have() -> None:
    plain = pool(slice_("s", [device("g", memory="10Gi"), device("h", memory="40Gi")], node="a"))
    assert names(plain.groups, claim("c", part("20Gi"))) == [[("gpu", "h")]]
    assert names(plain.groups, claim("c", part("20Gi", 2))) is None
    unknown = request("gpu", "gpu", 1, capacity={"requests": {"cores": "1"}})
    assert names(plain.groups, claim("c", unknown)) is None


def test_what_is_written() -> None:
    policy = {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}}
    body = claim("c", part("10Gi", 2), request("any"))
    body["metadata"]["resourceVersion"] = "7"
    one = pool(slice_("s", [shared("g", policy=policy)], node="a"))
    given = allocate([demand_of(claim_of(body))], one.groups, matcher())
    assert given is not None
    first = allocation(claim_of(body), given[0], {})
    results = json.loads(bytes(first.body))["devices"]["results"]
    assert [one["consumedCapacity"] for one in results] == [{"memory": "10Gi"}, {"memory": "10Gi"}, {"memory": "1Gi"}]
    assert len({one["shareID"] for one in results}) == 3
    assert first.devices == ()
    assert allocation(claim_of(body), given[0], {}).body == first.body  # the same again, whoever writes it


def test_counters_of_a_shared_device_are_taken_once() -> None:
    counters = [{"name": "s", "counters": {"c": {"value": "2"}}}]
    takes = [{"counterSet": "s", "counters": {"c": {"value": "1"}}}]
    devices = [shared("g", consumesCounters=takes), shared("h", "40Gi", consumesCounters=takes)]
    devices.append({**device("alone"), "consumesCounters": takes})
    slices = (slice_("c", [], node="a", count=2, sharedCounters=counters), slice_("d", devices, node="a", count=2))
    one = pool(*slices)
    assert names(one.groups, claim("c", part("10Gi", 5))) == [[("gpu", "g")] * 4 + [("gpu", "h")]]
    assert names(one.groups, claim("c", part("40Gi", 3))) is None
    assert names(one.groups, claim("c", part("1Gi", 2)), claim("d", request())) == [
        [("gpu", "g"), ("gpu", "g")],
        [("gpu", "h")],
    ]


def test_shares_of_claims_in_the_api_and_of_promises_count() -> None:
    world = DeviceBed("a")
    world.tell("slice", slice_("s", [shared("g", "40Gi")], node="a"))
    result = {"request": "gpu", "driver": DRIVER, "pool": "a", "device": "g", "shareID": "x"}
    held = claim(
        "held", part("20Gi"), allocation={"devices": {"results": [{**result, "consumedCapacity": {MEMORY: "20Gi"}}]}}
    )
    world.tell("claim", held)
    for name in ("c", "d", "e"):
        world.tell("claim", claim(name, part("10Gi")))
    for name in ("c", "d"):
        placed = world.placed(world.pod(f"p-{name}", using(name)))
        assert placed.slots == ()  # the ledger cannot tell shares apart
    refused = world.refusal(world.pod("p-e", using("e")))
    assert refused.message == "0/1 nodes are available: 1 cannot allocate all claims."
    world.engine.forget("uid-default-p-c")
    assert world.place(world.pod("p-e", using("e"))) == "a"
    world.gone("claim", "default/held")
    world.tell("claim", claim("f", part("20Gi")))
    assert world.place(world.pod("p-f", using("f"))) == "a"
    # Who wants it alone waits.
    world.tell("claim", claim("g", request()))
    assert "cannot allocate" in world.place(world.pod("p-g", using("g")))
