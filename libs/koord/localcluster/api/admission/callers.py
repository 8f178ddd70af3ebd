"""Who makes an HTTP request, as admission reviews tell it."""

from koord.localcluster.api.admission.admission import Caller
from koord.localcluster.api.admission.attributes import CREATE, DELETE, UPDATE
from koord.localcluster.api.requests import Request
from koord.localcluster.api.resources import Route
from koord.localcluster.clusterapi import Object

OPERATIONS = {"POST": CREATE, "PUT": UPDATE, "PATCH": UPDATE, "DELETE": DELETE}
"""What a method means for webhooks."""


def caller_of(request: Request, route: Route, *, named: bool = True) -> Caller:
    """The caller of a request to a route; `named`: its path names one object."""
    options: Object = {}
    for name in ("fieldManager", "fieldValidation"):
        if value := request.query.text(name):
            options[name] = value
    plural = "bindings" if request.path[-1] == "bindings" else ""
    return Caller(route=route, options=options, plural=plural, named=named, warnings=request.warnings)
