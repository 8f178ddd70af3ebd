"""Golden example G41 of spec 70 section 6, and scheduling gates (spec 10 section 3.15), on the running scheduler."""

from typing import Any

import pytest

from koord.bus.questions import ask
from koord.contracts.asks import ExplainPod, PodExplanation
from koord.scheduler.framework.contract import PodRef
from koord.scheduler.plugins.gates import ScheduleAdmission
from tests.scheduler.outside import outside, scheduler, until

ADMISSION = "scheduling.koordinator.sh/schedule-admission"


@pytest.mark.parametrize(
    ("held", "text"),
    [
        ({"labels": {ADMISSION: ""}}, f"pod has schedule-admission gates: [{ADMISSION}]"),
        ({"schedulingGates": [{"name": "a"}, {"name": "b"}]}, "waiting for scheduling gates: [a b]"),
    ],
    ids=["admission label", "scheduling gates"],
)
async def test_g41_a_held_pod_is_not_tried_until_it_is_let_go(
    nats_url: str, redis_url: str, cluster: str, held: dict[str, Any], text: str
) -> None:
    """No event and no condition while it is held, nor afterwards."""
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n0")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster):
            await world.pod("held", **held)
            await world.pod("beside")
            await until(lambda: world.node_of("beside"), "a pod beside it is bound")
            explained = await ask(world.bus, "scheduler", "explain", ExplainPod("default", "held"), PodExplanation)
            assert (explained.state, explained.message) == ("gated", text)
            assert world.node_of("held") is None
            body = world.pods["default/held"]
            body["metadata"]["labels"] = {}
            body["spec"].pop("schedulingGates", None)
            await world.show(body)
            await until(lambda: world.node_of("held") == "n0", "bound once it was let go")
            assert world.told("held", "FailedScheduling") == []
            assert world.patches == []


def test_g41_prefixed_labels_hold_only_in_prefix_mode() -> None:
    pod = PodRef("u", "ns", "p", {f"{ADMISSION}-x": ""}, {})
    assert ScheduleAdmission().pre_enqueue(pod) is None
    assert ScheduleAdmission(prefix=True).pre_enqueue(pod) == f"pod has schedule-admission gates: [{ADMISSION}-x]"
