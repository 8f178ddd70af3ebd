"""Events are one collection under two API groups; here their fields are renamed from one to the other and back."""

from koord.localcluster.clusterapi import Object

_RENAMED = (
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
)


def to_events_v1(event: Object) -> Object:
    """A core/v1 Event as events.k8s.io/v1 names it."""
    return _rename(event, dict(_RENAMED), "events.k8s.io/v1")


def from_events_v1(event: Object) -> Object:
    """An events.k8s.io/v1 Event as core/v1 names it."""
    return _rename(event, {new: core for core, new in _RENAMED}, "v1")


def _rename(event: Object, names: dict[str, str], api_version: str) -> Object:
    renamed = {names.get(key, key): value for key, value in event.items()}
    renamed["apiVersion"] = api_version
    return renamed
