"""Settings that cannot be are refused before the service starts, by a message that names the key and the rule."""

from fractions import Fraction
from typing import Any

import msgspec
import pytest

from koord.queue.headroom import rate_of
from koord.queue.settings import QueueSettings


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"timeouts": {"Jub": {"running": 5}}}, "queue.timeouts.Jub: unknown kind, known are TFJob"),
        ({"timeouts": {"Job": {"running": -5}}}, r">= 0.0 - at `\$.timeouts"),
        ({"timeouts": {"Job": {"waiting": 5}}}, "waiting"),
    ],
)
def test_impossible_settings(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=words):
        msgspec.convert(settings, QueueSettings)


def test_what_is_not_set_keeps_its_default() -> None:
    settings = msgspec.convert({"timeouts": {"Job": {"running": 5}}}, QueueSettings)
    timeouts = settings.all_timeouts()
    assert (timeouts["Job"].running, timeouts["TFJob"].backoff) == (5.0, 60.0)


@pytest.mark.parametrize("text", ["", "0", "-1", "1/0", "a/b", "1.5", "-1/-0"])
def test_a_ceiling_that_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no number|is not above 0|invalid literal"):
        rate_of(text)


def test_a_ceiling_is_exact() -> None:
    assert [rate_of("1"), rate_of("6/5")] == [Fraction(1), Fraction(6, 5)]
