"""The string formats of OpenAPI that the real server checks."""

import ipaddress
import re
from collections.abc import Callable
from datetime import date

_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt]([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d+)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)"
)
_UUID = r"[0-9a-f]{8}-?[0-9a-f]{4}-?%s[0-9a-f]{3}-?%s[0-9a-f]{3}-?[0-9a-f]{12}"
_HOST = re.compile(r"([a-zA-Z0-9\-_]{1,63}\.)*[a-zA-Z0-9\-_]{1,63}\.?")


def _date(text: str) -> bool:
    try:
        return len(text) == 10 and bool(date.fromisoformat(text))
    except ValueError:
        return False


def _date_time(text: str) -> bool:
    found = _TIME.fullmatch(text)
    return found is not None and _date("-".join(found.groups()[:3]))


def _ip(version: int) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            return ipaddress.ip_address(text).version == version
        except ValueError:
            return False

    return check


def _cidr(text: str) -> bool:
    try:
        return "/" in text and bool(ipaddress.ip_network(text, strict=False))
    except ValueError:
        return False


def _matches(pattern: str, flags: int = 0) -> Callable[[str], bool]:
    compiled = re.compile(pattern, flags)
    return lambda text: compiled.fullmatch(text) is not None


def _duration(text: str) -> bool:
    return bool(re.fullmatch(r"[+-]?((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))+|0", text)) or bool(
        re.fullmatch(r"(?i)\d+(\.\d+)?\s*(ns|nano|us|micro|ms|milli|s|sec|m|min|h|hr|hour|d|day|w|wk|week)s?", text)
    )


CHECKS: dict[str, Callable[[str], bool]] = {
    "date": _date,
    "date-time": _date_time,
    "datetime": _date_time,
    "duration": _duration,
    "byte": _matches(r"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"),
    "uuid": _matches(_UUID % ("[0-9a-f]", "[0-9a-f]"), re.IGNORECASE),
    "uuid3": _matches(_UUID % ("3", "[0-9a-f]"), re.IGNORECASE),
    "uuid4": _matches(_UUID % ("4", "[89ab]"), re.IGNORECASE),
    "uuid5": _matches(_UUID % ("5", "[89ab]"), re.IGNORECASE),
    "ipv4": _ip(4),
    "ipv6": _ip(6),
    "cidr": _cidr,
    "mac": _matches(r"([0-9A-Fa-f]{2}([:-])){5}[0-9A-Fa-f]{2}|([0-9A-Fa-f]{4}\.){2}[0-9A-Fa-f]{4}"),
    "hostname": lambda text: len(text) <= 255 and _HOST.fullmatch(text) is not None,
    "email": _matches(r"[^@\s]+@[^@\s]+"),
    "uri": _matches(r"[a-zA-Z][a-zA-Z0-9+.-]*:\S+|/\S*"),
    "hexcolor": _matches(r"#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "rgbcolor": _matches(r"rgb\(\s*\d{1,3}\s*,\s*\d{1,3}\s*,\s*\d{1,3}\s*\)"),
}
"""By format; a format that is not here is not checked."""
KNOWN = frozenset(CHECKS) | {"", "int32", "int64", "float", "double", "float32", "float64", "password"}
"""What a definition may say without a warning, besides a few that nobody uses."""
