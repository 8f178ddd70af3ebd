"""``PUT /debug/flags/{v,s,f,d,db}``: what is logged, changed while the service runs (spec 10 section 2.11)."""

from koord.runtime.pages import ANY, Asked, Page, Pages
from koord.scheduler.debugging import Debugging
from koord.telemetry.logs import set_verbosity

MOST_SCORES = 1000
_TRUE = frozenset(("1", "t", "T", "true", "TRUE", "True"))
_FALSE = frozenset(("0", "f", "F", "false", "FALSE", "False"))


class Flags:
    """The flags by their letters. A value that is none changes nothing and is answered with 400."""

    def __init__(self, pages: Pages, debugging: Debugging) -> None:
        self._debugging = debugging
        pages.add(ANY, "/debug/flags/{flag}", self._flag)

    async def _flag(self, asked: Asked) -> Page:
        flag = asked.names["flag"]
        setters = {"v": self._verbosity, "s": self._scores, "f": self._filters, "d": self._dump, "db": self._blocking}
        setter = setters.get(flag)
        if setter is None:
            return _text(404, f"there is no flag {flag}, only {', '.join(setters)}")
        if asked.method != "PUT":
            return _text(406, f"{asked.method} is not supported, only PUT")
        text = asked.body.decode(errors="replace").strip()
        try:
            name = setter(text)
        except ValueError as error:
            return _text(400, f"failed to set flag {flag} to {text[:63]!r}: {error}")
        return _text(200, f"successfully set {name} to {text}")

    def _verbosity(self, text: str) -> str:
        set_verbosity(_number(text))
        return "klog.logging.verbosity"

    def _scores(self, text: str) -> str:
        number = _number(text)
        if not 0 <= number <= MOST_SCORES:
            raise ValueError(f"must be in 0..{MOST_SCORES}")
        self._debugging.scores = number
        return "debugTopNScores"

    def _filters(self, text: str) -> str:
        self._debugging.filters = _flag(text)
        return "debugFilterFailure"

    def _dump(self, text: str) -> str:
        self._debugging.diagnosis = _flag(text)
        return "dumpDiagnosis"

    def _blocking(self, text: str) -> str:
        self._debugging.blocking = _flag(text)
        return "dumpDiagnosisBlocking"


def _number(text: str) -> int:
    digits = text.removeprefix("-").removeprefix("+") if text[:1] in "+-" else text
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 10):
        raise ValueError("must be a whole number")
    return int(text)


def _flag(text: str) -> bool:
    if text not in _TRUE and text not in _FALSE:
        raise ValueError("must be true or false")
    return text in _TRUE


def _text(status: int, text: str) -> Page:
    return Page(status, text.encode(), "text/plain")
