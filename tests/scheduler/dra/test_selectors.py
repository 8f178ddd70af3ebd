"""Selectors: what expressions say of devices, in whose words they fail, and what of a device they are asked about."""

import json
from typing import Any

import pytest

from koord.kube import dynamicresources as api
from koord.kube.meta import decode
from koord.scheduler.dra.demand import DemandError
from koord.scheduler.dra.devices import Device
from koord.scheduler.dra.selectors import Selector, Selectors
from tests.scheduler.dra.objects import DRIVER, device

OWN = f'device.attributes["{DRIVER}"]'
HAS = f'device.capacity["{DRIVER}"]'


def one(name: str = "g", **attributes: Any) -> Device:
    return Device(DRIVER, "a", decode(api.Device, json.dumps(device(name, **attributes)).encode()))


FULL: dict[str, Any] = {"model": "large", "index": 3, "ok": True, "other_com__version": {"version": "1.10.0"}}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (f'device.driver == "{DRIVER}"', True),
        (f'{OWN}.model == "large" && {OWN}.index > 2 && {OWN}.ok', True),
        (f'{OWN}["model"].startsWith("lar")', True),
        (f'{HAS}.memory.compareTo(quantity("40Gi")) == 0', True),
        (f'{HAS}.memory.isLessThan(quantity("40Gi"))', False),
        ('device.attributes["other.com"].version.isGreaterThan(semver("1.9.0"))', True),
        ('semver("v1.0", true).major() == 1', True),
        ("device.allowMultipleAllocations", False),
        # Domains that a device has nothing of are empty maps, unless it is asked whether they are there.
        ('has(device.attributes["x.io"].model)', False),
        (f'"x.io" in device.attributes || "{DRIVER}" in device.attributes', True),
        ('"x.io" in device.attributes && device.attributes["x.io"].rack == 1', False),
        ('device.attributes["x.io"].?rack.orValue(7) == 7', True),
        ('size(device.attributes["x.io"]) == 0', True),
        (f"cel.bind(own, {OWN}, own.ok && own.index == 3)", True),
        (f'{OWN}.exists(name, name == "model")', True),
        (f'{OWN}.model in ["small", "large"]', True),
    ],
)
def test_answers(text: str, wanted: bool) -> None:
    assert Selector(text).matches(one(**FULL)) is wanted


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"{OWN}.rack == 1", "CEL runtime error: no such key: rack"),
        ('device.attributes["x.io"].rack == 1', "CEL runtime error: no such key: rack"),
        (f"{OWN}.model", "CEL runtime error: expression returned str, expected bool"),
        ("device.vendor == 1", "CEL compile error: compilation failed: .*undefined field 'vendor'"),
        ("size(device.driver)", "CEL compile error: must evaluate to bool or the unknown type, not int"),
        ("device.driver ==", "CEL compile error: compilation failed: .*Syntax error"),
        (f'"{"x" * 11_000}" == ""', "CEL compile error: must have at most 10240 characters"),
    ],
)
def test_failures(text: str, why: str) -> None:
    selectors = Selectors()
    for _ in range(2):  # the second time it is known
        with pytest.raises(DemandError, match=why):
            selectors.of(text).matches(one(**FULL))


def _bound(times: int, first: str, last: str) -> str:
    """Variables of which each is four times as long as the one before."""
    inner = "".join(f"cel.bind(v{n + 1}, v{n} + v{n} + v{n} + v{n}, " for n in range(times))
    return f"cel.bind(v0, {first}, {inner}v{times}.{last}{')' * (times + 1)}"


@pytest.mark.parametrize(
    "text",
    [
        '"{}".replace("a", "{}").replace("b", "{}").size() > 0'.format("a" * 3000, "b" * 3000, "c" * 3000),
        _bound(13, '"aaaaaaaaaaaaaaaa"', "size() > 0"),
        _bound(13, "[1, 2, 3, 4]", "size() > 0"),
        "lists.range(100000000).size() > 0",
    ],
)
def test_what_may_take_the_scheduler_down_is_not_run(text: str) -> None:
    with pytest.raises(DemandError, match="CEL runtime error: operation cancelled: actual cost limit exceeded"):
        Selector(text).matches(one(**FULL))


def test_variables_that_are_bound_cost_little() -> None:
    assert Selector(_bound(3, '"ab"', "size() == 128")).matches(one(**FULL))
    assert Selector(f"cel.bind(own, {OWN}, own.model == 'large' && own.index == 3)").matches(one(**FULL))


def test_amounts_and_versions_that_are_none() -> None:
    odd = one(version={"version": "one"}, model="large")
    with pytest.raises(DemandError, match=f"attribute {DRIVER}/version: "):
        Selector(f'{OWN}.version.isGreaterThan(semver("1.0.0"))').matches(odd)
    assert Selector(f'{OWN}.model == "large"').matches(odd)  # nobody looks at it


@pytest.mark.parametrize(
    ("text", "evaluations"),
    [
        (f'{OWN}.model == "large" && {HAS}.memory.isGreaterThan(quantity("1Gi"))', 1),
        (f'device.driver == "{DRIVER}"', 1),
        (f"{OWN}.index >= 0", 10),
        (f"size({OWN}) == 2", 10),  # it looks at all there is
        (f'{OWN}.exists(name, name == "model")', 10),
    ],
)
def test_devices_that_are_alike_to_an_expression_are_asked_about_once(
    monkeypatch: pytest.MonkeyPatch, text: str, evaluations: int
) -> None:
    selector = Selector(text)
    asked: list[Device] = []
    evaluate = Selector._evaluate

    def counted(self: Selector, each: Device) -> bool:
        asked.append(each)
        return evaluate(self, each)

    monkeypatch.setattr(Selector, "_evaluate", counted)
    assert all(selector.matches(one(f"g{number}", model="large", index=number)) for number in range(10))
    assert len(asked) == evaluations
