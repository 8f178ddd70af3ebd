"""Events of the core group, as written by the gateway and read by the CLI."""

import msgspec

from koord.kube.meta import ObjectReference, TypedObject, View


class EventSource(View, frozen=True):
    """Who recorded the event (old field)."""

    component: str = ""
    host: str = ""


class EventSeries(View, frozen=True):
    """A run of equal events."""

    count: int = 0
    last_observed_time: str | None = None


class Event(TypedObject, frozen=True):
    """Something worth telling about ``involved_object``."""

    involved_object: ObjectReference = msgspec.field(default_factory=ObjectReference)
    type: str = ""
    reason: str = ""
    message: str = ""
    action: str = ""
    count: int = 0
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
    reporting_component: str = ""
    reporting_instance: str = ""
    source: EventSource = msgspec.field(default_factory=EventSource)
    series: EventSeries | None = None
