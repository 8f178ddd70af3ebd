"""What replies of Redis mean that are no answers of a function: errors, and INFO."""

from redis.exceptions import ResponseError

from koord.ledger.model import LedgerDamaged, LedgerError, LedgerRefused, LedgerUnavailable
from koord.ledger.resp import Reply


def refusal(message: str) -> LedgerError:
    """The exception for an error reply."""
    if message.startswith("REFUSED "):
        return LedgerRefused(message.removeprefix("REFUSED "))
    if message.split(" ", 1)[0] in ("OOM", "LOADING", "READONLY", "MASTERDOWN", "MISCONF", "NOREPLICAS", "BUSY"):
        return LedgerUnavailable(message)
    if message.startswith("WRONGTYPE ") or "@user_function" in message:
        return LedgerDamaged(message)  # a function failed at what is stored, be it that somebody else wrote it
    return LedgerError(message)


def info_of(reply: Reply) -> dict[str, str]:
    """The fields of an INFO reply."""
    text = reply.decode() if isinstance(reply, bytes) else ""
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


def said(error: ResponseError) -> str:
    """The error reply in full: redis-py takes its first word away where it knows it."""
    return f"{error.status_code} {error}" if error.status_code else str(error)
