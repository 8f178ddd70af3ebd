"""From promises to bound claims: what is written for a placed pod, and when its claims are what was promised.

Spec 10 section 3.15, VolumeBinding ("PreBind binds and waits"). A volume that exists is given to its claim by writing
its ``claimRef``; for one that is to be made the claim is told the node. The rest is the work of Kubernetes' volume
controller and of the provisioner, which is waited for. A provisioner that fails takes the node off the claim again.
"""

import msgspec

from koord.kube.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from koord.kube.storage import BOUND_BY_CONTROLLER, SELECTED_NODE, PersistentVolume, PersistentVolumeClaim
from koord.scheduler.framework.contract import Write
from koord.scheduler.volumes.binding import Choice
from koord.scheduler.volumes.book import VolumeBook


class Task(msgspec.Struct, frozen=True):
    """One choice under way. ``seen``: the version of the volume or claim that the write was made for; empty: nothing
    had to be written."""

    choice: Choice
    seen: str = ""


def begin(choice: Choice, node: str, book: VolumeBook) -> tuple[Task, Write | None] | str:
    """What to write for a choice, if it has to be; a text: it is not possible any more."""
    claim = book.claims.get(choice.claim.key)
    if claim is None or claim.metadata.uid != choice.claim.metadata.uid:
        return f'persistentvolumeclaim "{choice.claim.metadata.name}" not found'
    if not choice.volume:
        selected = claim.metadata.annotations.get(SELECTED_NODE)
        if selected is not None or claim.spec.volume_name:
            return Task(choice), None
        return Task(choice, claim.metadata.resource_version), _select(claim, node)
    volume = book.volumes.get(choice.volume)
    if volume is None:
        return f'persistentvolume "{choice.volume}" not found'
    ref = volume.spec.claim_ref
    if ref is not None and ref.uid:
        return Task(choice), None
    return Task(choice, volume.metadata.resource_version), _give(volume, claim)


def _give(volume: PersistentVolume, claim: PersistentVolumeClaim) -> Write:
    meta = claim.metadata
    ref = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": meta.namespace,
        "name": meta.name,
        "uid": meta.uid,
        "resourceVersion": meta.resource_version,
    }
    body: dict[str, object] = {"spec": {"claimRef": {name: value for name, value in ref.items() if value}}}
    if volume.spec.claim_ref is None:
        body["metadata"] = {"annotations": {BOUND_BY_CONTROLLER: "yes"}}
    held = volume.metadata
    return Write(PERSISTENT_VOLUMES, "", held.name, msgspec.json.encode(body), held.uid, held.resource_version)


def _select(claim: PersistentVolumeClaim, node: str) -> Write:
    meta = claim.metadata
    body = msgspec.json.encode({"metadata": {"annotations": {SELECTED_NODE: node}}})
    return Write(PERSISTENT_VOLUME_CLAIMS, meta.namespace, meta.name, body, meta.uid, meta.resource_version)


def finished(task: Task, node: str, book: VolumeBook) -> bool | str:
    """Whether the claim is bound as it was chosen; a text: it will not be."""
    choice = task.choice
    name = choice.claim.metadata.name
    claim = book.claims.get(choice.claim.key)
    if claim is None or claim.metadata.uid != choice.claim.metadata.uid:
        return f'persistentvolumeclaim "{name}" not found'
    if choice.volume:
        if claim.bound and claim.spec.volume_name == choice.volume:
            return True
        volume = book.volumes.get(choice.volume)
        if volume is None:
            return f'persistentvolume "{choice.volume}" not found'
        ref = volume.spec.claim_ref
        if ref is not None and ref.uid == claim.metadata.uid:
            return False
        if volume.metadata.resource_version == task.seen:
            return False  # the write is not seen yet
        return f'ClaimRef got reset for pv "{choice.volume}"'
    if claim.spec.volume_name:
        return claim.bound
    selected = claim.metadata.annotations.get(SELECTED_NODE)
    if selected == node or (selected is None and claim.metadata.resource_version == task.seen):
        return False
    # The provisioner could not make it: the mark is gone, the pod is to be placed anew.
    return f'provisioning failed for PVC "{name}"'


def volume_of(task: Task, book: VolumeBook) -> str:
    """The volume that the claim has now."""
    claim = book.claims.get(task.choice.claim.key)
    return "" if claim is None else claim.spec.volume_name
