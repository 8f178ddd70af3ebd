"""How the cluster's synchronous writes wait for webhooks.

A write happens whole, between two turns of the event loop, and a webhook takes many turns. So a write that concerns
webhooks is *run* (`Admission.run`): when it reaches the place where they have a say, and they have not been asked about
exactly this, it stops by raising `Pending`, having changed nothing. They are asked, and the write is run again from its
beginning; now the answer is there and the write goes on. If the object it rests on has changed meanwhile, the question
is another one and is asked again: that is what the real server does when its write to etcd meets a newer version.

A write outside of `run` (the server's own housekeeping) and one that concerns no webhook never stop.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from koord.localcluster.api.admission.attributes import (
    BINDING,
    CREATE,
    DELETE,
    EVICTION,
    SCALE,
    UPDATE,
    Attributes,
    User,
)
from koord.localcluster.api.admission.definitions import BINDINGS, MUTATING, POLICIES, VALIDATING
from koord.localcluster.api.admission.dispatch import Asker, Dispatcher, request_timed_out
from koord.localcluster.api.admission.drafts import draft
from koord.localcluster.api.admission.hooks import HookSet
from koord.localcluster.api.admission.policies import PolicySet
from koord.localcluster.api.admission.services import Services
from koord.localcluster.api.builtin import NAMESPACES, PODS
from koord.localcluster.api.errors import invalid, invalid_value, required
from koord.localcluster.api.resources import Resource, Route
from koord.localcluster.api.store import decode
from koord.localcluster.api.watchcache import Entry
from koord.localcluster.clusterapi import Object

if TYPE_CHECKING:
    from koord.localcluster.api.cluster import Cluster

T = TypeVar("T")

REQUEST_SECONDS = 34.0
ADMINISTRATOR = User("koord-admin", ("system:masters", "system:authenticated"))

_encode = msgspec.json.Encoder().encode
_Key = tuple[Any, ...]


def component(name: str) -> User:
    """Who a component in the server's process is, for webhooks."""
    return User(f"system:{name}", ("system:authenticated",))


@dataclass(slots=True)
class Caller:
    """Who writes, and how.

    `route` is that of the request (None: the version that is stored), `options` what its query says, `plural` the
    resource it names if that is another one (`bindings`), `named` whether it gives the object's name. What webhooks
    warn of is added to `warnings`.
    """

    user: User = ADMINISTRATOR
    route: Route | None = None
    options: Object = field(default_factory=dict)
    plural: str = ""
    named: bool = True
    warnings: list[str] = field(default_factory=list)


class Pending(Exception):
    """A write has to wait for webhooks; changes nothing."""

    def __init__(self, key: _Key, write: Attributes, *, mutating: bool) -> None:
        super().__init__("the write has to wait for webhooks")
        self.key = key
        self.write = write
        self.mutating = mutating


class _Run:
    """One write on its way: what webhooks have said so far. `quiet`: they have been asked about it in another form."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.answers: dict[_Key, Object | None] = {}
        self.quiet = False
        self.asked: _Key = ()


class Admission:
    """The webhooks of one cluster, and the writes that wait for them; `current` is set while such a write is made."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        collections = cluster.store.collections
        spaces = collections[NAMESPACES.key]
        self._mutating_configurations = collections[MUTATING]
        self._validating_configurations = collections[VALIDATING]
        self._mutating = HookSet(self._mutating_configurations, spaces, cluster.registry)
        self._validating = HookSet(self._validating_configurations, spaces, cluster.registry)
        self._policies = PolicySet(collections[POLICIES], collections[BINDINGS], spaces, cluster.registry)
        self._dispatcher = Dispatcher(self._mutating, self._validating, Services(cluster.store))
        self.current: _Run | None = None

    async def aclose(self) -> None:
        """Close the connections to webhooks."""
        await self._dispatcher.aclose()

    def concerns(self, resource: Resource, operation: str, subresource: str | None = None) -> bool:
        """Whether a write may have to wait for webhooks, so that it must be `run`."""
        if (
            not self._mutating_configurations.count
            and not self._validating_configurations.count
            and self._policies.empty
        ):
            return False
        return self._may_ask(operation, resource, subresource or "") or (
            # What is applied may turn out to be new.
            operation == UPDATE and not subresource and self._may_ask(CREATE, resource, "")
        )

    async def run(self, caller: Caller, call: Callable[[], T]) -> T:
        """Make a write, waiting for webhooks where it must.

        `call` may be called several times and must do the same each time, changing nothing before it succeeds.
        """
        run, asker = _Run(caller), Asker(caller.warnings, REQUEST_SECONDS)
        while True:
            try:
                return self._attempt(run, call)
            except Pending as pending:
                waiting = pending
            try:
                async with asyncio.timeout(asker.deadline - time.monotonic()):
                    await self._ask(run, waiting, asker)
            except TimeoutError:
                raise request_timed_out() from None

    def _attempt(self, run: _Run, call: Callable[[], T]) -> T:
        outer, self.current = self.current, run
        run.quiet, run.asked = False, ()
        try:
            return call()
        finally:
            self.current = outer

    async def _ask(self, run: _Run, pending: Pending, asker: Asker) -> None:
        if pending.mutating:
            run.answers[pending.key] = await self._dispatcher.mutate(pending.write, asker, self._settle)
        else:
            await self._dispatcher.validate(pending.write, asker)
            run.answers[pending.key] = pending.write.obj

    def _settle(self, write: Attributes) -> Object:
        """An object that a webhook changed, with the types and defaults of its kind."""
        assert write.obj is not None
        return write.obj if write.kind is not None else draft(self._cluster, write.resource, write.obj, write.old)

    # --- the places where webhooks have a say; only called while `current` is set

    def created(self, resource: Resource, obj: Object, *, dry_run: bool) -> Object:
        """What mutating webhooks make of an object that is to be created."""
        if not self._may_ask(CREATE, resource, ""):
            return obj
        changed: Object = self._changed(self._write(CREATE, resource, obj, None, "", dry_run), 0)
        return changed

    def creatable(self, resource: Resource, obj: Object, *, dry_run: bool) -> Object:
        """An object that validating webhooks let be created: the one they saw, with its uid and name."""
        if not self._may_check(CREATE, resource, ""):
            return obj
        allowed: Object = self._checked(self._write(CREATE, resource, obj, None, "", dry_run))
        return allowed

    def updated(
        self, resource: Resource, entry: Entry, old: Object, new: Object, subresource: str | None, *, dry_run: bool
    ) -> Object:
        """What mutating webhooks make of an object that is to be replaced by `new`."""
        if not self._may_ask(UPDATE, resource, subresource or ""):
            return new
        write = self._write(UPDATE, resource, new, old, subresource or "", dry_run)
        changed: Object = self._changed(write, entry.version)
        if changed is not new:
            _check_name(resource, entry.name, changed)
        return changed

    def updatable(
        self, resource: Resource, old: Object, new: Object, subresource: str | None, *, dry_run: bool
    ) -> None:
        """Raise unless validating webhooks let `new` replace the object."""
        if self._may_check(UPDATE, resource, subresource or ""):
            self._checked(self._write(UPDATE, resource, new, old, subresource or "", dry_run))

    def deletable(self, resource: Resource, entry: Entry, options: Object, *, dry_run: bool) -> None:
        """Raise unless the webhooks of both kinds let an object be deleted."""
        if self.current is None or not self._may_ask(DELETE, resource, ""):
            return
        write = self._write(DELETE, resource, None, decode(entry), "", dry_run)
        write.options = {**_options(DELETE, {}, dry_run), **options}
        if not self.current.caller.named:
            write.name = ""
        self._changed(write, entry.version)
        self._checked(write)

    def bound(self, namespace: str, name: str, binding: Object, *, dry_run: bool) -> Object:
        """A Binding as the webhooks of both kinds let it be."""
        return self._part("binding", BINDING, namespace, name, binding, dry_run)

    def evicted(self, namespace: str, name: str, eviction: Object, *, dry_run: bool) -> Object:
        """An Eviction as the webhooks of both kinds let it be; none is asked about the deletion that follows."""
        return self._part("eviction", EVICTION, namespace, name, eviction, dry_run)

    def _part(self, subresource: str, kind: Any, namespace: str, name: str, obj: Object, dry_run: bool) -> Object:
        if self.current is None:
            return obj
        if not self._may_ask(CREATE, PODS, subresource) or not isinstance(obj.get("metadata") or {}, dict):
            self.current.quiet = True
            return obj
        version = f"{kind.group}/{kind.version}" if kind.group else kind.version
        shown: Object = {"kind": kind.kind, "apiVersion": version, **obj}
        shown["metadata"] = {**(obj.get("metadata") or {}), "name": name, "namespace": namespace}
        write = self._write(CREATE, PODS, shown, None, subresource, dry_run)
        write.kind, write.name, write.namespace = kind, name, namespace
        if self.current.caller.plural:
            write.plural, write.subresource = self.current.caller.plural, ""
        write.obj = self._changed(write, 0)
        allowed: Object = self._checked(write)
        self.current.quiet = True
        return allowed

    def scaled(self, resource: Resource, old: Object, new: Object, *, dry_run: bool) -> Object:
        """A Scale as the webhooks of both kinds let it be; none is asked about the write of the object that follows."""
        if self.current is None:
            return new
        if not self._may_ask(UPDATE, resource, "scale"):
            self.current.quiet = True
            return new
        metadata = old["metadata"]
        write = self._write(UPDATE, resource, new, old, "scale", dry_run)
        write.kind, write.name, write.namespace = SCALE, metadata["name"], metadata.get("namespace", "")
        version = metadata.get("resourceVersion")
        write.obj = self._changed(write, version)
        allowed: Object = self._checked(write)
        self.current.quiet = True
        return allowed

    def _write(
        self,
        operation: str,
        resource: Resource,
        obj: Object | None,
        old: Object | None,
        subresource: str,
        dry_run: bool,
    ) -> Attributes:
        assert self.current is not None
        caller = self.current.caller
        metadata = (old or obj or {}).get("metadata") or {}
        name = str(metadata.get("name") or "")
        namespace = str(metadata.get("namespace") or "") if resource.namespaced else ""
        if resource is NAMESPACES:
            namespace = name
        route = caller.route if caller.route is not None and caller.route.resource is resource else None
        return Attributes(
            operation,
            resource,
            route or self._stored_route(resource),
            name,
            namespace,
            obj,
            old,
            subresource,
            dry_run=dry_run,
            user=caller.user,
            options=_options(operation, caller.options, dry_run),
        )

    def _stored_route(self, resource: Resource) -> Route:
        return self._cluster.registry.routes[resource.group, resource.version, resource.plural]

    def _may_ask(self, operation: str, resource: Resource, subresource: str) -> bool:
        return self._mutating.may_ask(operation, resource, subresource) or self._may_check(
            operation, resource, subresource
        )

    def _may_check(self, operation: str, resource: Resource, subresource: str) -> bool:
        return self._validating.may_ask(operation, resource, subresource) or self._policies.may_hold(
            operation, resource, subresource
        )

    def _changed(self, write: Attributes, version: Any) -> Any:
        """The mutating webhooks' answer about a write; stops the write when they have not been asked."""
        run = self.current
        assert run is not None
        if run.quiet:
            return write.obj
        # It names the question to validating webhooks too: they see what follows from this, and that holds times and
        # names which are new in each attempt.
        run.asked = key = (write.operation, write.resource.key, write.name, version, _content(write.obj))
        if key in run.answers:
            return _copy(run.answers[key])
        if not self._mutating.candidates(write):
            return write.obj
        if write.obj is not None and write.kind is None:
            write.obj = draft(self._cluster, write.resource, write.obj, write.old)
        if not self._mutating.select(write):
            return write.obj
        raise Pending(key, write, mutating=True)

    def _checked(self, write: Attributes) -> Any:
        """The object that policies and validating webhooks allow; stops the write when these have not been asked."""
        run = self.current
        assert run is not None
        if run.quiet:
            return write.obj
        if not self._policies.empty:
            self._policies.check(write, run.caller.warnings)
        if not self._validating.candidates(write):
            return write.obj
        key = ("validate", *run.asked)
        if key in run.answers:
            return _copy(run.answers[key])
        if not self._validating.select(write):
            return write.obj
        raise Pending(key, write, mutating=False)


def _check_name(resource: Resource, name: str, changed: Object) -> None:
    """422 when a webhook gave an object another name, or none."""
    metadata = changed.get("metadata")
    given = (metadata if isinstance(metadata, dict) else {}).get("name") or ""
    if given == name:
        return
    causes = [] if given else [required("metadata.name", "name or generateName is required")]
    raise invalid(resource, given, [*causes, invalid_value("metadata.name", given, "field is immutable")])


def _content(obj: Object | None) -> bytes:
    """An object without who wrote it when."""
    metadata = obj.get("metadata") if obj is not None else None
    if obj is not None and isinstance(metadata, dict) and "managedFields" in metadata:
        obj = {**obj, "metadata": {name: value for name, value in metadata.items() if name != "managedFields"}}
    return _encode(obj)


def _copy(obj: Object | None) -> Any:
    """Runs of a write change what they are given."""
    return msgspec.json.decode(_encode(obj))


_OPTION_KINDS = {CREATE: "CreateOptions", UPDATE: "UpdateOptions", DELETE: "DeleteOptions"}


def _options(operation: str, given: Object, dry_run: bool) -> Object:
    options: Object = {"kind": _OPTION_KINDS[operation], "apiVersion": "meta.k8s.io/v1"}
    if dry_run:
        options["dryRun"] = ["All"]
    options.update(given)
    return options
