"""One write of an object at a time; whatever gets lost, nothing is kept for good; pauses grow and end."""

from koord.runtime.underway import Pauses, UnderWay, Write


def writes(patience_s: float = 10.0) -> UnderWay[Write]:
    return UnderWay(patience_s)


def test_one_at_a_time_until_its_end() -> None:
    under_way = writes()
    assert under_way.begin(Write("a", "1", 0.0))
    assert not under_way.begin(Write("a", "2", 9.0))
    heard = under_way.heard("1")
    assert heard is not None and heard.key == "a"
    assert "a" in under_way, "its change has still to come"
    assert under_way.heard("1") is None and under_way.unheard("1") is None
    assert not under_way.begin(Write("a", "2", 9.0))
    assert under_way.end("a") is heard
    assert under_way.begin(Write("a", "3", 9.0))
    assert under_way.of("b") is None


def test_a_silent_one_is_overdue_and_gives_way() -> None:
    under_way = writes()
    under_way.begin(Write("a", "1", 0.0))
    under_way.begin(Write("b", "2", 5.0))
    assert under_way.next_overdue_s() == 10.0
    assert [write.key for write in under_way.overdue(10.0)] == ["a"]
    assert under_way.begin(Write("a", "3", 10.0))
    assert under_way.heard("1") is None, "a late result says nothing of the next write"
    assert under_way.unheard("3") is not None


def test_nothing_is_kept() -> None:
    under_way = writes()
    for number in range(3):
        under_way.begin(Write("a", str(number), float(number)))
        under_way.end("a")
        under_way.begin(Write("b", f"b{number}", float(number)))
        under_way.clear()
    assert len(under_way) == 0 and list(under_way) == []
    assert under_way.unheard("2") is None and under_way.unheard("b2") is None
    assert under_way.next_overdue_s() is None


def test_pauses_double_up_to_the_longest() -> None:
    pauses = Pauses(0.5, 3.0)
    told = []
    for _ in range(5):
        pauses.failed("a", 10.0)
        told.append(pauses.left_s("a", 10.0))
    assert told == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert pauses.left_s("a", 13.0) == 0.0 == pauses.left_s("b", 10.0)
    pauses.over("a")
    pauses.failed("a", 10.0)
    assert pauses.left_s("a", 10.0) == 0.5


def test_free_failures_and_holds() -> None:
    pauses = Pauses(0.5, 3.0)
    for _ in range(2):
        pauses.failed("a", 0.0, free=2)
        assert pauses.left_s("a", 0.0) == 0.0
    pauses.failed("a", 0.0, free=2)
    assert pauses.left_s("a", 0.0) == 2.0
    pauses.seen("a")
    assert pauses.left_s("a", 0.0) == 2.0, "what failed is not free because somebody touched it"
    pauses.hold("b", 0.0)
    assert pauses.left_s("b", 0.0) == 0.5
    pauses.seen("b")
    assert pauses.left_s("b", 0.0) == 0.0
