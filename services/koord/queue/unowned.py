"""QueueUnits that nobody owns and that name a job of a kind that koord knows: they wait until that job exists.

The queue's own units belong to their jobs and go with them. One made by hand is nobody's to delete, so it stays; but
for a job that does not exist it is not admitted, and what it held is given back when its job goes.
"""

from koord.kube.jobs.registry import BY_KIND
from koord.kube.queues import QueueUnit
from koord.kube.resources import QUEUE_UNITS
from koord.queue.desk import Desk
from koord.queue.headroom import MISCONFIGURED, Refusal
from koord.queue.phases import FINAL_PHASES
from koord.queue.status import moved
from koord.queue.world import UnitEntry, World


def consumer_of(view: QueueUnit) -> tuple[str, str] | None:
    """Token and ``ns/name`` of the job that a unit without an owner names, if it is of a kind that koord knows."""
    ref = view.spec.consumer_ref
    kind = BY_KIND.get((ref.api_version, ref.kind)) if ref is not None else None
    if ref is None or kind is None or view.metadata.controller is not None:
        return None
    return kind.resource.token, f"{ref.namespace or view.metadata.namespace}/{ref.name}"


def missing_job(world: World, view: QueueUnit) -> str:
    """What is wrong with a unit that names a job which does not exist, or empty."""
    consumer, ref = consumer_of(view), view.spec.consumer_ref
    if consumer is None or ref is None or consumer in world.job_uids:
        return ""
    return f"spec.consumerRef: {ref.kind} {consumer[1]} does not exist"


def wait_for_job(world: World, desk: Desk, entry: UnitEntry, phase: str, missing: str) -> None:
    """Take the unit out of its queue, give back what it holds, and say why."""
    view = entry.view
    world.leave_queue(entry)
    entry.refusal = Refusal(missing, MISCONFIGURED)
    desk.warn(QUEUE_UNITS, view.metadata, "JobNotFound", missing)
    if phase == "Enqueued" and not view.status.admissions:
        world.texts_wanted.add(view.key)
    elif phase not in FINAL_PHASES and desk.free(QUEUE_UNITS, view.metadata):
        body = moved(view, "Enqueued", missing, desk.now_s, release=True, waiting_reason=MISCONFIGURED)
        desk.patch(QUEUE_UNITS, view.metadata, body, subresource="status")


def note(world: World, key: str, old: QueueUnit | None, new: QueueUnit | None) -> None:
    """Keep the index of units by the job they name; ``None``: there was, or is, no such unit."""
    before = consumer_of(old) if old is not None else None
    after = consumer_of(new) if new is not None else None
    if before is not None and before != after:
        naming = world.units_naming[before]
        naming.discard(key)
        if not naming:
            del world.units_naming[before]
    if after is not None:
        world.units_naming.setdefault(after, set()).add(key)
