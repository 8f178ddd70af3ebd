"""What the reading commands show: nothing is cut in a narrow terminal, and a waiting job is told why."""

import subprocess
import sys
from fractions import Fraction
from typing import Any

import pytest
from rich.console import Console

from koord.cli import output
from koord.cli.commands.trace import waterfall
from koord.cli.errors import CommandError
from koord.cli.jobview import QueueRule, explain
from koord.cli.output import listing, show
from koord.cli.views import by_resource, queues, readable, running_of

COLUMNS = {"name": "NAME", "kind": "KIND", "age": "AGE", "message": "MESSAGE"}
LONG = "limited by the quota of the team, which has no room for as many workers as this job asks for"
ROWS = [{"name": "a-rather-long-name-of-a-job", "kind": "PyTorchJob", "age": "3s", "message": LONG}]


def lines(width: int | None, spare: tuple[str, ...] = ()) -> list[str]:
    return [line.plain for line in listing(COLUMNS, ROWS, width, spare)]


def test_into_a_pipe_every_row_is_one_line() -> None:
    assert lines(None) == [
        "NAME                         KIND        AGE  MESSAGE",
        f"a-rather-long-name-of-a-job  PyTorchJob  3s   {LONG}",
    ]


@pytest.mark.parametrize("width", [100, 80, 60, 50])
def test_a_narrow_terminal_cuts_nothing(width: int) -> None:
    shown = lines(width)
    assert max(map(len, shown)) <= width
    assert all(word in " ".join(shown) for word in (ROWS[0]["name"], "PyTorchJob", "3s", *LONG.split()))


def test_what_is_left_out_is_named() -> None:
    shown = lines(30, ("priority", "kind", "age"))
    assert shown[1] == ROWS[0]["name"]
    assert shown[-1] == "(too narrow for KIND, AGE)"
    assert " ".join(" ".join(shown[2:-1]).split()) == LONG


def test_a_listing_is_printed_at_the_terminals_width(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "Console", lambda **_: Console(force_terminal=True, width=50, color_system=None))
    show(COLUMNS, ROWS)
    told = capsys.readouterr().out.splitlines()
    assert max(map(len, told)) <= 50
    assert len(told) > 3


def quota(name: str, limit: dict[str, str], used: dict[str, str], parent: str = "") -> dict[str, Any]:
    labels = {"quota.scheduling.koordinator.sh/parent": parent} if parent else {}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"max": limit}, "status": {"used": used}}


def waiting_job(queue: str, cpu: str) -> tuple[dict[str, list[Any]], list[Any]]:
    unit = {
        "metadata": {"namespace": "ml", "name": "train-py-qu"},
        "spec": {"queue": queue, "request": {"cpu": cpu}, "consumerRef": {"kind": "PyTorchJob", "name": "train"}},
        "status": {"phase": "Enqueued", "message": "limited", "attempts": 2},
    }
    return {"pytorchjobs_kubeflow_org": [{"metadata": {"namespace": "ml", "name": "train"}}]}, [unit]


TREE = [
    quota("team", {"cpu": "10"}, {"cpu": "1"}, "company"),
    quota("company", {"cpu": "20"}, {"cpu": "15500m"}),
]
QUEUES = [{"metadata": {"name": "team"}}]


def test_explain_job_shows_what_is_short_on_the_whole_chain() -> None:
    told = explain("ml", "train", *waiting_job("team", "8"), QUEUES, TREE, [])
    assert told["quota"] == [
        {"name": "team", "resource": "cpu", "asks": "8", "used": "1", "now": "10", "max": "10", "short": ""},
        {
            "name": "company",
            "resource": "cpu",
            "asks": "8",
            "used": "15500m",
            "now": "20",
            "max": "20",
            "short": "3500m",
        },
    ]
    assert (told["phase"], told["message"]) == ("Enqueued", "limited")
    assert told["notes"] == ["queue team, attempts so far 2; tried again when room comes free"]


def test_explain_job_says_when_it_can_never_fit() -> None:
    notes = explain("ml", "train", *waiting_job("team", "11"), QUEUES, TREE, [])["notes"]
    assert notes == ["queue team", "it can never fit: it asks for more cpu than the max of quota team"]


def test_explain_job_says_what_to_do_without_a_queue() -> None:
    told = explain("ml", "train", *waiting_job("nowhere", "1"), QUEUES, TREE, [])
    assert told["quota"] == []
    assert "there is no queue 'nowhere': create an ElasticQuota" in told["notes"][0]


@pytest.mark.parametrize(
    ("status", "reason", "shown"),
    [
        ("True", "Ready", ""),
        ("True", "PreviousPolicy", "policy Priority stays in force"),
        ("False", "PolicyNotBuilt", "policy Priority stays in force"),
    ],
)
def test_get_queues_says_when_the_policy_is_not_what_is_asked_for(status: str, reason: str, shown: str) -> None:
    active = {"type": "Active", "status": status, "reason": reason, "message": "policy Priority stays in force"}
    queue = {"metadata": {"name": "team"}, "spec": {"queuePolicy": "Foo"}, "status": {"conditions": [active]}}
    [row] = queues([queue], [], 0.0)
    assert row["message"] == shown
    del queue["status"]
    assert queues([queue], [], 0.0)[0]["message"] == ""


def test_explain_job_points_at_the_quota_that_made_no_queue() -> None:
    broken = quota("broken", {"cpu": "-1"}, {})
    told = explain("ml", "train", *waiting_job("broken", "1"), QUEUES, [broken], [])
    assert "though there is an ElasticQuota broken: see its events" in told["notes"][0]


def test_explain_job_shows_what_can_be_read_of_a_malformed_quota() -> None:
    leaf = quota("team", {"cpu": "many", "memory": "1Gi"}, {"cpu": "few"}, "company")
    leaf["spec"]["min"] = {"cpu": "some"}
    told = explain("ml", "train", *waiting_job("team", "8"), QUEUES, [leaf, TREE[1]], [])
    shown = [(row["name"], row["used"], row["max"], row["short"]) for row in told["quota"]]
    assert shown == [("team", "", "", ""), ("company", "15500m", "20", "3500m")]


def test_explain_job_of_a_job_that_is_not_held_and_of_none() -> None:
    jobs, _ = waiting_job("team", "1")
    assert (
        "only jobs that are suspended or name a quota" in explain("ml", "train", jobs, [], QUEUES, TREE, [])["notes"][0]
    )
    with pytest.raises(CommandError, match="job ml/other: no such job"):
        explain("ml", "other", jobs, [], QUEUES, TREE, [])


@pytest.mark.parametrize(
    "held",
    [
        {"spec": {"suspend": True}},
        {"spec": {"runPolicy": {"suspend": True}}},
        {"metadata": {"namespace": "ml", "name": "train", "labels": {"quota.scheduling.koordinator.sh/name": "team"}}},
    ],
)
def test_explain_job_of_a_job_that_the_queue_has_not_come_to(held: dict[str, Any]) -> None:
    jobs = {token: [item | held for item in items] for token, items in waiting_job("team", "1")[0].items()}
    [note] = explain("ml", "train", jobs, [], QUEUES, TREE, [])["notes"]
    assert "no QueueUnit for it yet" in note


def test_explain_job_goes_by_what_the_quota_may_use_now() -> None:
    leaf = quota("team", {"cpu": "10"}, {"cpu": "4"})
    leaf["metadata"]["annotations"] = {"quota.scheduling.koordinator.sh/runtime": '{"cpu":"6"}'}
    [row] = explain("ml", "train", *waiting_job("team", "3"), QUEUES, [leaf], [])["quota"]
    assert (row["now"], row["max"], row["short"]) == ("6", "10", "1")
    leaf["spec"]["min"] = {"cpu": "8"}
    [row] = explain("ml", "train", *waiting_job("team", "3"), QUEUES, [leaf], [])["quota"]
    assert (row["now"], row["short"]) == ("8", "")


def test_explain_job_goes_by_what_the_queue_is_held_to() -> None:
    leaf = quota("team", {"cpu": "10"}, {"cpu": "4"})
    leaf["metadata"]["annotations"] = {"quota.scheduling.koordinator.sh/runtime": '{"cpu":"6"}'}

    def told(asks: str, rule: QueueRule) -> tuple[Any, ...]:
        found = explain("ml", "train", *waiting_job("team", asks), QUEUES, [leaf], [], rule)
        [row] = found["quota"]
        return row["now"], row["short"], any("can never fit" in note for note in found["notes"])

    assert told("3", QueueRule(by_runtime=False)) == ("10", "", False)
    assert told("13", QueueRule(Fraction(3, 2), by_runtime=False)) == ("15", "2", False)
    assert told("16", QueueRule(Fraction(3, 2), by_runtime=False)) == ("15", "5", True)
    assert told("3", QueueRule(Fraction(1, 2))) == ("5", "2", False)
    assert told("6", QueueRule(Fraction(1, 2))) == ("5", "5", True)


def test_explain_job_counts_its_own_pods() -> None:
    def pod(name: str, phase: str, owner: str, node: str = "") -> dict[str, Any]:
        references = [{"kind": "PyTorchJob", "name": owner}]
        meta = {"namespace": "ml", "name": name, "ownerReferences": references}
        return {"metadata": meta, "spec": {"nodeName": node}, "status": {"phase": phase}}

    pods = [pod("a", "Running", "train", "n"), pod("b", "Pending", "train", "n"), pod("c", "Pending", "train")]
    told = explain("ml", "train", *waiting_job("team", "1"), QUEUES, TREE, [*pods, pod("x", "Running", "other")])
    assert {row["status"]: (row["count"], row["example"]) for row in told["pods"]} == {
        "Running": (1, "ml/a"),
        "Starting": (1, "ml/b"),
        "Pending": (1, "ml/c"),
    }


def test_amounts_are_for_people() -> None:
    assert readable({"cpu": str((2**63 - 1) // 5), "memory": "4Gi"}) == {"cpu": "unlimited", "memory": "4Gi"}
    assert [running_of({"running": 1, "pods": pods}) for pods in (4, 0)] == ["1/4", ""]
    row = {
        "label": "  team",
        "min": {},
        "max": {"cpu": "2", "nvidia.com/gpu": "1"},
        "runtime": {"cpu": "2"},
        "used": {"cpu": "1"},
        "request": {},
    }
    assert by_resource(row) == [
        {"label": "  team", "resource": "cpu", "min": "", "max": "2", "runtime": "2", "used": "1", "request": ""},
        {"label": " ", "resource": "gpu", "min": "", "max": "1", "runtime": "", "used": "", "request": ""},
    ]


def test_a_waterfall_keeps_to_the_terminal_but_never_cuts_an_error() -> None:
    def span(number: int, **more: Any) -> dict[str, Any]:
        times = {"start_ns": number, "end_ns": number + 5}
        return {"span_id": str(number), "name": "gateway.patch", "service": "koord-gateway", **times, **more}

    subject = {"object": "queueunits_scheduling_x-k8s_io research/a-job-with-a-name-that-is-longer-than-the-room"}
    spans = [span(1, attributes=subject), span(2, parent_id="1", error=LONG)]
    ok, failed = (line.plain for line in waterfall(spans, 1, 10, 80))
    assert len(ok) == 80
    assert " queueunit research/a-job" in ok
    assert failed.endswith(LONG)
    assert next(waterfall(spans, 1, 10, None)).plain.endswith(
        "queueunit research/a-job-with-a-name-that-is-longer-than-the-room"
    )


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--version",), 0, "koord 0."),
        (("get", "unicorns"), 2, "get 'unicorns': unknown; known are queues, jobs, quotas, nodes, pods"),
        (("get", "job", "a/b", "-n", "c"), 2, "a/b: is not in the namespace asked for, 'c'"),
        (("demo", "--json", "/nowhere/x.json"), 2, "--json /nowhere/x.json"),
    ],
)
def test_what_is_asked_wrongly_is_told_at_once(arguments: tuple[str, ...], code: int, words: str) -> None:
    command = [sys.executable, "-m", "koord.cli.main", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, words in done.stdout + done.stderr) == (code, True), done.stdout + done.stderr
