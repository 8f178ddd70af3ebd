"""Who is meant by a question, how long it lives, and questions that make no sense."""

from functools import partial

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.kube.protocol.gang import GangRef
from koord.scheduler.explanations.controller import ttl_s
from koord.scheduler.explanations.question import Search
from koord.scheduler.gang.book import Gang
from koord.scheduler.podview import PodView
from koord.scheduler.settings import SchedulerSettings
from tests.scheduler.explanations.questions import Questions
from tests.scheduler.outside import outside, scheduler, until

REASON = "InvalidScheduleExplanation"


def pod(name: str, *, job: str = "", owner: str = "", namespace: str = "a") -> PodView:
    meta = {
        "name": name,
        "namespace": namespace,
        "uid": f"{namespace}-{name}",
        "labels": {"scheduling.koordinator.sh/questioned-object-key": job} if job else {},
        "ownerReferences": [{"name": owner, "kind": "Job", "uid": "1"}] if owner else [],
    }
    return msgspec.convert({"metadata": meta}, PodView)


def gang(name: str, groups: tuple[str, ...]) -> Gang:
    return Gang(GangRef("a", name, 1, groups=groups))


def test_labels_come_before_gangs_and_gangs_before_owners() -> None:
    gangs = {"a-m1": gang("g", ("a/g", "a/h")), "a-m2": gang("h", ("a/g", "a/h"))}
    pods = [pod("m2"), pod("m1", owner="g"), pod("o", owner="g"), pod("l", job="a/l"), pod("x", owner="l")]
    pods += [pod("far", owner="g", namespace="b"), pod("o2", owner="own")]
    search = Search(["a/g", "a/g,a/h", "a/l", "a/own", "b/g", "a/none", ""], gangs.get)
    search.look(pods[:3])
    search.look(pods[3:])

    def names(key: str) -> list[str]:
        return [found.key for found in search.pods(key)]

    assert names("a/g") == ["a/m1"]
    assert names("a/g,a/h") == ["a/m1", "a/m2"]
    assert names("a/l") == ["a/l"]
    assert names("a/own") == ["a/o2"]
    assert names("b/g") == ["b/far"]
    assert names("a/none") == []


@pytest.mark.parametrize(("text", "seconds"), [("24h", 86_400), ("", 86_400), ("0", 0), ("0s", 0), ("1m30s", 90)])
def test_time_to_live(text: str, seconds: int) -> None:
    assert ttl_s(text) == seconds


@given(st.one_of(st.text(max_size=12), st.from_regex(r"[-+]?[0-9.]{0,4}(h|m|s|ms)?", fullmatch=True)))
def test_a_time_to_live_is_a_duration_or_refused(text: str) -> None:
    try:
        assert ttl_s(text) >= 0.0
    except ValueError as error:
        assert text in str(error)


async def test_whatever_is_asked_is_answered_or_named(nats_url: str, redis_url: str, cluster: str) -> None:
    """What the API's schema lets pass, and what only an older one would."""
    odd = ("", "/", "a//b", "ns/" + "x" * 300, "☃/\u0000", "default/p,default/q", "*")
    specs: list[tuple[dict[str, object], bool]] = [({"questionObjectKey": key}, False) for key in odd]
    specs += [
        ({"questionObjectKey": None}, True),
        ({"questionObjectKey": 7}, True),
        ({"questionObjectKey": ["a"]}, True),
        ({"ttl": 5}, True),
        ({"ttl": "-1h", "questionObjectKey": "a/b"}, True),
        ({"ttl": "99999999999h", "questionObjectKey": "a/b"}, True),
        ({"questionObjectTemplate": []}, True),
    ]
    async with outside(nats_url, redis_url, cluster) as world:
        questions = Questions(world)
        await world.node("n0")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, SchedulerSettings()) as service:
            await until(lambda: service.writes_pod_groups, "it leads")
            for number, (spec, bad) in enumerate(specs):
                name = f"q{number}"
                await questions.ask(name, spec)
                if bad:
                    await until(partial(world.told, name, REASON), f"{spec} is named")
                    assert any("spec" in text for text in world.told(name, REASON))
                else:
                    assert (await questions.answered(name)).failed_message.startswith("spec.questionObjectKey: ")
            await world.pod("p")
            await until(lambda: world.node_of("p"), "the scheduler goes on")
