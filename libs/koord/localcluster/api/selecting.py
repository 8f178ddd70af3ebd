"""Label and field selectors of requests, as one predicate over what the store projects of an object."""

from koord.kube.selectors import SelectorError, parse_field_selector, parse_label_selector
from koord.localcluster.api.errors import bad_request
from koord.localcluster.api.resources import Resource
from koord.localcluster.api.watchcache import Entry, Match


def compile_match(resource: Resource, label_selector: str | None, field_selector: str | None) -> Match | None:
    """The predicate for a request, or None when it takes everything.

    Raises 400 for a selector that cannot be read or a field that the resource does not offer.
    """
    if not label_selector and not field_selector:
        return None
    try:
        labels = parse_label_selector(label_selector) if label_selector else None
    except SelectorError as error:
        raise bad_request(f"unable to parse requirement: {error}") from error
    try:
        terms = parse_field_selector(field_selector).terms if field_selector else ()
    except SelectorError as error:
        raise bad_request(f"invalid field selector: {error}") from error
    known = {field: index for index, (field, _) in enumerate(resource.fields)}
    checks: list[tuple[int, bool, str]] = []
    for field, value, equal in terms:
        if field == "metadata.name":
            checks.append((-1, equal, value))
        elif field == "metadata.namespace":
            checks.append((-2, equal, value))
        elif field in known:
            checks.append((known[field], equal, value))
        else:
            raise bad_request(_not_offered(resource, field))
    empty: dict[str, str] = {}
    matches = labels.matches if labels is not None else None

    def match(namespace: str, name: str, labels: dict[str, str] | None, fields: tuple[str, ...]) -> bool:
        for index, equal, value in checks:
            have = fields[index] if index >= 0 else name if index == -1 else namespace
            if (have == value) is not equal:
                return False
        return matches is None or matches(labels or empty)

    return match


# Kinds with field selectors of their own say this differently from those without; these two have some elsewhere.
_WITH_FIELDS = ("replicationcontrollers", "services")


def _not_offered(resource: Resource, field: str) -> str:
    if resource.key == "jobs.batch":
        return f'field label "{field}" not supported for Job'
    if resource.fields or resource.custom or resource.key in _WITH_FIELDS:
        return f"field label not supported: {field}"
    return f'"{field}" is not a known field selector: only "metadata.name", "metadata.namespace"'


def select(entries: list[Entry], match: Match | None) -> list[Entry]:
    """The entries that a predicate takes."""
    if match is None:
        return entries
    return [entry for entry in entries if match(entry.namespace, entry.name, entry.labels, entry.fields)]
