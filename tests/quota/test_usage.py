"""Used and request by columns."""

import random

from koord.quota.sums import MOST_OTHERS
from koord.quota.usage import Level, Usage

CPU1 = (("cpu", 1000),)
ORIGIN = ("", "ns")


def levels() -> list[Level]:
    return [
        Level("a", "top", {"cpu": 1000}, {"cpu": 4000, "memory": 100}),
        Level("b", "top", {}, {"cpu": 2000}),
        Level("top", "", {"cpu": 3000}, {"cpu": 10000, "memory": 500}),
    ]


def put(usage: Usage, key: str, quota: str, cpu: int, *, assigned: bool = True, unit: str = "") -> None:
    usage.put_pod(key, quota, (("cpu", cpu),), assigned=assigned, unit=unit, origin=ORIGIN)


def test_used_goes_up_and_request_is_capped_at_max() -> None:
    usage = Usage()
    put(usage, "ns/p1", "a", 3000)
    put(usage, "ns/p2", "a", 3000, assigned=False)
    put(usage, "ns/p3", "b", 1000)
    sums = usage.sums(levels())
    assert sums["a"].used == {"cpu": 3000, "memory": 0}
    assert sums["a"].request == {"cpu": 6000, "memory": 0}
    assert sums["top"].used == {"cpu": 4000, "memory": 0}
    assert sums["top"].request == {"cpu": 5000, "memory": 0}  # 4000 (max of a) + 1000


def test_a_unit_asks_for_the_larger_of_total_and_pods() -> None:
    usage = Usage()
    usage.put_unit("ns/u", "b", (("cpu", 2000),), ORIGIN)
    assert usage.sums(levels())["b"].request == {"cpu": 2000}
    put(usage, "ns/p1", "b", 1000, unit="ns/u")
    assert usage.sums(levels())["b"].request == {"cpu": 2000}
    put(usage, "ns/p2", "b", 1500, unit="ns/u")
    assert usage.sums(levels())["b"].request == {"cpu": 2500}
    assert usage.sums(levels())["b"].used == {"cpu": 2500}
    usage.drop_unit("ns/u")
    assert usage.sums(levels())["b"].request == {"cpu": 2500}
    usage.drop_pod("ns/p1")
    usage.drop_pod("ns/p2")
    assert usage.sums(levels())["b"].request == {"cpu": 0}


def test_pods_seen_before_their_unit_are_not_counted_twice() -> None:
    usage = Usage()
    put(usage, "ns/p1", "b", 1000, unit="ns/u")
    usage.put_unit("ns/u", "b", (("cpu", 2000),), ORIGIN)
    assert usage.sums(levels())["b"].request == {"cpu": 2000}


def test_a_quota_that_does_not_lend_asks_for_its_min() -> None:
    tops = [Level("a", "", {"cpu": 5000}, {"cpu": 9000}, lends=False)]
    assert Usage().sums(tops)["a"].request == {"cpu": 5000}


def test_remap_moves_what_the_tree_moves() -> None:
    usage = Usage()
    put(usage, "ns/p1", "default", 1000)
    usage.put_unit("ns/u", "default", CPU1, ORIGIN)
    assert usage.remap(lambda label, namespace: "a", lambda label, namespace: "a") == 2
    sums = usage.sums(levels())
    assert sums["a"].used["cpu"] == 1000
    assert sums["a"].request["cpu"] == 2000


def test_no_cell_drifts() -> None:
    """Any order of events ends at the sums of what is left."""
    chooser = random.Random(3)
    usage = Usage()
    pods: dict[str, tuple[str, int, bool, str]] = {}
    units: dict[str, tuple[str, int]] = {}
    for _ in range(4000):
        key = f"ns/p{chooser.randrange(40)}"
        unit = chooser.choice(["", "ns/u1", "ns/u2"])
        match chooser.randrange(4):
            case 0 | 1:
                pods[key] = (chooser.choice("ab"), chooser.randrange(5) * 100, chooser.random() < 0.5, unit)
                quota, cpu, assigned, unit = pods[key]
                put(usage, key, quota, cpu, assigned=assigned, unit=unit)
            case 2:
                pods.pop(key, None)
                usage.drop_pod(key)
            case _ if unit:
                if chooser.random() < 0.5:
                    units[unit] = (chooser.choice("ab"), chooser.randrange(9) * 100)
                    usage.put_unit(unit, units[unit][0], (("cpu", units[unit][1]),), ORIGIN)
                else:
                    units.pop(unit, None)
                    usage.drop_unit(unit)
    sums = usage.sums(levels())
    for name in "ab":
        used = sum(cpu for quota, cpu, assigned, _ in pods.values() if quota == name and assigned)
        alone = sum(cpu for quota, cpu, _, unit in pods.values() if quota == name and unit not in units)
        held = sum(
            max(total, sum(cpu for _, cpu, _, of in pods.values() if of == unit))
            for unit, (quota, total) in units.items()
            if quota == name
        )
        assert sums[name].used["cpu"] == used
        assert sums[name].request["cpu"] == alone + held


def test_unlimited_amounts_do_not_overflow() -> None:
    huge = {"cpu": (2**63 - 1) // 5 * 1000}
    tops = [Level(f"q{i}", "top", {}, huge) for i in range(50)] + [Level("top", "", huge, huge, lends=False)]
    usage = Usage()
    put(usage, "ns/p", "q1", 1000)
    sums = usage.sums(tops)
    assert sums["q1"].used == {"cpu": 1000}
    assert sums["top"].used == {"cpu": 1000}
    assert sums["top"].request["cpu"] == 2**53


def test_a_pod_that_asks_for_thousands_of_things_widens_no_tree() -> None:
    """Anybody may write one; what a quota names is summed up all the same."""
    usage = Usage()
    odd = tuple((f"example.com/r{number}", 1) for number in range(5000))
    usage.put_pod("ns/odd", "a", (("cpu", 1000), *odd), assigned=True, unit="", origin=ORIGIN)
    named = Level("a", "top", {}, {"cpu": 4000, "zz.example.com/named": 7, "example.com/r4999": 7})
    everything = Level("top", "", {}, {})
    sums = usage.sums([named, everything])
    assert sums["a"].used == {"cpu": 1000, "zz.example.com/named": 0, "example.com/r4999": 1}
    shown = sums["top"].used
    assert shown["cpu"] == 1000 and shown["example.com/r4999"] == 1
    assert len(shown) == MOST_OTHERS + 2
