"""A cluster's answer that ends before what was confirmed: who may end the doubt, and when it is believed."""

from koord.bus.doubt import STALE_S, TailDoubt


def test_a_lost_tail_is_believed_after_a_while_however_often_others_ask() -> None:
    doubt, now = TailDoubt(), 100.0
    while now < 100.0 + STALE_S:
        assert not doubt.believes("a", 90, 100, "a", now)
        assert doubt.believes("a", 90, 0, "", now + 0.5), "who knows nothing doubts nothing"
        assert doubt.believes("a", 90, 80, "a", now + 0.7)
        now += 1.0
    assert doubt.believes("a", 90, 100, "a", now)
    assert doubt.believes("a", 90, 95, "a", now), "and by all who ask"


def test_a_right_answer_ends_the_doubt() -> None:
    doubt = TailDoubt()
    assert not doubt.believes("a", 90, 100, "a", 0.0)
    assert doubt.believes("a", 101, 0, "", STALE_S / 2)
    assert not doubt.believes("a", 90, 101, "a", STALE_S + 1.0), "the next stale answer is doubted anew"


def test_another_life_of_the_stream_is_believed_at_once() -> None:
    doubt = TailDoubt()
    assert not doubt.believes("a", 90, 100, "a", 0.0)
    assert doubt.believes("b", 3, 100, "a", 1.0)
    assert not doubt.believes("b", 3, 10, "b", STALE_S + 1.0)
