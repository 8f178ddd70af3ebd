"""The allocator: what it gives is what a look at every way finds first; what it writes; when it gives up."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koord.kube.dynamicresources import DeviceClass, ResourceClaim, ResourceSlice
from koord.kube.meta import decode
from koord.scheduler.dra.allocator import AllocationError, allocate
from koord.scheduler.dra.demand import Demand, DemandError, Tolerated, demand_of, tolerates
from koord.scheduler.dra.matching import Matcher
from koord.scheduler.dra.pools import Group, Pool
from koord.scheduler.dra.results import allocation
from tests.reference.scheduler.devices import Thing, solutions
from tests.scheduler.comparison.drawing import examples
from tests.scheduler.dra.objects import DRIVER, Object, claim, device, device_class, first_of, request, slice_

MODEL = f'device.attributes["{DRIVER}"].model'


def matcher(*classes: Object) -> Matcher:
    made = Matcher()
    for body in classes or (device_class(),):
        made.put(body["metadata"]["name"], decode(DeviceClass, json.dumps(body).encode()))
    return made


def pool(*slices: Object, used: tuple[str, ...] = (), name: str = "a") -> Pool:
    made = Pool((DRIVER, name), dict.fromkeys(used, 1))
    for body in slices:
        made.put(body["metadata"]["name"], decode(ResourceSlice, json.dumps(body).encode()))
    return made


def claim_of(body: Object) -> ResourceClaim:
    return decode(ResourceClaim, json.dumps(body).encode())


def names(
    groups: tuple[Group, ...], *claims: Object, classes: Matcher | None = None
) -> list[list[tuple[str, str]]] | None:
    demands = [demand_of(claim_of(body)) for body in claims]
    given = allocate(demands, groups, classes or matcher())
    return (
        None
        if given is None
        else [[(chosen.ask.name, chosen.device.id[2]) for chosen in each.devices] for each in given]
    )


def four(*models: str, **more: Any) -> Pool:
    devices = [device(f"g{number}", model=model, index=number) for number, model in enumerate(models)]
    return pool(slice_("s", devices, node="a", **more))


def test_what_was_tried_in_vain_is_taken_back() -> None:
    groups = four("small", "large", "small").groups
    wishes = (request("any"), request("small", "gpu", 2, f'{MODEL} == "small"'))
    assert names(groups, claim("c", *wishes)) == [[("any", "g1"), ("small", "g0"), ("small", "g2")]]
    assert names(groups, claim("c", request("any")), claim("d", wishes[1])) == [
        [("any", "g1")],
        [("small", "g0"), ("small", "g2")],
    ]
    assert names(groups, claim("c", request(count=4))) is None


def test_the_first_alternative_that_can_be_had() -> None:
    groups = four("small", "small", "large").groups
    huge = request("huge", "gpu", 1, f'{MODEL} == "huge"')
    two = request("two", "gpu", 2, f'{MODEL} == "small"')
    wish = first_of("r", huge, two, request("any"))
    given = allocate([demand_of(claim_of(claim("c", wish)))], groups, matcher())
    assert given is not None
    assert given[0].picks == (1,)
    assert names(groups, claim("c", wish), claim("d", wish)) == [[("r/two", "g0"), ("r/two", "g1")], [("r/any", "g2")]]


def test_constraints() -> None:
    devices = [device(f"g{n}", rack=f"r{n % 2}", numa=n // 2) for n in range(4)]
    groups = pool(slice_("s", devices, node="a")).groups
    same = {"requests": ["gpu"], "matchAttribute": f"{DRIVER}/rack"}
    other = {"distinctAttribute": f"{DRIVER}/rack"}
    assert names(groups, claim("c", request(count=2), constraints=[same])) == [[("gpu", "g0"), ("gpu", "g2")]]
    assert names(groups, claim("c", request(count=2), constraints=[other])) == [[("gpu", "g0"), ("gpu", "g1")]]
    assert names(groups, claim("c", request(count=3), constraints=[same])) is None
    both = [same, {"distinctAttribute": f"{DRIVER}/numa", "requests": ["gpu"]}]
    assert names(groups, claim("c", request(count=2), constraints=both)) == [[("gpu", "g0"), ("gpu", "g2")]]
    # One that does not have the attribute can be given to nobody whom the rule concerns.
    absent = [{"matchAttribute": "other.io/rack", "requests": ["elsewhere"]}]
    assert names(groups, claim("c", request(count=3), constraints=absent)) is not None
    assert names(groups, claim("c", request(), constraints=[{"matchAttribute": "other.io/rack"}])) is None
    assert names(
        groups, claim("c", first_of("gpu", request("x", count=3), request("y", count=2)), constraints=[same])
    ) == [[("gpu/y", "g0"), ("gpu/y", "g2")]]


def test_partitions_share_counters() -> None:
    counters = [{"name": "mem", "counters": {"m": {"value": "40Gi"}}}]

    def part(name: str, amount: str) -> Object:
        return {**device(name), "consumesCounters": [{"counterSet": "mem", "counters": {"m": {"value": amount}}}]}

    parts = [part("whole", "40Gi"), part("half-0", "20Gi"), part("half-1", "20Gi"), part("quarter", "10Gi")]
    slices = (
        slice_("c", [], node="a", count=2, sharedCounters=counters),
        slice_("d", parts, node="a", count=2),
    )
    shared = pool(*slices)
    assert names(shared.groups, claim("c", request(count=2))) == [[("gpu", "half-0"), ("gpu", "half-1")]]
    assert names(shared.groups, claim("c", request(count=3))) is None
    assert names(pool(*slices, used=("half-1",)).groups, claim("c", request(count=2))) is None
    assert names(pool(*slices, used=("half-1",)).groups, claim("c")) == [[("gpu", "half-0")]]
    assert names(pool(*slices, used=("whole",)).groups, claim("c")) is None
    unknown = slice_("d", [{**parts[0], "consumesCounters": [{"counterSet": "x", "counters": {}}]}], node="a", count=2)
    assert pool(slices[0], unknown).problem == ""
    unknown["spec"]["devices"][0]["consumesCounters"][0]["counters"] = {"m": {"value": "1"}}
    assert pool(slices[0], unknown).problem.endswith("is currently invalid: counter set x not found")


def test_alike_devices_are_tried_once_and_there_is_an_end() -> None:
    # Half of very many alike devices, and then one that is not there: every choice of the half would fail.
    devices = [device(f"g{number:03}", model="x") for number in range(60)]
    groups = pool(slice_("s", devices, node="a")).groups
    wishes = (request("half", count=30), request("other", "gpu", 2, f'{MODEL} == "y"'))
    assert names(groups, claim("c", *wishes)) is None
    crowd = [device(f"g{number:03}", serial=number) for number in range(40)]
    rule = [{"distinctAttribute": f"{DRIVER}/serial"}, {"matchAttribute": f"{DRIVER}/serial", "requests": ["b"]}]
    hard = claim("c", request("a", count=15), request("b", count=2), constraints=rule)
    with pytest.raises(AllocationError, match="timed out trying to allocate devices"):
        names(pool(slice_("s", crowd, node="a")).groups, hard)


def test_what_a_claim_is_told() -> None:
    config = [{"opaque": {"driver": DRIVER, "parameters": {"kind": "Sharing", "n": 2}}}]
    own = [
        {"requests": ["r"], "opaque": {"driver": DRIVER, "parameters": {"a": 1}}},
        {"requests": ["r/big"], "opaque": {"driver": DRIVER, "parameters": {"b": 1}}},
        {"requests": ["plain"], "opaque": {"driver": DRIVER, "parameters": {"c": 1}}},
    ]
    taint = [{"key": "k", "operator": "Exists"}]
    wishes = (
        request("plain", tolerations=taint),
        first_of("r", request("big", "gpu", 9), request("small", "gpu")),
    )
    body = claim("c", *wishes, config=own)
    classes = matcher(device_class("gpu", config=config))
    given = allocate([demand_of(claim_of(body))], four("x", "x").groups, classes)
    assert given is not None
    made = allocation(claim_of(body), given[0], classes.classes)
    assert made.devices == ((DRIVER, "a", "g0"), (DRIVER, "a", "g1"))
    result = {"driver": DRIVER, "pool": "a"}
    assert json.loads(bytes(made.body)) == {
        "devices": {
            "results": [
                {"request": "plain", **result, "device": "g0", "tolerations": taint},
                {"request": "r/small", **result, "device": "g1"},
            ],
            "config": [
                {"source": "FromClass", **config[0]},
                {"source": "FromClaim", "requests": ["r"], "opaque": own[0]["opaque"]},
                {"source": "FromClaim", "requests": ["plain"], "opaque": own[2]["opaque"]},
            ],
        },
        "nodeSelector": {
            "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]
        },
    }


def test_tolerations() -> None:
    taint = (
        decode(
            ResourceSlice,
            json.dumps(
                slice_("s", [device("g", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}])], node="a")
            ).encode(),
        )
        .spec.devices[0]
        .taints[0]
    )

    def by(key: str = "", operator: str = "Equal", value: str = "", effect: str = "") -> bool:
        return tolerates((Tolerated(key, operator, value, effect),), taint)

    assert by("k", "Equal", "v") and by("k", "Exists") and by(operator="Exists") and by("k", "", "v", "NoSchedule")
    assert not (by("k") or by("x", "Exists") or by("k", "Exists", effect="NoExecute") or by("k", "Odd", "v"))


def test_requests_that_nobody_knows() -> None:
    for wish, text in (
        ({"name": "r"}, "request r: unknown request type"),
        (request("r", ""), "request r: unsupported request type"),
        (request("r", allocationMode="Most"), "request r: unsupported count mode Most"),
        (request("r", count=-1), "request r: count -1 is not positive"),
        (request("r", selectors=[{"js": "x"}]), "request r: selector #0: CEL expression empty"),
    ):
        with pytest.raises(DemandError, match=text):
            demand_of(claim_of(claim("c", wish)))
    with pytest.raises(DemandError, match="empty constraint"):
        demand_of(claim_of(claim("c", constraints=[{"requests": []}])))


MODELS = ("x", "y")
asks = st.fixed_dictionaries(
    {
        "count": st.integers(1, 3),
        "all": st.integers(0, 5).map(lambda n: n == 0),
        "model": st.sampled_from((None, None, *MODELS)),
        "admin": st.integers(0, 5).map(lambda n: n == 0),
        "part": st.sampled_from((None, None, 1, 2)),
    }
)
constraints = st.lists(
    st.tuples(
        st.sampled_from((f"{DRIVER}/rack", f"{DRIVER}/model")),
        st.booleans(),
        st.sampled_from(((), ("r0",), ("r1/s0",))),
    ),
    max_size=2,
)
bodies = st.fixed_dictionaries(
    {"requests": st.lists(st.lists(asks, min_size=1, max_size=2), min_size=1, max_size=2), "constraints": constraints}
)
devices = st.lists(
    st.tuples(
        st.sampled_from(MODELS),
        st.sampled_from((None, "0", "1")),
        st.booleans(),
        st.sampled_from((0, 0, 1, 2)),
        st.booleans(),
    ),
    max_size=5,
)


def _named(body: dict[str, Any]) -> dict[str, Any]:
    """Requests get names; of several alternatives each its own."""
    requests = []
    for number, listed in enumerate(body["requests"]):
        several = len(listed) > 1
        named = [{**ask, "name": f"r{number}/s{n}" if several else f"r{number}"} for n, ask in enumerate(listed)]
        requests.append({"asks": [{**ask, "admin": False} for ask in named] if several else named})
    return {**body, "requests": requests}


def _api(body: dict[str, Any]) -> Object:
    wishes = []
    for one in body["requests"]:
        shown = []
        for ask in one["asks"]:
            selectors = [f'{MODEL} == "{ask["model"]}"'] if ask["model"] else []
            more: Object = {"allocationMode": "All"} if ask["all"] else {}
            if ask["part"]:
                more["capacity"] = {"requests": {"memory": ask["part"]}}
            if ask["admin"]:
                more["adminAccess"] = True
            shown.append(request(ask["name"].rpartition("/")[2], "gpu", ask["count"], *selectors, **more))
        wishes.append(first_of(one["asks"][0]["name"].partition("/")[0], *shown) if len(shown) > 1 else shown[0])
    rules = [
        {"distinctAttribute" if distinct else "matchAttribute": name, **({"requests": list(of)} if of else {})}
        for name, distinct, of in body["constraints"]
    ]
    return claim("c", *wishes, constraints=rules)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(bodies, min_size=1, max_size=2), devices, st.integers(0, 4))
def test_like_a_look_at_every_way(
    claims: list[dict[str, Any]], shapes: list[tuple[str, str | None, bool, int, bool]], counter: int
) -> None:
    claims = [_named(body) for body in claims]
    shown, things, used = [], [], []
    spent = 0
    for number, (model, rack, taken, takes, several) in enumerate(shapes):
        name = f"g{number}"
        attributes: dict[str, Any] = {"model": model} if rack is None else {"model": model, "rack": rack}
        body = {**device(name, memory="3", **attributes), "allowMultipleAllocations": several}
        if takes:
            body["consumesCounters"] = [{"counterSet": "s", "counters": {"c": {"value": takes}}}]
        if taken:
            used.append(name)
            spent += takes
        shown.append(body)
        full = {f"{DRIVER}/{key}": value for key, value in attributes.items()}
        things.append(Thing(DRIVER, "a", name, {**full, "model": model}, taken, takes, 3, several))
    slices = (
        slice_("c", [], node="a", count=2, sharedCounters=[{"name": "s", "counters": {"c": {"value": counter}}}]),
        slice_("d", shown, node="a", count=2),
    )
    demands: list[Demand] = [demand_of(claim_of(_api(body))) for body in claims]
    given_ = allocate(demands, pool(*slices, used=tuple(used)).groups, matcher())
    found = (
        None
        if given_ is None
        else [
            (index, chosen.ask.name, chosen.device.id[2])
            for index, each in enumerate(given_)
            for chosen in each.devices
        ]
    )
    # What others have may be more than there is: the counters of what they have are taken all the same.
    wanted = next(solutions(claims, things, counter - spent), None)
    assert found == (None if wanted is None else [(got.claim, got.request, got.thing.name) for got in wanted])
