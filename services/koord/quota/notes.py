"""Events on objects."""

import time

from koord.contracts.decisions import EventNote, ObjectRef
from koord.kube.meta import ObjectMeta
from koord.kube.resources import Resource


def note(resource: Resource, meta: ObjectMeta, reason: str, text: str) -> EventNote:
    """A Warning event on an object."""
    target = ObjectRef(resource.token, meta.namespace, meta.name, meta.uid)
    return EventNote(
        target=target,
        kind=resource.kind,
        api_version=resource.api_version,
        type="Warning",
        reason=reason,
        note=text,
        controller="koord-quota",
        time_ns=time.time_ns(),
    )
