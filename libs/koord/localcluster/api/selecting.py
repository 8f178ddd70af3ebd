"""Label and field selectors of requests, as one predicate over what the store projects of an object."""

from collections.abc import Iterable

from koord.kube.manyterms import matcher
from koord.kube.selectors import SelectorError
from koord.kube.selectortexts import parse_field_selector, parse_label_selector
from koord.localcluster.api.errors import bad_request
from koord.localcluster.api.resources import Resource
from koord.localcluster.api.watchcache import Entry, Match

_NAME, _NAMESPACE = -1, -2


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
    checks = _checks(resource, terms)
    empty: dict[str, str] = {}
    matches = matcher(labels) if labels is not None else None

    def match(namespace: str, name: str, labels: dict[str, str] | None, fields: tuple[str, ...]) -> bool:
        for index, equal, values in checks:
            have = fields[index] if index >= 0 else name if index == _NAME else namespace
            if (have in values) is not equal:
                return False
        return matches is None or matches(labels or empty)

    return match


def _checks(resource: Resource, terms: Iterable[tuple[str, str, bool]]) -> list[tuple[int, bool, frozenset[str]]]:
    """The terms by field: where its value is, and which values it must have (`True`) or not have."""
    known = {field: index for index, (field, _) in enumerate(resource.fields)}
    known |= {"metadata.name": _NAME, "metadata.namespace": _NAMESPACE}
    wanted: dict[int, set[str]] = {}
    refused: dict[int, set[str]] = {}
    for field, value, equal in terms:
        index = known.get(field)
        if index is None:
            raise bad_request(_not_offered(resource, field))
        (wanted if equal else refused).setdefault(index, set()).add(value)
    checks = [(index, False, frozenset(values)) for index, values in refused.items()]
    # A field that must have two values at once has neither.
    checks += [(index, True, frozenset(values if len(values) == 1 else ())) for index, values in wanted.items()]
    return checks


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
