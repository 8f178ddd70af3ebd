"""Settings that cannot be are refused before the service starts, by a message that names the key and the rule."""

from typing import Any

import msgspec
import pytest

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
