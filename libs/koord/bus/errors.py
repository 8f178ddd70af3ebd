"""What can go wrong on the bus, as types, so that a caller can tell "try again" from "this will never work"."""


class BusError(Exception):
    """Anything the bus refuses or cannot do; the text names the subject, stream or bucket and the rule."""


class BusUnavailable(BusError):
    """No connection, or nobody there to answer; trying again later may work."""


class BusTimeout(BusUnavailable):
    """The server did not confirm in time. The message may or may not have been stored: repeat it, it is idempotent."""


class BusOverflow(BusError):
    """More waits to be sent than the bound allows: the caller did not wait for ``room()``."""


class TooLarge(BusError):
    """The message is larger than the server takes (its ``max_payload``); no repetition helps."""


class PublishRefused(BusError):
    """JetStream answered with an error; ``code`` is its HTTP-like code, ``err_code`` its own."""

    def __init__(self, subject: str, code: int, err_code: int, description: str) -> None:
        super().__init__(f"{subject}: JetStream refused the message: {description} (code {code}, error {err_code})")
        self.code = code
        self.err_code = err_code
        self.description = description


class EpochChanged(BusError):
    """The state stream was made anew while the message waited; list again and publish what it lacks."""


class AskRefused(BusError):
    """The asked service answered with a Refusal; the text is its reason."""


class NobodyThere(BusUnavailable):
    """No service serves the subject."""
