"""The parameters of lists and watches, read and checked as Kubernetes does before anything else happens."""

from koord.localcluster.api.errors import Cause, bad_request, forbidden_value, invalid_options, not_supported
from koord.localcluster.api.requests import Query

_MATCH = "resourceVersionMatch"
_MOST_DIGITS = 20


class ListOptions:
    """What a list (or, with `watch`, a watch) asks for; 422 when the parameters do not go together.

    `version` is None when absent; `limit` 0 is none; `initial` is sendInitialEvents.
    """

    def __init__(self, query: Query, *, watch: bool = False) -> None:
        self.limit = max(0, query.number("limit") or 0)
        self.seconds = max(0, query.number("timeoutSeconds") or 0)
        self.bookmarks = bool(query.flag("allowWatchBookmarks"))
        self.initial = query.flag("sendInitialEvents")
        self.token = query.text("continue")
        match, version = query.text(_MATCH), query.text("resourceVersion")
        causes = self._watch_causes(match) if watch else self._list_causes(match, version)
        if causes:
            raise invalid_options("ListOptions", causes)
        self.exact = match == "Exact"
        self.version = read_version(version)

    def _list_causes(self, match: str, version: str) -> list[Cause]:
        causes: list[Cause] = []
        if match:
            if not version:
                causes.append(forbidden_value(_MATCH, f"{_MATCH} is forbidden unless resourceVersion is provided"))
            if self.token:
                causes.append(forbidden_value(_MATCH, f"{_MATCH} is forbidden when continue is provided"))
            if match not in ("Exact", "NotOlderThan"):
                causes.append(not_supported(_MATCH, match, ("Exact", "NotOlderThan", "")))
            if match == "Exact" and version == "0":
                causes.append(forbidden_value(_MATCH, f'{_MATCH} "exact" is forbidden for resourceVersion "0"'))
        if self.initial is not None:
            causes.append(forbidden_value("sendInitialEvents", "sendInitialEvents is forbidden for list"))
        return causes

    def _watch_causes(self, match: str) -> list[Cause]:
        causes: list[Cause] = []
        if self.initial is not None and match != "NotOlderThan":
            causes.append(forbidden_value(_MATCH, f"sendInitialEvents requires setting {_MATCH} to NotOlderThan"))
        if match:
            if self.initial is None:
                why = f"{_MATCH} is forbidden for watch unless sendInitialEvents is provided"
                causes.append(forbidden_value(_MATCH, why))
            if match != "NotOlderThan":
                causes.append(not_supported(_MATCH, match, ("NotOlderThan",)))
            if self.token:
                causes.append(forbidden_value(_MATCH, f"{_MATCH} is forbidden when continue is provided"))
        return causes


def read_version(text: str) -> int | None:
    """A resource version as a number, None when absent; 400 when it is none."""
    if text == "":
        return None
    if not (text.isascii() and text.isdigit()):
        raise bad_request(
            f'invalid resource version: resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}":'
            " invalid syntax"
        )
    if len(text) > _MOST_DIGITS or int(text) >= 1 << 64:
        raise bad_request(
            f'invalid resource version: resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}":'
            " value out of range"
        )
    return int(text)
