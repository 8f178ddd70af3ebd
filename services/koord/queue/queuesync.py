"""Queue objects: one per ElasticQuota, their policies, and what they publish about who waits (spec 70, 2.2 and 3.7)."""

from typing import Any

from koord.kube.conditions import Condition, set_condition
from koord.kube.protocol import queue as keys
from koord.kube.protocol.quota import PARENT, ROOT_QUOTA, SYSTEM_QUOTA
from koord.kube.queues import NAMESPACE, Queue, QueueItemDetail
from koord.kube.resources import ELASTIC_QUOTAS, NAMESPACES, QUEUES
from koord.queue.desk import Desk
from koord.queue.policy import NOT_BUILT, PolicyError, make_policy
from koord.queue.status import shown
from koord.queue.world import QueueEntry, World
from koord.telemetry.metrics import gauge

DETAILS_EVERY_S = 15.0
SHOWN = 2000
"""Waiting units listed in a Queue's status: an object has to stay well below the API server's size limit."""
ACTIVE = "Active"

_waiting = gauge("queueunits_in_active_queue", "Units that wait", ("queue",))


def queue_object(name: str, labels: dict[str, str], annotations: dict[str, str], policy: str) -> dict[str, Any]:
    """The Queue made for a quota."""
    return {
        "apiVersion": QUEUES.api_version,
        "kind": QUEUES.kind,
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels, "annotations": annotations},
        "spec": {"queuePolicy": policy, "priority": keys.AUTO_QUEUE_PRIORITY},
    }


class QueueSync:
    """Keeps Queue objects in step with quotas."""

    def __init__(self, world: World, desk: Desk) -> None:
        self._world = world
        self._desk = desk

    def reconcile(self, name: str) -> None:
        """Look at one queue."""
        queue = self._world.queue(name)
        if queue.view is not None and not self._desk.free(QUEUES, queue.view.metadata):
            return  # looked at again when the write under way is settled
        node = self._world.tree.get(name) if name not in (ROOT_QUOTA, SYSTEM_QUOTA) else None
        wanted = node is not None and keys.wants_queue(node.annotations)
        if queue.view is None:
            if wanted and node is not None:
                self._create(name, node.labels, node.annotations)
            return
        if keys.created_by_queue(queue.view.metadata.labels):
            if not wanted:
                if queue.view.metadata.deletion_timestamp is None:
                    self._desk.delete(QUEUES, queue.view.metadata)
                return
            assert node is not None
            patch = _drift(queue.view, node.labels, node.annotations)
            if patch:
                self._desk.patch(QUEUES, queue.view.metadata, patch)
                return
        self._show_state(queue, queue.view)

    def ensure_namespace(self) -> None:
        """The namespace of all Queues exists."""
        if NAMESPACE not in self._world.namespaces:
            body = {
                "apiVersion": NAMESPACES.api_version,
                "kind": NAMESPACES.kind,
                "metadata": {"name": NAMESPACE},
            }
            self._desk.create(NAMESPACES, "", NAMESPACE, body)

    def seen(self, queue: QueueEntry, view: Queue) -> None:
        """A Queue was added or edited: build its policy, or say why it cannot be."""
        queue.view = view
        if problem := keys.integer_problem(view.metadata.annotations, keys.MAX_DEPTH):
            self._warn_of_annotation(view, keys.MAX_DEPTH, problem)
        name = view.spec.queue_policy or keys.POLICY_PRIORITY
        if queue.policy is not None and queue.policy.name == name:
            queue.problem = ""
            return
        try:
            queue.policy = make_policy(name)
            queue.problem = ""
        except PolicyError as error:
            queue.problem = f"queue {queue.name}: {error}"
            self._desk.warn(QUEUES, view.metadata, "AddQueueFail", queue.problem)

    def publish_details(self) -> float | None:
        """Write positions where they changed, at most once per interval; answers when the next write is due."""
        soonest: float | None = None
        for queue in self._world.queues.values():
            view = queue.view
            if not queue.details_dirty:
                continue
            _waiting.labels(queue.name).set(len(queue.waiting))
            if view is None or keys.DISABLE_SHOW_ITEMS in view.metadata.annotations:
                continue
            if queue.details_due_s > self._desk.now_s:
                soonest = min(soonest or queue.details_due_s, queue.details_due_s)
                continue
            if not self._desk.free(QUEUES, view.metadata):
                continue
            queue.details_dirty = False
            items = details(queue)
            if items == view.status.queue_item_details.get("active", []):
                continue
            interval = keys.duration_s(
                view.metadata.annotations, "koord-queue/queue-items-refresh-interval", DETAILS_EVERY_S
            )
            queue.details_due_s = self._desk.now_s + interval
            listed = [
                {"name": item.name, "namespace": item.namespace, "priority": item.priority, "position": item.position}
                for item in items
            ]
            body = {"status": {"queueItemDetails": {"active": listed}}}
            self._desk.patch(QUEUES, view.metadata, body, subresource="status", lane="event")
        return soonest

    # Inside -------------------------------------------------------------------------------------------------------

    def _warn_of_annotation(self, view: Queue, key: str, problem: str) -> None:
        """On the quota that the Queue has it from, else on the Queue."""
        node = self._world.tree.get(view.metadata.name)
        quota = self._world.quotas.get(node.key) if node is not None else None
        text = keys.lookup(view.metadata.annotations, key)
        if quota is not None and keys.lookup(quota.metadata.annotations, key) == text:
            self._desk.warn(ELASTIC_QUOTAS, quota.metadata, "InvalidAnnotation", problem)
        else:
            self._desk.warn(QUEUES, view.metadata, "InvalidAnnotation", problem)

    def _create(self, name: str, labels: dict[str, str], annotations: dict[str, str]) -> None:
        if NAMESPACE not in self._world.namespaces:
            self.ensure_namespace()
            self._world.dirty_queues.add(name)  # with the next pass, the namespace wakes it
            return
        quota = self._world.tree.get(name)
        policy = keys.policy_of_quota(labels, annotations)
        body = queue_object(name, _labels(labels), keys.queue_annotations(annotations), policy)
        self._desk.create(QUEUES, NAMESPACE, name, body)
        if policy in NOT_BUILT and quota is not None and (view := self._world.quotas.get(quota.key)) is not None:
            self._desk.warn(ELASTIC_QUOTAS, view.metadata, "AddQueueFail", f"queue policy {policy} is not built yet")

    def _show_state(self, queue: QueueEntry, view: Queue) -> None:
        """Condition Active: whether the queue admits, and if not, why."""
        if not queue.problem:
            wanted = Condition(type=ACTIVE, status="True", reason="Ready", message="admits units")
        elif queue.policy is not None:
            text = f"{queue.problem}; policy {queue.policy.name} stays in force"
            wanted = Condition(type=ACTIVE, status="True", reason="PreviousPolicy", message=text)
        else:
            reason = "PolicyNotBuilt" if view.spec.queue_policy in NOT_BUILT else "UnknownPolicy"
            wanted = Condition(type=ACTIVE, status="False", reason=reason, message=queue.problem)
        conditions = list(view.status.conditions)
        if set_condition(conditions, wanted, self._desk.now_s):
            body = {"status": {"conditions": shown(conditions)}}
            self._desk.patch(QUEUES, view.metadata, body, subresource="status")


def details(queue: QueueEntry) -> list[QueueItemDetail]:
    """The waiting units in their order, positions from 1."""
    found = []
    for position, unit in enumerate(queue.waiting.ordered(SHOWN), 1):
        namespace, _, name = unit.key.partition("/")
        found.append(
            QueueItemDetail(name=name, namespace=namespace, priority=-unit.rank.minus_priority, position=position)
        )
    return found


def _labels(quota_labels: dict[str, str]) -> dict[str, str]:
    labels = {keys.CREATED_BY: "true"}
    if PARENT in quota_labels:
        labels[PARENT] = quota_labels[PARENT]
    return labels


def _drift(view: Queue, labels: dict[str, str], annotations: dict[str, str]) -> dict[str, Any]:
    """What an auto-created Queue has to be given back: its policy, parent label and the quota's queue annotations."""
    patch: dict[str, Any] = {}
    meta = view.metadata
    wanted_labels = _labels(labels)
    changed: dict[str, str | None] = {k: v for k, v in wanted_labels.items() if meta.labels.get(k) != v}
    if PARENT in meta.labels and PARENT not in wanted_labels:
        changed[PARENT] = None
    if changed:
        patch["metadata"] = {"labels": changed}
    copied = {k: v for k, v in keys.queue_annotations(annotations).items() if meta.annotations.get(k) != v}
    if copied:
        patch.setdefault("metadata", {})["annotations"] = copied
    policy = keys.policy_of_quota(labels, annotations)
    if view.spec.queue_policy != policy:
        patch["spec"] = {"queuePolicy": policy}
    return patch
