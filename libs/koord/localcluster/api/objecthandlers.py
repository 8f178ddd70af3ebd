"""Requests about objects: reading, writing and watching resources and their sub-resources."""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from koord.localcluster.api import deletion, pods, scale
from koord.localcluster.api.builtin import NAMESPACES, PODS
from koord.localcluster.api.cluster import Cluster
from koord.localcluster.api.errors import bad_request, method_not_allowed, no_such_path
from koord.localcluster.api.listing import Pager, list_page
from koord.localcluster.api.patching import applier
from koord.localcluster.api.rendering import decode_raw, render, render_list
from koord.localcluster.api.requests import (
    APPLY_PATCH,
    Request,
    Response,
    decode_json,
    decode_object,
    media_type,
    wanted_view,
)
from koord.localcluster.api.resources import Route
from koord.localcluster.api.schemas.requesting import report_of
from koord.localcluster.api.selecting import compile_match, select
from koord.localcluster.api.store import encode
from koord.localcluster.api.watching import WatchPlan, Writer
from koord.localcluster.clusterapi import Object

_YIELD_EVERY = 200


class Target(NamedTuple):
    """Where an object request points."""

    route: Route
    namespace: str | None
    name: str
    subresource: str


class ObjectHandlers:
    """Answers object requests on one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._pager = Pager()

    def tidy(self) -> None:
        """Let go of what is held for requests that may not come."""
        self._pager.tidy()

    def locate(self, group: str, version: str, rest: list[str]) -> Target:
        """What the part of a path after group and version names; 404 when nothing is served there."""
        routes = self._cluster.registry.routes
        namespace: str | None = None
        if rest[0] == "namespaces" and len(rest) > 2 and not (group == "" and rest[2] in ("status", "finalize")):
            namespace, rest = rest[1], rest[2:]
        route = routes.get((group, version, rest[0]))
        if route is None and group == "" and rest[0] == "bindings" and namespace:
            return Target(routes["", "v1", "pods"], namespace, "", "binding")
        if route is None or len(rest) > 3 or not all(rest):
            raise no_such_path()
        resource = route.resource
        if (namespace is None and resource.namespaced and len(rest) > 1) or (
            namespace is not None and not resource.namespaced
        ):
            raise no_such_path()
        return Target(route, namespace, rest[1] if len(rest) > 1 else "", rest[2] if len(rest) > 2 else "")

    async def handle(self, request: Request, target: Target) -> Response:
        """Answer one request."""
        if target.subresource:
            return self._subresource(request, target)
        method = request.method
        if not target.name:
            if method == "GET":
                return self._list_or_watch(request, target)
            if method == "POST":
                return self._create(request, target)
            if method == "DELETE":
                return await self._delete_collection(request, target)
        elif method == "GET":
            if request.query.flag("watch"):
                return self._list_or_watch(request, target)
            entry = self._cluster.find(target.route.resource, target.namespace, target.name)
            return render(target.route, entry.raw, wanted_view(request.accept), request.query)
        elif method == "PUT":
            return self._replace(request, target)
        elif method == "PATCH":
            return self._patch(request, target)
        elif method == "DELETE":
            return self._delete(request, target)
        raise method_not_allowed()

    # --- reading

    def _list_or_watch(self, request: Request, target: Target) -> Response:
        query, resource = request.query, target.route.resource
        collection = self._cluster.collection(resource)
        fields = query.text("fieldSelector")
        if target.name:
            fields = f"metadata.name={target.name}"
        match = compile_match(resource, query.text("labelSelector"), fields)
        view = wanted_view(request.accept)
        if query.flag("watch"):
            plan = WatchPlan(self._cluster.store, collection, target.namespace, match, query)
            return Response(200, plan.lines(Writer(target.route, view, query)))
        page = list_page(self._cluster.store, self._pager, collection, target.namespace, match, query)
        return render_list(target.route, page, view, query)

    # --- writing

    def _inward(self, target: Target, obj: Object) -> Object:
        route = target.route
        if route.inward is None:
            return obj
        given = obj.get("apiVersion")
        if given is not None and given != route.api_version:
            raise bad_request(
                f"the API version in the data ({given}) does not match the expected API version ({route.api_version})"
            )
        return route.inward(obj)

    def _create(self, request: Request, target: Target) -> Response:
        resource = target.route.resource
        decoded = decode_object(request)
        report = report_of(request, target.route, decoded)
        obj = self._inward(target, decoded)
        view = wanted_view(request.accept)
        raw = self._cluster.create(resource, target.namespace, obj, dry_run=request.query.dry_run, report=report)
        return render(target.route, raw, view, request.query, 201)

    def _replace(self, request: Request, target: Target, subresource: str | None = None) -> Response:
        decoded = decode_object(request)
        report = report_of(request, target.route, decoded)
        obj = self._inward(target, decoded)
        raw = self._cluster.replace(
            target.route.resource,
            target.namespace,
            target.name,
            obj,
            subresource=subresource,
            dry_run=request.query.dry_run,
            report=report,
        )
        return render(target.route, raw, wanted_view(request.accept), request.query)

    def _patch(self, request: Request, target: Target, subresource: str | None = None) -> Response:
        route = target.route
        media = media_type(request.content_type)
        decoded = None if media == APPLY_PATCH else decode_json(request.body)
        report = None if media == APPLY_PATCH else report_of(request, route, decoded)
        apply = applier(route.resource, media, decoded)
        if route.outward is not None and route.inward is not None:
            stored, outward, inward = apply, route.outward, route.inward

            def apply(obj: Object) -> Object:
                return inward(stored(outward(obj)))

        raw = self._cluster.patch(
            route.resource,
            target.namespace,
            target.name,
            apply,
            subresource=subresource,
            dry_run=request.query.dry_run,
            report=report,
        )
        return render(route, raw, wanted_view(request.accept), request.query)

    def _options(self, request: Request) -> tuple[deletion.DeleteOptions, bool]:
        query = request.query
        body = decode_object(request) if request.body else {}
        options = deletion.read_options(body)
        if options.grace_period_seconds is None:
            options.grace_period_seconds = query.number("gracePeriodSeconds")
        return options, query.dry_run or bool(options.dry_run)

    def _delete(self, request: Request, target: Target) -> Response:
        options, dry_run = self._options(request)
        resource = target.route.resource
        deleted = deletion.delete(self._cluster, resource, target.namespace, target.name, options, dry_run=dry_run)
        if not deleted.gone or resource is PODS or resource is NAMESPACES:
            return render(target.route, deleted.entry.raw, wanted_view(request.accept), request.query)
        details: Object = {"name": target.name, "kind": resource.plural, "uid": deleted.entry.uid}
        if resource.group:
            details["group"] = resource.group
        return _success(200, details)

    async def _delete_collection(self, request: Request, target: Target) -> Response:
        options, dry_run = self._options(request)
        resource, query = target.route.resource, request.query
        if resource.namespaced and target.namespace is None:
            raise method_not_allowed()
        match = compile_match(resource, query.text("labelSelector"), query.text("fieldSelector"))
        collection = self._cluster.collection(resource)
        for count, entry in enumerate(select(collection.entries(target.namespace), match)):
            current = collection.get(entry.namespace, entry.name)
            if current is not None and current.uid == entry.uid:
                deletion.delete(self._cluster, resource, entry.namespace, entry.name, options, dry_run=dry_run)
            if count % _YIELD_EVERY == _YIELD_EVERY - 1:
                await asyncio.sleep(0)
        return _success(200, {"kind": resource.plural})

    # --- sub-resources

    def _subresource(self, request: Request, target: Target) -> Response:
        resource, method = target.route.resource, request.method
        match target.subresource:
            case "status" if resource.status:
                if method == "PUT":
                    return self._replace(request, target, "status")
                if method == "PATCH":
                    return self._patch(request, target, "status")
                if method == "GET":
                    return render(target.route, self._raw(target), wanted_view(request.accept), request.query)
            case "scale" if resource.scale is not None:
                return self._scale(request, target)
            case "binding" if resource is PODS:
                if method == "POST":
                    return self._bind(request, target)
            case "eviction" if resource is PODS:
                if method == "POST":
                    return self._evict(request, target)
            case "finalize" if resource is NAMESPACES:
                if method == "PUT":
                    return self._replace(request, target)
            case _:
                raise no_such_path()
        raise method_not_allowed()

    def _raw(self, target: Target) -> bytes:
        return self._cluster.find(target.route.resource, target.namespace, target.name).raw

    def _bind(self, request: Request, target: Target) -> Response:
        binding = decode_object(request)
        name = target.name
        if not name:
            metadata = binding.get("metadata")
            name = str(metadata.get("name") or "") if isinstance(metadata, dict) else ""
        pods.bind(self._cluster, target.namespace or "", name, binding, dry_run=request.query.dry_run)
        return _CREATED

    def _evict(self, request: Request, target: Target) -> Response:
        # Disruption budgets are stored but not enforced: an eviction is a delete.
        eviction = decode_object(request)
        options = deletion.read_options(eviction.get("deleteOptions") or {})
        dry_run = request.query.dry_run or bool(options.dry_run)
        deletion.delete(self._cluster, PODS, target.namespace, target.name, options, dry_run=dry_run)
        return _CREATED

    def _scale(self, request: Request, target: Target) -> Response:
        resource = target.route.resource
        if request.method == "GET":
            return Response(200, encode(scale.to_scale(resource, decode_raw(self._raw(target)))))
        if request.method == "PUT":
            written = decode_object(request)
            change: Callable[[Object], Object] = lambda _: written  # noqa: E731
        elif request.method == "PATCH":
            media = media_type(request.content_type)
            change = applier(resource, media, decode_json(request.body), type_name="autoscaling.v1.Scale")
        else:
            raise method_not_allowed()

        def apply(obj: Object) -> Object:
            return scale.from_scale(resource, obj, change(scale.to_scale(resource, obj)))

        raw = self._cluster.patch(resource, target.namespace, target.name, apply, dry_run=request.query.dry_run)
        return Response(200, encode(scale.to_scale(resource, decode_raw(raw))))


def _success(status: int, details: Any = None) -> Response:
    body: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details:
        body["details"] = details
    if status == 201:
        body["code"] = 201
    return Response(status, encode(body))


_CREATED = _success(201)
