"""Protocol keys: what a reader makes of good, old and bad texts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.kube.meta import parse_time
from koord.kube.protocol import gang, qos, queue, quota, scheduler
from koord.kube.protocol.gang import GangRef, gang_of, governed_by


def test_gang_by_annotation() -> None:
    annotations = {
        gang.NAME: "g",
        gang.MIN_AVAILABLE: "3",
        gang.WAITING_TIME: "1m30s",
        gang.MODE: "NonStrict",
        gang.GROUPS: '["ns/h","ns/g"]',
        gang.MATCH_POLICY: "only-waiting",
        gang.TOTAL_NUMBER: "5",
    }
    found = gang_of({}, annotations, "ns")
    assert found == GangRef("ns", "g", 3, "NonStrict", 90.0, ("ns/g", "ns/h"), "only-waiting", 5)
    assert found is not None
    assert (found.id, found.group_id) == ("ns/g", "ns/g,ns/h")


def test_gang_name_and_minimum_by_label_come_first() -> None:
    labels = {gang.POD_GROUP: "pg", gang.POD_GROUP_NAME: "old", gang.POD_GROUP_MIN_AVAILABLE: "2"}
    annotations = {gang.NAME: "annotated", gang.MIN_AVAILABLE: "9"}
    found = gang_of(labels, annotations, "ns")
    assert found is not None
    assert (found.name, found.min, found.waits_for_pod_group) == ("pg", 2, True)
    found = gang_of({gang.POD_GROUP_NAME: "old"}, annotations, "ns")
    assert found is not None
    assert (found.name, found.min, found.waits_for_pod_group) == ("old", 9, False)
    found = gang_of({gang.POD_GROUP: "", gang.POD_GROUP_NAME: ""}, annotations, "ns")
    assert found is not None
    assert found.name == "annotated"


def test_a_pod_alone() -> None:
    assert gang_of({}, {}, "ns") is None
    assert gang_of({}, {gang.NAME: "", gang.MIN_AVAILABLE: "3"}, "ns") is None


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        (gang.MIN_AVAILABLE, "three", {"min": None}),
        (gang.MIN_AVAILABLE, "2147483648", {"min": None}),
        (gang.WAITING_TIME, "0", {"wait_s": None}),
        (gang.WAITING_TIME, "-5s", {"wait_s": None}),
        (gang.WAITING_TIME, "abc", {"wait_s": None}),
        (gang.MODE, "strict", {"mode": "Strict"}),
        (gang.GROUPS, "ns/a,ns/b", {"groups": ("ns/g",)}),
        (gang.GROUPS, '{"a":1}', {"groups": ("ns/g",)}),
        (gang.MATCH_POLICY, "sometimes", {"match_policy": ""}),
        (gang.TOTAL_NUMBER, "1", {"total": 2}),
        (gang.TOTAL_NUMBER, "x", {"total": 2}),
    ],
)
def test_bad_gang_values_are_named_and_replaced(key: str, text: str, expected: dict[str, object]) -> None:
    found = gang_of({}, {gang.NAME: "g", gang.MIN_AVAILABLE: "2", key: text}, "ns")
    assert found is not None
    assert len(found.problems) == 1
    assert found.problems[0].startswith(key + ":")
    assert {name: getattr(found, name) for name in expected} == expected


def test_a_missing_minimum_is_a_problem_unless_a_pod_group_governs() -> None:
    alone = gang_of({}, {gang.NAME: "g"}, "ns")
    assert alone is not None
    assert alone.min is None
    assert "missing" in alone.problems[0]
    waiting = gang_of({gang.POD_GROUP: "g"}, {}, "ns")
    assert waiting is not None
    assert not waiting.problems
    ruled = governed_by(waiting, 4, 0, {gang.MODE: "NonStrict"})
    assert (ruled.min, ruled.mode, ruled.wait_s, ruled.waits_for_pod_group) == (4, "NonStrict", None, True)
    assert governed_by(waiting, 4, 30, {}).wait_s == 30.0


def test_a_negative_minimum_is_zero_and_named() -> None:
    for text, problems in (("0", []), ("-3", ['min-available: must not be negative, got "-3"; 0 is used'])):
        found = gang_of({}, {gang.NAME: "g", gang.MIN_AVAILABLE: text}, "ns")
        assert found is not None
        assert (found.min, [problem.rpartition("/")[2] for problem in found.problems]) == (0, problems)
        ruled = governed_by(found, int(text), None, {})
        assert (ruled.min, len(ruled.problems)) == (0, len(problems))


@given(
    st.dictionaries(
        st.sampled_from(
            [
                gang.NAME,
                gang.MIN_AVAILABLE,
                gang.WAITING_TIME,
                gang.MODE,
                gang.GROUPS,
                gang.MATCH_POLICY,
                gang.TOTAL_NUMBER,
            ]
        ),
        st.text(max_size=10),
    )
)
def test_no_annotation_text_breaks_the_gang_reader(annotations: dict[str, str]) -> None:
    found = gang_of({}, annotations, "ns")
    if found is not None:
        assert found.groups
        assert found.mode in ("Strict", "NonStrict")


def test_what_is_written_reads_back() -> None:
    found = gang_of({}, gang.write_gang("train-tf-qu", 4), "ml")
    assert found is not None
    assert (found.name, found.min, found.problems) == ("train-tf-qu", 4, ())
    assert gang.carries_gang({}, gang.write_gang("g", 1))
    assert gang.carries_gang({gang.POD_GROUP: "g"}, {})
    assert not gang.carries_gang({"a": "b"}, {"c": "d"})


def test_queue_keys_are_read_with_both_prefixes_and_the_new_one_wins() -> None:
    assert queue.lookup({"koord-queue/max-depth": "5", "kube-queue/max-depth": "9"}, queue.MAX_DEPTH) == "5"
    assert queue.integer({"kube-queue/max-depth": "9"}, queue.MAX_DEPTH, -1) == 9
    assert queue.integer({"koord-queue/max-depth": "many"}, queue.MAX_DEPTH, -1) == -1
    assert queue.flag({"kube-queue/wait-for-pods-running": "true"}, queue.WAIT_FOR_PODS_RUNNING)
    assert not queue.flag({"koord-queue/wait-for-pods-running": "yes"}, queue.WAIT_FOR_PODS_RUNNING)
    assert queue.duration_s({"koord-queue/queue-items-refresh-interval": "30s"}, queue.ITEMS_REFRESH_INTERVAL, 15) == 30
    assert queue.duration_s({"koord-queue/queue-items-refresh-interval": "x"}, queue.ITEMS_REFRESH_INTERVAL, 15) == 15
    assert queue.lookup({"kube-queue/x": "1"}, "scheduling.x-k8s.io/priority") is None


def test_what_a_quota_hands_to_its_queue() -> None:
    annotations = {
        "kube-queue/max-depth": "9",
        "koord-queue/max-depth": "50",
        "kube-queue/wait-for-pods-running": "true",
        "koord-queue/queue-policy": "Block",
        "other": "x",
    }
    assert queue.queue_annotations(annotations) == {
        "koord-queue/max-depth": "50",
        "koord-queue/wait-for-pods-running": "true",
    }
    assert queue.policy_of_quota({}, annotations) == "Block"
    assert queue.policy_of_quota({"kube-queue/queue-policy": "FIFO"}, annotations) == "FIFO"
    assert queue.policy_of_quota({}, {}) == "Priority"
    assert queue.wants_queue({})
    assert not queue.wants_queue({"quota-koord-queue-enable": "false"})
    assert queue.created_by_queue({"create-by-kubequeue": "true"})
    assert not queue.created_by_queue({})


def test_job_annotations() -> None:
    assert queue.queue_priority({}) == (None, "")
    assert queue.queue_priority({"scheduling.x-k8s.io/priority": "-7"}) == (-7, "")
    value, problem = queue.queue_priority({"scheduling.x-k8s.io/priority": "abc"})
    assert value is None
    assert 'scheduling.x-k8s.io/priority: must be a 32-bit integer, got "abc"' in problem
    assert queue.active({"scheduling.x-k8s.io/active": "F"}) == (False, "")
    assert queue.active({"scheduling.x-k8s.io/active": ""}) == (None, "")
    assert queue.active({"scheduling.x-k8s.io/active": "yes"})[1]
    assert queue.max_exec_seconds({"scheduling.x-k8s.io/max-exec-time-seconds": "60"}) == (60, "")
    assert queue.max_exec_seconds({"scheduling.x-k8s.io/max-exec-time-seconds": "-3"})[0] is None
    assert "above 0" in queue.max_exec_seconds({"scheduling.x-k8s.io/max-exec-time-seconds": "-3"})[1]


def test_time_stamps_of_both_forms() -> None:
    expected = parse_time("2026-03-02T09:00:00.5Z")
    assert queue.read_timestamp("2026-03-02T09:00:00.5Z") == expected
    assert queue.read_timestamp("2026-03-02 09:00:00.5 +0000 UTC") == expected
    assert queue.read_timestamp("2026-03-02 17:00:00.500000001 +0800 CST m=+0.123456789") == expected
    for bad in ("", "soon", "2026-03-02 09:00:00", "2026-99-02 09:00:00 +0000 UTC"):
        assert queue.read_timestamp(bad) is None


def test_quota_keys() -> None:
    assert quota.quota_label({quota.NAME: "a", quota.LEGACY_NAME: "b"}) == "a"
    assert quota.quota_label({quota.LEGACY_NAME: "b"}) == "b"
    assert quota.quota_label({}) == ""
    assert quota.parent_of({}) == quota.parent_of({quota.PARENT: ""}) == "koordinator-root-quota"
    assert quota.allows_lending({})
    assert not quota.allows_lending({quota.ALLOW_LENT_RESOURCE: "false"})
    assert quota.is_preemptible({})
    assert not quota.is_preemptible({quota.PREEMPTIBLE: "false"})
    assert quota.bound_namespaces({quota.NAMESPACES: '["a","b"]'}) == ("a", "b")
    assert quota.bound_namespaces({}) == ()
    for bad in ("a,b", '{"a":1}', "[1]"):
        with pytest.raises(quota.AnnotationError, match=r"quota\.scheduling\.koordinator\.sh/namespaces"):
            quota.bound_namespaces({quota.NAMESPACES: bad})
    assert quota.resource_list({quota.SHARED_WEIGHT: '{"cpu":"2","memory":4}'}, quota.SHARED_WEIGHT) == {
        "cpu": "2",
        "memory": 4,
    }
    assert quota.resource_list({}, quota.RUNTIME) is None
    assert quota.write_resource_list({"memory": "1Gi", "cpu": "2"}) == '{"cpu":"2","memory":"1Gi"}'


def test_qos_and_priority_classes() -> None:
    assert qos.qos_class({qos.QOS_CLASS: "LSR"}) == "LSR"
    assert qos.qos_class({qos.QOS_CLASS: "gold"}) == ""
    assert qos.qos_class_with_default({}, "Guaranteed") == "LSR"
    assert qos.qos_class_with_default({}, "BestEffort") == "BE"
    for priority, name in (
        (9000, "koord-prod"),
        (9999, "koord-prod"),
        (7500, "koord-mid"),
        (5999, "koord-batch"),
        (3000, "koord-free"),
        (8000, ""),
        (None, ""),
    ):
        assert qos.priority_class({}, priority) == name
    assert qos.priority_class({qos.PRIORITY_CLASS: "koord-mid"}, 9500) == "koord-mid"
    assert qos.priority_class({qos.PRIORITY_CLASS: "nonsense"}, 9500) == ""
    assert qos.priority_class_with_default({}, None, "BestEffort") == "koord-batch"
    assert qos.priority_class_with_default({}, None, "Burstable") == "koord-prod"
    assert qos.sub_priority({qos.PRIORITY: "5"}) == 5
    assert qos.sub_priority({qos.PRIORITY: "x"}) is None


def test_scheduler_keys() -> None:
    assert scheduler.scheduler_name({}, "") == "default-scheduler"
    assert scheduler.scheduler_name({}, "koord-scheduler") == "koord-scheduler"
    assert scheduler.scheduler_name({scheduler.SCHEDULER_NAME: "other"}, "koord-scheduler") == "other"
    gate = scheduler.SCHEDULE_ADMISSION
    assert scheduler.admission_gates({gate: ""}) == [gate]
    assert scheduler.admission_gates({gate + "-x": ""}) == []
    assert scheduler.admission_gates({gate + "-x": ""}, prefix=True) == [gate + "-x"]
    assert scheduler.admission_gates({"alibabacloud.com/schedule-admission": "true"}) == []
    assert scheduler.admission_gates({"alibabacloud.com/schedule-admission": "false"}) == [
        "alibabacloud.com/schedule-admission"
    ]
    assert scheduler.admission_gates({}) == []
