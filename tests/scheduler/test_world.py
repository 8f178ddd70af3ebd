"""Books after arbitrary histories: what the columns and quotas say equals what the API shows plus what is planned."""

import json

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from koord.kube.protocol.scheduler import BIND_SETTLED
from koord.scheduler.podview import PodView
from tests.scheduler.worldstory import NODES, PODS_, Story

moves = st.lists(
    st.tuples(
        st.sampled_from(
            ("create", "bind", "bind", "end", "delete", "replace", "node", "lose", "plan", "back", "label")
        ),
        st.integers(0, PODS_ - 1),
        st.integers(0, 2),
    ),
    max_size=40,
)


@settings(max_examples=300, deadline=None)
@given(moves)
def test_books_equal_the_truth(steps: list[tuple[str, int, int]]) -> None:
    story = Story()
    generation = dict.fromkeys(range(PODS_), 0)
    for what, number, which in steps:
        story.now += 0.5
        view = story.pods.get(number)
        if what == "create" and view is None:
            generation[number] += 1
            story.pod(number, generation[number])
        elif what == "bind" and view is not None and not view.terminal:
            story.pod(number, generation[number], view.spec.node_name or NODES[which], "Running")
        elif what == "label" and view is not None and not view.terminal:
            story.pod(number, generation[number], view.spec.node_name, view.status.phase, team=which > 0)
        elif what == "end" and view is not None and view.spec.node_name:
            story.pod(number, generation[number], view.spec.node_name, ("Succeeded", "Failed", "Failed")[which])
        elif what == "delete":
            story.delete(number)
        elif what == "replace" and view is not None:
            generation[number] += 1
            story.pod(number, generation[number])
        elif what == "node":
            story.node(NODES[which], 1 + number)
        elif what == "lose":
            story.remove_node(NODES[which])
        elif what == "plan":
            story.plan()
        elif what == "back":
            story.give_back()
        story.check()


def test_a_settled_pod_is_not_tried_again_for_that() -> None:
    """A barrier may settle thousands that wait: their versions change, and nothing that could help them."""
    story = Story()
    seen: list[PodView] = []

    def shown(annotations: dict[str, str]) -> None:
        meta = {"name": "p", "namespace": "d", "uid": "u", "annotations": annotations}
        spec = {"schedulerName": "koord-scheduler", "containers": [{"name": "c"}]}
        body = json.dumps({"metadata": meta, "spec": spec, "status": {"phase": "Pending"}}).encode()
        seen.append(msgspec.json.decode(body, type=PodView))
        story.world.apply_pod(seen[-2] if len(seen) > 1 else None, seen[-1], story.now)

    shown({})
    [unit] = story.queue.pop(1, story.now)
    story.queue.reject(unit, ["NodeResourcesFit"], story.now)
    assert unit.state == "unschedulable"
    for annotations, parked in (({BIND_SETTLED: "1"}, True), ({BIND_SETTLED: "2"}, True), ({"x": "y"}, False)):
        shown(annotations)
        assert (story.queue.counts["unschedulable"] == 1) is parked, annotations
