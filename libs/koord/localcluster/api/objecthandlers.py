"""Requests about objects: reading, writing and watching resources and their sub-resources."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from koord.localcluster.api import crds, deletion, pods, scale
from koord.localcluster.api.admission.attributes import DELETE
from koord.localcluster.api.admission.callers import OPERATIONS, caller_of
from koord.localcluster.api.apply.applying import Apply, apply_patch, read_configuration
from koord.localcluster.api.apply.options import OWN_AGENTS, applier_of, manager_of
from koord.localcluster.api.apply.ownership import may_be_untracked, shown
from koord.localcluster.api.apply.writers import Writer, Writers
from koord.localcluster.api.builtin import CRDS, NAMESPACES, PODS
from koord.localcluster.api.cluster import Cluster
from koord.localcluster.api.deleteoptions import DeleteOptions, options_of
from koord.localcluster.api.errors import PageNotFound, bad_request, method_not_allowed, no_such_path
from koord.localcluster.api.eviction import evict
from koord.localcluster.api.listing import Pager, list_page
from koord.localcluster.api.listoptions import read_version
from koord.localcluster.api.patching import applier
from koord.localcluster.api.rendering import decode_raw, render, render_list
from koord.localcluster.api.requests import (
    APPLY_PATCH,
    Request,
    Response,
    View,
    decode_json,
    decode_object,
    decode_patch,
    media_type,
    wanted_view,
)
from koord.localcluster.api.resources import Resource, Route
from koord.localcluster.api.schemas.requesting import report_of
from koord.localcluster.api.selecting import compile_match
from koord.localcluster.api.store import encode
from koord.localcluster.api.typemeta import check_type, wrong_version
from koord.localcluster.api.watching import WatchPlan
from koord.localcluster.api.watching import Writer as WatchWriter
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
            raise no_such_path() if any(group == known for known, _, _ in routes) else PageNotFound()
        resource = route.resource
        if (namespace is None and resource.namespaced and len(rest) > 1) or (
            namespace is not None and not resource.namespaced
        ):
            raise no_such_path()
        return Target(route, namespace, rest[1] if len(rest) > 1 else "", rest[2] if len(rest) > 2 else "")

    async def handle(self, request: Request, target: Target) -> Response:
        """Answer one request."""
        method = request.method
        if target.route.warning:
            request.warnings.append(target.route.warning)
        if method == "DELETE" and not target.name:
            return await self._delete_collection(request, target)
        operation = OPERATIONS.get(method)
        if operation is None or not self._cluster.admission.concerns(
            target.route.resource, operation, target.subresource
        ):
            return self._answer(request, target)
        return await self._cluster.admission.run(
            caller_of(request, target.route), lambda: self._answer(request, target)
        )

    def _answer(self, request: Request, target: Target) -> Response:
        if target.subresource:
            return self._subresource(request, target)
        method = request.method
        if not target.name:
            if method == "GET":
                return self._list_or_watch(request, target)
            if method == "POST" and (target.namespace or not target.route.resource.namespaced):
                return self._create(request, target)
        elif method == "GET":
            if version := read_version(request.query.text("resourceVersion")):
                self._cluster.store.check_reached(version)
            return self._show(request, target)
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
        match = compile_match(resource, query.text("labelSelector"), query.text("fieldSelector"))
        view = wanted_view(request.accept)
        if query.flag("watch"):
            plan = WatchPlan(self._cluster.store, collection, target.namespace, match, query)
            return Response(200, plan.lines(WatchWriter(target.route, view, query)))
        page = list_page(self._cluster.store, self._pager, collection, target.namespace, match, query)
        return render_list(target.route, page, view, query)

    # --- writing

    def _inward(self, target: Target, obj: Object) -> Object:
        route = target.route
        if route.inward is None:
            return obj
        given = obj.get("apiVersion")
        if given is not None and given != route.api_version:
            raise bad_request(wrong_version(given, route.api_version))
        return route.inward(obj)

    def _create(self, request: Request, target: Target) -> Response:
        resource = target.route.resource
        decoded = decode_object(request)
        if resource.custom:
            check_type(target.route, decoded, request.body)
        report = report_of(request, target.route, decoded)
        obj = self._inward(target, decoded)
        view = wanted_view(request.accept)
        by = Writer(manager_of(request.query, request.user_agent, "Create"), target.route.api_version)
        dry_run = request.query.dry_run
        raw = self._cluster.create(resource, target.namespace, obj, dry_run=dry_run, report=report, by=by)
        if dry_run and view is View.OBJECT and may_be_untracked(resource) and b'"managedFields"' not in raw:
            raw = encode(shown(resource, decode_raw(raw), Writers(by.manager, by.version)))
        return self._written(request, target, raw, view, 201)

    def _replace(self, request: Request, target: Target, subresource: str | None = None) -> Response:
        decoded = decode_object(request)
        if target.route.resource.custom:
            check_type(target.route, decoded, request.body)
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
            by=Writer(manager_of(request.query, request.user_agent, "Update"), target.route.api_version),
        )
        return self._written(request, target, raw)

    def _patch(self, request: Request, target: Target, subresource: str | None = None) -> Response:
        route = target.route
        media = media_type(request.content_type)
        if media == APPLY_PATCH:
            return self._apply(request, target, subresource or "")
        decoded = decode_patch(request.body)
        report = report_of(request, route, decoded)
        by = Writer(manager_of(request.query, request.user_agent, "Patch"), route.api_version)
        apply = applier(route.resource, media, decoded)
        if route.outward is not None and route.inward is not None:
            stored, outward, inward = apply, route.outward, route.inward

            def apply(obj: Object) -> Object:
                return inward(stored(outward(obj)))

        raw = self._cluster.patch(
            route.resource,
            target.namespace,
            target.name,
            apply if b"managedFields" not in request.body else self._with_owners(target, apply),
            subresource=subresource,
            dry_run=request.query.dry_run,
            report=report,
            by=by,
        )
        return self._written(request, target, raw)

    def _apply(self, request: Request, target: Target, subresource: str) -> Response:
        manager, force = applier_of(request.query)
        asked = Apply(target.route, target.namespace, target.name, subresource, manager, force)
        config = read_configuration(request.body, request.query.text("fieldValidation"), request.warnings)
        raw, created = apply_patch(self._cluster, asked, config, dry_run=request.query.dry_run)
        return self._written(request, target, raw, status=201 if created else 200)

    def _with_owners(self, target: Target, apply: Callable[[Object], Object]) -> Callable[[Object], Object]:
        """The patch, given an object that says whose it is: it concerns managedFields."""
        resource = target.route.resource
        writers = self._cluster.find(resource, target.namespace, target.name).writers
        if writers is None:
            return apply
        return lambda obj: apply(shown(resource, {**obj, "metadata": dict(obj["metadata"])}, writers))

    def _written(
        self, request: Request, target: Target, raw: bytes, view: View | None = None, status: int = 200
    ) -> Response:
        """The answer to a write: the object with its owners, for those who care."""
        if target.route.resource is CRDS:
            request.warnings.extend(crds.warnings(decode_raw(raw)))
        view, resource = view or wanted_view(request.accept), target.route.resource
        if may_be_untracked(resource) and view is View.OBJECT and not request.user_agent.startswith(OWN_AGENTS):
            obj = decode_raw(raw)
            entry = self._cluster.collection(resource).get(target.namespace or "", obj["metadata"]["name"])
            if entry is not None and entry.raw is raw and entry.writers is not None:
                raw = encode(shown(resource, obj, entry.writers))
        return render(target.route, raw, view, request.query, status)

    def _show(self, request: Request, target: Target) -> Response:
        """One object, with its owners for those who care."""
        resource = target.route.resource
        entry = self._cluster.find(resource, target.namespace, target.name)
        view, raw = wanted_view(request.accept), entry.raw
        if entry.writers is not None and view is View.OBJECT and not request.user_agent.startswith(OWN_AGENTS):
            raw = encode(shown(resource, decode_raw(raw), entry.writers))
        return render(target.route, raw, view, request.query)

    def _delete(self, request: Request, target: Target) -> Response:
        options = options_of(request)
        resource = target.route.resource
        _warn_of_orphans(request, resource, options)
        deleted = deletion.delete(self._cluster, resource, target.namespace, target.name, options)
        if not deleted.gone or resource.key in deletion.RETURNED_WHEN_GONE:
            status = 202 if not deleted.gone and options.orphan_dependents is False else 200
            return render(target.route, deleted.raw, wanted_view(request.accept), request.query, status)
        details: Object = {"name": target.name, "kind": resource.plural, "uid": deleted.uid}
        if resource.group:
            details["group"] = resource.group
        return _success(200, details)

    async def _delete_collection(self, request: Request, target: Target) -> Response:
        options = options_of(request)
        resource, query = target.route.resource, request.query
        _warn_of_orphans(request, resource, options)
        if (resource.namespaced and target.namespace is None) or resource is NAMESPACES:
            raise method_not_allowed()
        view = wanted_view(request.accept)
        match = compile_match(resource, query.text("labelSelector"), query.text("fieldSelector"))
        collection = self._cluster.collection(resource)
        caller = caller_of(request, target.route, named=False)
        page = list_page(self._cluster.store, self._pager, collection, target.namespace, match, query)
        for count, entry in enumerate(page.entries):
            current = collection.get(entry.namespace, entry.name)
            if current is not None and current.uid == entry.uid:
                delete = partial(deletion.delete, self._cluster, resource, entry.namespace, entry.name, options)
                if not self._cluster.admission.concerns(resource, DELETE):
                    delete()
                else:
                    await self._cluster.admission.run(caller, delete)
            if count % _YIELD_EVERY == _YIELD_EVERY - 1:
                await asyncio.sleep(0)
        return render_list(target.route, page, view, query)

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
                    return self._show(request, target)
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
                    return self._replace(request, target, "finalize")
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
        given = request.query.text("dryRun")
        eviction = decode_object(request)
        namespace = target.namespace or ""
        eviction = self._cluster.admission.evicted(namespace, target.name, eviction, dry_run=bool(given))
        evict(self._cluster, namespace, target.name, eviction, [given] if given else None)
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
            if media == APPLY_PATCH:
                return self._apply_scale(request, target)
            change = applier(resource, media, decode_json(request.body), type_name="autoscaling.v1.Scale")
        else:
            raise method_not_allowed()

        def apply(obj: Object) -> Object:
            before = scale.to_scale(resource, obj)
            after = self._cluster.admission.scaled(resource, before, change(before), dry_run=request.query.dry_run)
            return scale.from_scale(resource, obj, after)

        verb = "Update" if request.method == "PUT" else "Patch"
        by = Writer(manager_of(request.query, request.user_agent, verb), target.route.api_version, "scale")
        raw = self._cluster.patch(resource, target.namespace, target.name, apply, dry_run=request.query.dry_run, by=by)
        return Response(200, encode(scale.to_scale(resource, decode_raw(raw))))

    def _apply_scale(self, request: Request, target: Target) -> Response:
        manager, force = applier_of(request.query)
        asked = Apply(target.route, target.namespace, target.name, "scale", manager, force)
        config = read_configuration(request.body, request.query.text("fieldValidation"), request.warnings)
        raw, _ = apply_patch(self._cluster, asked, config, dry_run=request.query.dry_run)
        return Response(200, encode(scale.to_scale(target.route.resource, decode_raw(raw))))


def _warn_of_orphans(request: Request, resource: Resource, options: DeleteOptions) -> None:
    """Jobs leave their pods when a deletion says nothing, which surprises."""
    said = options.propagation_policy is not None or options.orphan_dependents is not None
    if resource.key == "jobs.batch" and not said:
        request.warnings.append(
            "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them"
            " or set propagationPolicy=Orphan to suppress this warning"
        )


def _success(status: int, details: Any = None) -> Response:
    body: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details:
        body["details"] = details
    if status == 201:
        body["code"] = 201
    return Response(status, encode(body))


_CREATED = _success(201)
