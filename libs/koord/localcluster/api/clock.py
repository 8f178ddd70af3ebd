"""The time as objects tell it."""

import time


class Clock:
    """The wall clock in API form, formatted once a second."""

    def __init__(self) -> None:
        self._second = 0
        self._text = ""

    def now(self) -> str:
        """RFC 3339 with seconds, UTC."""
        second = int(time.time())
        if second != self._second:
            self._second = second
            self._text = self.at(second)
        return self._text

    @staticmethod
    def at(second: float) -> str:
        """A given time in the same form."""
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(second))
