"""One write of an object at a time; whatever gets lost, nothing is kept for good."""

from koord.kube.quotas import ElasticQuotaProfile
from koord.quota.profiles import Step
from koord.quota.writes import Writes

STEP = Step("create", ElasticQuotaProfile(), {})


def test_one_at_a_time_until_seen() -> None:
    writes = Writes(10.0)
    assert writes.begin("a", "1", 0.0)
    assert not writes.begin("a", "2", 9.0)
    assert writes.ended("1", done=True) == ("a", None)
    assert not writes.begin("a", "2", 9.0), "its change has still to come"
    writes.seen("a")
    assert writes.begin("a", "3", 9.0)


def test_what_failed_is_free_and_its_step_is_told() -> None:
    writes = Writes(10.0)
    assert writes.begin("a", "1", 0.0, STEP)
    assert writes.ended("1", done=False) == ("a", STEP)
    assert writes.ended("1", done=False) is None
    assert writes.begin("a", "2", 0.0)
    assert writes.ended("somebody else's", done=False) is None


def test_a_late_result_says_nothing_of_the_next_write() -> None:
    writes = Writes(10.0)
    assert writes.begin("a", "1", 0.0, STEP)
    assert writes.begin("a", "2", 10.0)
    assert writes.ended("1", done=False) is None
    assert not writes.begin("a", "3", 11.0)


def test_nothing_is_kept_of_writes_without_a_result() -> None:
    writes = Writes(10.0)
    for number in range(3):
        assert writes.begin("a", str(number), float(number), STEP)
        writes.seen("a")  # the result is lost, the change is not
        assert writes.begin("b", f"b{number}", float(number))
        writes.clear()  # the bus took nothing
    assert not len(writes)
