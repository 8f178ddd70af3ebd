"""The ResourceClaim controller: claims on devices are made for pods of templates, and end with who uses them.

For each entry of a pod that names a template a claim is made, which the pod owns, and its name is told in the pod's
status. A pod that ended is taken from the list of who may use a claim; when nobody is left the claim's devices are
free, and if it is being deleted, it may go. Pods without claims cost a look for one word in their JSON.
"""

from typing import NamedTuple

import msgspec

from koord.kube.dynamicresources import FINALIZER, POD_CLAIM_NAME
from koord.localcluster.api.builtin import PODS, RESOURCE_CLAIMS
from koord.localcluster.api.cluster import Cluster
from koord.localcluster.api.controllers.workqueue import WorkQueue
from koord.localcluster.api.resources import Resource
from koord.localcluster.api.store import decode
from koord.localcluster.api.watchcache import Entry
from koord.localcluster.clusterapi import ApiError, ClusterApi, Object
from koord.localcluster.recording import EventRecorder, Subject

CLAIMS = RESOURCE_CLAIMS.key
TEMPLATES = "resourceclaimtemplates.resource.k8s.io"
_WORD = b'"resourceClaims"'
_ENDED = ("Succeeded", "Failed")


class Key(NamedTuple):
    """A pod or a claim to look at."""

    claim: bool
    namespace: str
    name: str


class _Entry(msgspec.Struct, rename="camel"):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class _Spec(msgspec.Struct, rename="camel"):
    resource_claims: list[_Entry] = []


class _Status(msgspec.Struct, rename="camel"):
    resource_claim_statuses: list[_Entry] = []


class _Pod(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


_decode_pod = msgspec.json.Decoder(_Pod).decode


class DeviceClaimController:
    """The controller of one cluster; `queue` does its work."""

    def __init__(self, cluster: Cluster, api: ClusterApi) -> None:
        self._cluster = cluster
        self._api = api
        self._recorder = EventRecorder(api, "resource_claim")
        self._lacking: dict[tuple[str, str], set[str]] = {}
        """Pods by the template that they wait for."""
        self.queue: WorkQueue[Key] = WorkQueue("device claims", self._handle)

    def start(self) -> None:
        """Hear of writes from now on, and look at every pod and claim once."""
        keys = (CLAIMS, TEMPLATES)
        self._cluster.store.listen(self.on_write, lambda resource: resource is PODS or resource.key in keys)
        for entry in self._cluster.collection(PODS).entries():
            self.on_write(PODS, entry, None)
        for entry in self._cluster.collection(RESOURCE_CLAIMS).entries():
            self.queue.add(Key(True, entry.namespace, entry.name))

    def on_write(self, resource: Resource, entry: Entry | None, old: Entry | None) -> None:
        """Take note of a pod with claims, a claim or a template that changed."""
        now = entry or old
        if now is None:
            return
        if resource is PODS:
            if _WORD in now.raw:
                self.queue.add(Key(False, now.namespace, now.name))
                for name in _claims(now):
                    self.queue.add(Key(True, now.namespace, name))
        elif resource.key == CLAIMS:
            self.queue.add(Key(True, now.namespace, now.name))
        elif resource.key == TEMPLATES:
            for pod in self._lacking.pop((now.namespace, now.name), ()):
                self.queue.add(Key(False, now.namespace, pod))

    async def _handle(self, key: Key) -> None:
        if key.claim:
            await self._release(key)
        else:
            await self._make(key)

    # Pods -----------------------------------------------------------------------------------------------------------

    async def _make(self, key: Key) -> None:
        entry = self._cluster.collection(PODS).get(key.namespace, key.name)
        if entry is None or entry.deleting:
            return
        pod = decode(entry)
        status = pod.get("status") or {}
        if status.get("phase") in _ENDED:
            return
        told = list(status.get("resourceClaimStatuses") or ())
        known = {each.get("name") for each in told}
        made: list[Object] = []
        failure: ApiError | None = None
        for each in pod["spec"].get("resourceClaims") or ():
            template = each.get("resourceClaimTemplateName")
            if template is None or each["name"] in known:
                continue
            try:
                name = self._owned(entry, each["name"]) or await self._create(pod, each["name"], template)
            except ApiError as error:
                failure = error
                await self._say(pod, f"PodResourceClaim {each['name']}: {error.message}")
                continue
            if name:
                made.append({"name": each["name"], "resourceClaimName": name})
        if made:
            body = {"metadata": {"uid": entry.uid}, "status": {"resourceClaimStatuses": [*told, *made]}}
            await self._api.patch("pods", key.namespace, key.name, body, subresource="status")
        if failure is not None:
            raise failure

    def _owned(self, pod: Entry, name: str) -> str:
        """The claim that was made for an entry of the pod before its name was told; empty: none was."""
        claims = self._cluster.collection(RESOURCE_CLAIMS)
        for at in self._cluster.store.owners.dependents(pod.uid):
            claim = claims.get(at.namespace, at.name)
            if claim is None or claim.deleting:
                continue
            annotations = decode(claim)["metadata"].get("annotations") or {}
            if annotations.get(POD_CLAIM_NAME) == name:
                return claim.name
        return ""

    async def _create(self, pod: Object, name: str, template: str) -> str:
        meta = pod["metadata"]
        namespace = meta["namespace"]
        found = self._cluster.collection(self._cluster.resource(TEMPLATES)).get(namespace, template)
        if found is None:
            self._lacking.setdefault((namespace, template), set()).add(meta["name"])
            why = f'resource claim template "{template}": resourceclaimtemplate.resource.k8s.io "{template}" not found'
            await self._say(pod, f"PodResourceClaim {name}: {why}")
            return ""
        spec = decode(found)["spec"]
        extra = spec.get("metadata") or {}
        owner = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": meta["name"],
            "uid": meta["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        body: Object = {
            "apiVersion": RESOURCE_CLAIMS.api_version,
            "kind": RESOURCE_CLAIMS.kind,
            "metadata": {
                "generateName": f"{meta['name']}-{name}-"[:200],
                "namespace": namespace,
                "labels": dict(extra.get("labels") or {}),
                "annotations": {**(extra.get("annotations") or {}), POD_CLAIM_NAME: name},
                "ownerReferences": [owner],
            },
            "spec": spec["spec"],
        }
        raw = await self._api.create(CLAIMS, namespace, body)
        made: str = msgspec.json.decode(raw)["metadata"]["name"]
        return made

    async def _say(self, pod: Object, message: str) -> None:
        meta = pod["metadata"]
        subject = Subject("v1", "Pod", meta["namespace"], meta["name"], meta["uid"])
        await self._recorder.record(subject, "Warning", "FailedResourceClaimCreation", message)

    # Claims ---------------------------------------------------------------------------------------------------------

    async def _release(self, key: Key) -> None:
        entry = self._cluster.collection(RESOURCE_CLAIMS).get(key.namespace, key.name)
        if entry is None:
            return
        claim = decode(entry)
        status = claim.get("status") or {}
        users = status.get("reservedFor") or []
        left = [user for user in users if self._uses(key.namespace, user)]
        version = {"resourceVersion": claim["metadata"]["resourceVersion"]}
        if len(left) < len(users):
            change: Object = {"reservedFor": left or None}
            if not left:
                change["allocation"] = None
            patch = {"metadata": version, "status": change}
            await self._api.patch(CLAIMS, key.namespace, key.name, patch, subresource="status")
            return
        if left:
            return
        if entry.deleting:
            finalizers = claim["metadata"].get("finalizers") or []
            if status.get("allocation") is not None:
                patch = {"metadata": version, "status": {"allocation": None}}
                await self._api.patch(CLAIMS, key.namespace, key.name, patch, subresource="status")
            elif FINALIZER in finalizers:
                rest = [each for each in finalizers if each != FINALIZER]
                patch = {"metadata": {**version, "finalizers": rest}}
                await self._api.patch(CLAIMS, key.namespace, key.name, patch)
        elif self._owner_ended(claim):
            await self._api.delete(CLAIMS, key.namespace, key.name, uid=entry.uid)

    def _uses(self, namespace: str, user: Object) -> bool:
        """Whether the consumer may still use the claim; of others than pods it cannot be told."""
        if user.get("resource") != "pods" or user.get("apiGroup"):
            return True
        pod = self._cluster.collection(PODS).get(namespace, user.get("name", ""))
        if pod is None or pod.uid != user.get("uid"):
            return False
        body = decode(pod)
        if (body.get("status") or {}).get("phase") in _ENDED:
            return False
        return not (pod.deleting and not body["spec"].get("nodeName"))

    def _owner_ended(self, claim: Object) -> bool:
        """Whether the claim was made for a pod that ended but is still there."""
        for owner in claim["metadata"].get("ownerReferences") or ():
            if owner.get("kind") == "Pod" and owner.get("controller"):
                pod = self._cluster.collection(PODS).get(claim["metadata"]["namespace"], owner["name"])
                if pod is not None and pod.uid == owner["uid"]:
                    return (decode(pod).get("status") or {}).get("phase") in _ENDED
        return False


def _claims(pod: Entry) -> list[str]:
    """Names of the claims that a pod uses."""
    try:
        body = _decode_pod(pod.raw)
    except msgspec.ValidationError:
        return []
    entries = (*body.spec.resource_claims, *body.status.resource_claim_statuses)
    return [entry.resource_claim_name for entry in entries if entry.resource_claim_name]
