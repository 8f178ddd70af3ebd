"""Pods from a job's templates."""

from collections.abc import Mapping

import msgspec

from koord.localcluster.clusterapi import Object

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Object).decode


def owner_reference(job: Object) -> Object:
    """The controller reference to `job`."""
    return {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def pod_of(
    job: Object,
    template: Object,
    *,
    name: str = "",
    name_prefix: str = "",
    labels: Mapping[str, str],
    annotations: Mapping[str, str] | None = None,
    restart_policy: str = "",
) -> Object:
    """A pod of `job` with the template's labels, annotations and spec; what the operator adds wins over the template.

    With `name_prefix` the server chooses the name's end. `restart_policy` overrides the template's.
    """
    # A copy: the pod becomes the server's, the template stays the job's.
    body = _decode(_encode({"metadata": template.get("metadata") or {}, "spec": template["spec"]}))
    metadata, spec = body["metadata"], body["spec"]
    new: Object = {
        "namespace": job["metadata"]["namespace"],
        "labels": {**(metadata.get("labels") or {}), **labels},
        "annotations": {**(metadata.get("annotations") or {}), **(annotations or {})},
        "ownerReferences": [owner_reference(job)],
    }
    if metadata.get("finalizers"):
        new["finalizers"] = metadata["finalizers"]
    if name_prefix:
        new["generateName"] = name_prefix
    else:
        new["name"] = name
    if restart_policy:
        spec["restartPolicy"] = restart_policy
    return {"apiVersion": "v1", "kind": "Pod", "metadata": new, "spec": spec}
