"""An object as mutating webhooks see it: typed and with the defaults of its kind, before any rule is checked."""

import contextlib
from typing import TYPE_CHECKING

import msgspec

from koord.localcluster.api import pods
from koord.localcluster.api.defaults import DEFAULTS
from koord.localcluster.api.resources import Resource
from koord.localcluster.api.shapes import check_shape
from koord.localcluster.clusterapi import ApiError, Object

if TYPE_CHECKING:
    from koord.localcluster.api.cluster import Cluster

_MALFORMED = (KeyError, TypeError, AttributeError, IndexError, ValueError, ApiError)


def draft(cluster: "Cluster", resource: Resource, obj: Object, old: Object | None) -> Object:
    """A copy with defaults, `old` being what it replaces.

    An object that is too malformed for defaults stays as it is: a webhook may mend it, and if none does its rules say
    what is wrong. 400 when a part that the server reads has the wrong type.
    """
    copy: Object = msgspec.json.decode(msgspec.json.encode(obj))
    check_shape(resource, copy)
    copy.setdefault("apiVersion", resource.api_version)
    copy.setdefault("kind", resource.kind)
    if resource.status and not resource.custom:
        copy.setdefault("status", {})
    filled: Object = msgspec.json.decode(msgspec.json.encode(copy))
    with contextlib.suppress(*_MALFORMED):
        if default := DEFAULTS.get(resource.key):
            default(filled)
        if resource.key == "pods":
            if old is None:
                pods.resolve_priority(cluster, filled)
            else:
                pods.prepare_change(filled, old)
        copy = filled
    return copy
