"""What a write means: checks, defaults, versions, and the rules between metadata, spec and status.

Every operation is synchronous: it happens whole, between two turns of the event loop, or raises and changes nothing.
Both doors, HTTP and in process, end here.
"""

import random
from collections.abc import Callable

from koord.localcluster.api import addresses, crds, pods
from koord.localcluster.api.addresses import ServiceAddresses
from koord.localcluster.api.admission.admission import Admission
from koord.localcluster.api.apply import ownership
from koord.localcluster.api.apply.writers import Applied, By
from koord.localcluster.api.builtin import CRDS, NAMESPACES, register_builtins
from koord.localcluster.api.clock import Clock
from koord.localcluster.api.defaults import DEFAULTS, FIRST_STATUS
from koord.localcluster.api.errors import (
    Cause,
    already_exists,
    bad_request,
    forbidden,
    invalid,
    invalid_value,
    namespace_terminating,
    no_such_path,
    not_found,
    unreasoned,
)
from koord.localcluster.api.journal import Journal
from koord.localcluster.api.recovery import restore
from koord.localcluster.api.resources import Registry, Resource
from koord.localcluster.api.rules import CHANGE_VALIDATORS, VALIDATORS
from koord.localcluster.api.schemas.strict import Report
from koord.localcluster.api.shapes import check_shape, schema_causes
from koord.localcluster.api.store import Collection, Store, decode, encode, same_json
from koord.localcluster.api.typemeta import settle_type
from koord.localcluster.api.uids import new_uid
from koord.localcluster.api.validation import validate_metadata, validate_metadata_change, validate_node
from koord.localcluster.api.watchcache import Entry
from koord.localcluster.api.writing import FIXED, carry, check_preconditions, desired_differs, drop_empty
from koord.localcluster.clusterapi import Object

SYSTEM_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease", "koord-system")
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"


class Cluster:
    """The state of one embedded cluster and all writes to it.

    `graceful_pods`: kubelets run, so a bound pod that is deleted is only marked; without them it goes at once.
    `journal`: objects are restored from it and every change is written to it; a write that it refuses is not made.
    """

    def __init__(
        self, *, graceful_pods: bool = False, first_version: int | None = None, journal: Journal | None = None
    ) -> None:
        self.registry = Registry()
        self.store = Store(first_version if journal is None else journal.first_version, journal)
        self.clock = Clock()
        self.graceful_pods = graceful_pods
        self.terminating: set[str] = set()
        self.dying_definitions: set[str] = set()
        self.store.listen(self._note_deletions, lambda resource: resource is NAMESPACES or resource is CRDS)
        self.addresses = ServiceAddresses(self.store)
        register_builtins(self.registry)
        for resource in self.registry.resources.values():
            self.store.open(resource)
        self.admission = Admission(self)
        if journal is not None:
            restore(self, journal)
        for name in SYSTEM_NAMESPACES:
            if self.collection(NAMESPACES).get("", name) is None:
                self.create(NAMESPACES, None, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        classes = self.resource("priorityclasses.scheduling.k8s.io")
        for priority_class in pods.system_priority_classes():
            if self.collection(classes).get("", priority_class["metadata"]["name"]) is None:
                self.create(classes, None, priority_class)

    # --- reading

    def resource(self, key: str) -> Resource:
        """The resource of a key such as `jobs.batch`; 404 if it is not served."""
        resource = self.registry.resources.get(key)
        if resource is None:
            raise no_such_path()
        return resource

    def collection(self, resource: Resource) -> Collection:
        """The objects of a resource."""
        collection = self.store.collections.get(resource.key)
        if collection is None:
            raise no_such_path()
        return collection

    def find(self, resource: Resource, namespace: str | None, name: str) -> Entry:
        """One object; 404 if there is none."""
        entry = self.collection(resource).get(namespace or "", name)
        if entry is None:
            raise not_found(resource, name)
        return entry

    # --- writing

    def create(
        self,
        resource: Resource,
        namespace: str | None,
        obj: Object,
        *,
        dry_run: bool = False,
        report: Report | None = None,
        by: By = None,
    ) -> bytes:
        """Create an object (the dict becomes the server's); answers it as stored. `by`: whose it will be."""
        proven = check_shape(resource, obj, report=report)
        collection = self.collection(resource)
        metadata = obj["metadata"]
        self._settle_type(resource, obj)
        self._settle_namespace(resource, namespace, metadata)
        if self.admission.current is not None:
            admitted = self.admission.created(resource, obj, dry_run=dry_run)
            if admitted is not obj:
                obj, proven = admitted, check_shape(resource, admitted)
                metadata = obj["metadata"]
                self._settle_type(resource, obj)
                self._settle_namespace(resource, namespace, metadata)
        if resource.custom and resource.key in self.dying_definitions:
            why = "create not allowed while custom resource definition is terminating"
            raise forbidden(resource, metadata.get("name", ""), why)
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = self._generate_name(collection, metadata)
        name = metadata.get("name", "")
        if metadata.get("resourceVersion"):
            raise unreasoned("resourceVersion should not be set on objects to be created")
        given = metadata.pop("managedFields", None)
        for field in ("resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
            metadata.pop(field, None)
        drop_empty(obj, metadata)
        metadata["uid"] = new_uid()
        now = metadata["creationTimestamp"] = self.clock.now()
        if resource.generation or resource.custom:
            metadata["generation"] = 1
        causes = validate_metadata(resource, metadata)
        if validator := VALIDATORS.get(resource.key):
            causes.extend(validator(obj))
        if not proven:
            causes.extend(schema_causes(resource, obj, version=report.version if report else ""))
        if causes:
            raise invalid(resource, name, causes)
        if resource.status and resource.key not in _STATUS_AT_CREATION:
            obj.pop("status", None)
            if status := FIRST_STATUS.get(resource.key):
                obj["status"] = status()
        if default := DEFAULTS.get(resource.key):
            default(obj)
        # What the server puts in from here on is nobody's.
        entries, writers = ownership.at_creation(resource, obj, given, by, now)
        if entries:
            metadata["managedFields"] = entries
        if resource.key == "pods":
            pods.prepare(self, obj)
        elif resource.key == addresses.KEY:
            self.addresses.prepare(resource, obj)
        elif resource is CRDS:
            crds.prepare(obj, now)
        if self.admission.current is not None:
            obj = self.admission.creatable(resource, obj, dry_run=dry_run)
            metadata, name = obj["metadata"], obj["metadata"]["name"]
        if collection.get(metadata.get("namespace", ""), name) is not None:
            raise already_exists(resource, name)
        if dry_run:
            return encode(obj)
        entry = collection.put(obj, self.store.next_version(), writers)
        if resource is CRDS:
            crds.register(self, obj)
        return entry.raw

    def replace(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        obj: Object,
        *,
        subresource: str | None = None,
        dry_run: bool = False,
        report: Report | None = None,
        by: By = None,
    ) -> bytes:
        """Replace an object, or its status; answers it as stored."""
        proven = check_shape(resource, obj, report=report, subresource=subresource)
        entry = self.find(resource, namespace, name)
        self._settle_type(resource, obj)
        self._settle_namespace(resource, namespace, obj["metadata"], existing=True)
        if resource.custom and not obj["metadata"].get("resourceVersion"):
            cause = invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
            raise invalid(resource, name, [cause])
        old = decode(entry)
        return self.update(resource, entry, old, obj, subresource=subresource, dry_run=dry_run, proven=proven, by=by)

    def patch(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        apply: Callable[[Object], Object],
        *,
        subresource: str | None = None,
        dry_run: bool = False,
        report: Report | None = None,
        by: By = None,
    ) -> bytes:
        """Change an object by a function that returns a changed copy (it must not touch its argument)."""
        entry = self.find(resource, namespace, name)
        old = decode(entry)
        new = apply(old)
        proven = check_shape(resource, new, old, report, subresource)
        self._settle_type(resource, new, patched=True)
        if (uid := new["metadata"].get("uid")) and uid != entry.uid:
            raise invalid(resource, name, [invalid_value("metadata.uid", uid, "field is immutable")])
        return self.update(resource, entry, old, new, subresource=subresource, dry_run=dry_run, proven=proven, by=by)

    def update(
        self,
        resource: Resource,
        entry: Entry,
        old: Object,
        new: Object,
        *,
        subresource: str | None = None,
        dry_run: bool = False,
        proven: bool = False,
        by: By = None,
    ) -> bytes:
        """Write `new` over `old` (the decoded `entry`) by the rules of the resource; answers the object as stored.

        `proven`: `check_shape` has said that the object keeps its schema's rules. `by`: who comes to own what changes.
        A write that changes nothing makes no version and no event, as in Kubernetes.
        """
        if self.admission.current is not None:
            admitted = self.admission.updated(resource, entry, old, new, subresource, dry_run=dry_run)
            if admitted is not new:
                new, proven = admitted, check_shape(resource, admitted, old)
                self._settle_type(resource, new)
        sent, before = new["metadata"], old["metadata"]
        if sent is not before:
            check_preconditions(resource, entry, sent)
        if subresource == "status":
            metadata = dict(before if resource.custom else sent)
            result = {**old, "metadata": metadata}
            carry(result, new, "status")
            if "status" not in result and (status := FIRST_STATUS.get(resource.key)):
                result["status"] = status()
        elif subresource == "finalize":
            metadata = dict(sent)
            result = {**new, "metadata": metadata}
            result["spec"] = dict(result.get("spec") or {})
            carry(result, old, "status")
        else:
            metadata = dict(sent)
            result = {**new, "metadata": metadata}
            if resource.status:
                carry(result, old, "status")
            if resource is NAMESPACES:
                carry(result, old, "spec")  # its finalizers change by the sub-resource `finalize` alone
        if (dying := sent.get("deletionTimestamp")) and dying != before.get("deletionTimestamp"):
            why = invalid_value("metadata.deletionTimestamp", dying, "field is immutable")
            raise invalid(resource, entry.name, [why])
        if sent is not before:
            for field in FIXED:
                carry(metadata, before, field)
        metadata["resourceVersion"] = before["resourceVersion"]
        drop_empty(result, metadata)
        given = metadata.pop("managedFields", None)
        if given is not None:
            given = ownership.given_anew(resource, old, entry.writers, given, subresource or "")
            if given is not None and (causes := ownership.causes(given)):
                raise invalid(resource, entry.name, causes)
        if tracked := before.get("managedFields"):
            metadata["managedFields"] = tracked
        self._check_change(resource, entry, old, result, subresource, proven=proven)
        if (resource.generation or resource.custom) and subresource is None and desired_differs(resource, old, result):
            metadata["generation"] = before.get("generation", 0) + 1
        if self.admission.current is not None:
            self.admission.updatable(resource, old, result, subresource, dry_run=dry_run)
        same = same_json(result, entry.raw)
        if same and given is None and not isinstance(by, Applied):
            return entry.raw
        entries, writers = ownership.at_change(
            resource, old, result, entry.writers, given, by, self.clock.now(), subresource or ""
        )
        if same and writers is entry.writers and ownership.same_but_times(entries, tracked):
            return entry.raw
        if entries:
            metadata["managedFields"] = entries
        else:
            metadata.pop("managedFields", None)
        if dry_run:
            return encode(result)
        waits = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
        if resource is NAMESPACES:
            waits = waits or result["spec"].get("finalizers")
        if "deletionTimestamp" in metadata and not waits:
            return self.remove(resource, entry, result).raw
        written = self.collection(resource).put(result, self.store.next_version(), writers)
        if resource is CRDS:
            crds.register(self, result)
        return written.raw

    def remove(self, resource: Resource, entry: Entry, obj: Object) -> Entry:
        """Take an object out for good; `obj` is its last state."""
        if resource is CRDS:
            crds.clear(self, obj)
        last = self.collection(resource).remove(entry, obj, self.store.next_version())
        if resource is CRDS:
            crds.unregister(self, obj)
        return last

    def _note_deletions(self, resource: Resource, entry: Entry | None, old: Entry | None) -> None:
        """Nothing is created in a namespace that is going, nor of a definition that is going."""
        if resource is NAMESPACES:
            closed = self.terminating
        elif resource is CRDS:
            closed = self.dying_definitions
        else:
            return
        if entry is None:
            if old is not None:
                closed.discard(old.name)
        elif entry.deleting:
            closed.add(entry.name)

    # --- the parts of a write

    def _settle_type(self, resource: Resource, obj: Object, *, patched: bool = False) -> None:
        if obj.get("kind") != resource.kind or obj.get("apiVersion") != resource.api_version:
            settle_type(resource, obj, patched=patched)

    def _settle_namespace(
        self, resource: Resource, namespace: str | None, metadata: Object, *, existing: bool = False
    ) -> None:
        if not resource.namespaced:
            metadata.pop("namespace", None)
            return
        if not namespace:
            raise bad_request("an empty namespace may not be set during creation")
        given = metadata.get("namespace")
        if given and given != namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        metadata["namespace"] = namespace
        if existing:
            return
        if namespace in self.terminating:
            raise namespace_terminating(resource, metadata.get("name") or metadata.get("generateName", ""), namespace)
        if self.collection(NAMESPACES).get("", namespace) is None:
            raise not_found(NAMESPACES, namespace)

    def _generate_name(self, collection: Collection, metadata: Object) -> str:
        base = metadata["generateName"][:58]
        for _ in range(8):
            name = base + "".join(random.choices(_SUFFIX, k=5))
            if collection.get(metadata.get("namespace", ""), name) is None:
                break
        return str(name)

    def _check_change(
        self,
        resource: Resource,
        entry: Entry,
        old: Object,
        result: Object,
        subresource: str | None,
        *,
        proven: bool,
    ) -> None:
        causes: list[Cause] = validate_metadata_change(resource, result["metadata"], old["metadata"])
        if subresource is None:
            if resource.key == "pods":
                pods.prepare_change(result, old)
            elif resource.key == addresses.KEY:
                addresses.keep(result, old)
            if default := DEFAULTS.get(resource.key):
                default(result)
            if validator := CHANGE_VALIDATORS.get(resource.key):
                causes.extend(validator(result, old))
            if resource.key == addresses.KEY and not causes:
                self.addresses.prepare(resource, result)
            if resource is CRDS and not causes:
                crds.prepare(result, self.clock.now())
        elif resource.key == "nodes":
            causes.extend(validate_node(result))
        if not proven and resource.custom:
            causes.extend(schema_causes(resource, result, old, subresource=subresource))
        if causes:
            raise invalid(resource, entry.name, causes)


# Nodes report their status when they register; a real server keeps it.
_STATUS_AT_CREATION = ("nodes",)
