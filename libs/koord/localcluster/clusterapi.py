"""The one door through which fake kubelets and stand-in operators see a cluster.

Kubelets and operators play the outside world. They are written against this protocol and so run in two places without
a change: inside the embedded API server, straight on its store (`koord.localcluster.api.inprocess`), or against a real
cluster over HTTP. The protocol is shaped for 50,000 pods: a watch yields batches of undecoded JSON, so a component
decodes only the fields it declares, and writes answer bytes, which most callers ignore.

A *resource* is written as kubectl writes it: the plural, then a dot and the API group unless it is the core group
(`"pods"`, `"nodes"`, `"jobs.batch"`, `"pytorchjobs.kubeflow.org"`). The version is the one the server stores.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal, NamedTuple, Protocol

Object = dict[str, Any]
"""A decoded Kubernetes object."""
Objects = list[Object]

PatchKind = Literal["json", "merge", "strategic"]
PropagationPolicy = Literal["Foreground", "Background", "Orphan"]
EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]


class ApiError(Exception):
    """A refusal of the API, with what its Kubernetes `Status` said.

    `code` is the HTTP status, `reason` the machine-readable word (`NotFound`, `AlreadyExists`, `Conflict`, `Invalid`,
    `Expired`, ...), `message` the sentence for people, `details` the Status' details (kind, name, causes) or None.
    """

    def __init__(self, code: int, reason: str, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details

    def __repr__(self) -> str:
        return f"ApiError({self.code}, {self.reason!r}, {self.message!r})"

    def status(self) -> Object:
        """The error as a Kubernetes `Status` object."""
        body: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = dict(self.details)
        return body


class WatchEvent(NamedTuple):
    """One change.

    `raw` is the whole object as JSON, exactly as stored; decode it with a msgspec Struct of the fields you need. A
    DELETED event carries the last state, with the version of the deletion. A BOOKMARK carries no object worth reading
    (`raw` is a stub with only kind and resourceVersion); the first one of a watch without `resource_version` says that
    the initial state is complete.
    """

    type: EventType
    namespace: str
    name: str
    resource_version: int
    raw: bytes


WatchEvents = list[WatchEvent]


class ClusterApi(Protocol):
    """List, watch and write the objects of one cluster. Every method raises `ApiError` when the API refuses."""

    async def list(
        self,
        resource: str,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
    ) -> tuple[Objects, str]:
        """All objects (of one namespace if given) and the resource version they are consistent at.

        For small sets: 50,000 decoded pods are over 2 GiB. To follow many objects use `watch`.
        """
        ...

    def watch(
        self,
        resource: str,
        namespace: str | None = None,
        *,
        resource_version: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
    ) -> AsyncIterator[WatchEvents]:
        """Changes in order, in batches of at least one event.

        Without `resource_version`: first every existing object as ADDED, then one BOOKMARK, then the changes. With it:
        the changes after that version. The iterator ends (or raises `ApiError` 410 `Expired`) when the server can no
        longer continue: start again without a version and sweep what was not seen. An object that stops matching a
        selector arrives as DELETED.
        """
        ...

    async def get(self, resource: str, namespace: str | None, name: str) -> Object:
        """One object; 404 `NotFound` if there is none. `namespace` is None for cluster-scoped resources."""
        ...

    async def create(self, resource: str, namespace: str | None, body: Object) -> bytes:
        """Create; answers the stored object. 409 `AlreadyExists`, 422 `Invalid`, 404 for a missing namespace."""
        ...

    async def replace(
        self, resource: str, namespace: str | None, name: str, body: Object, *, subresource: str | None = None
    ) -> bytes:
        """Replace the object (or only its `status`); 409 `Conflict` if `metadata.resourceVersion` is set and old."""
        ...

    async def patch(
        self,
        resource: str,
        namespace: str | None,
        name: str,
        patch: Object | Objects | bytes,
        *,
        kind: PatchKind = "merge",
        subresource: str | None = None,
    ) -> bytes:
        """Apply a patch to the object or to its `status` or `scale` sub-resource; answers the stored object.

        `patch` may be given as encoded JSON. `kind` strategic is only for built-in resources (415 otherwise).
        """
        ...

    async def delete(
        self,
        resource: str,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_period_seconds: int | None = None,
        propagation_policy: PropagationPolicy | None = None,
    ) -> None:
        """Delete; 404 if gone, 409 if `uid` or `resource_version` do not match.

        `propagation_policy` says what becomes of the objects that this one owns; without it Jobs leave their pods.

        A pod bound to a node is only marked (`metadata.deletionTimestamp`) unless `grace_period_seconds` is 0, as its
        kubelet does when the containers have stopped. An object with finalizers is marked until they are gone.
        """
        ...
