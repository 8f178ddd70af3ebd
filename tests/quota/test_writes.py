"""One write of an object at a time; whatever gets lost, nothing is kept for good."""

from koord.kube.quotas import ElasticQuotaProfile
from koord.quota.profiles import Step
from koord.quota.writes import Writes

STEP = Step("create", ElasticQuotaProfile(), {})


def test_one_at_a_time_until_seen() -> None:
    writes = Writes(10.0)
    assert writes.begin("a", "1", 0.0)
    assert not writes.begin("a", "2", 9.0)
    assert writes.ended("1", at_once=False) == ("a", None)
    assert not writes.begin("a", "2", 9.0), "its change has still to come"
    writes.seen("a")
    assert writes.begin("a", "3", 9.0)


def test_a_conflict_is_written_again_at_once_a_refusal_later() -> None:
    writes = Writes(10.0)
    assert writes.begin("a", "1", 0.0, STEP)
    assert writes.ended("1", at_once=True) == ("a", STEP)
    assert writes.ended("1", at_once=True) is None
    assert writes.begin("a", "2", 0.0)
    assert writes.ended("2", at_once=False) == ("a", None)
    assert not writes.begin("a", "3", 9.0)
    assert writes.begin("a", "3", 10.0)
    assert writes.ended("somebody else's", at_once=True) is None


def test_a_late_result_says_nothing_of_the_next_write() -> None:
    writes = Writes(10.0)
    assert writes.begin("a", "1", 0.0, STEP)
    assert writes.begin("a", "2", 10.0)
    assert writes.ended("1", at_once=True) is None
    assert not writes.begin("a", "3", 11.0)


def test_nothing_is_kept_of_writes_without_a_result() -> None:
    writes = Writes(10.0)
    for number in range(3):
        assert writes.begin("a", str(number), float(number), STEP)
        writes.seen("a")  # the result is lost, the change is not
        assert writes.begin("b", f"b{number}", float(number))
        writes.clear()  # the bus took nothing
    assert not len(writes)
