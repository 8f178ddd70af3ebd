"""Runs the stand-in operators: follows jobs and pods, asks for decisions, carries them out.

Level-triggered: a decision looks at what is there, never at what happened, so a restart in the middle loses nothing.
Changes of one job within a moment are answered by one decision.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from koord.kube import meta
from koord.localcluster.clusterapi import ApiError, ClusterApi, Object, WatchEvents
from koord.localcluster.following import Key, follow
from koord.localcluster.operators.jobs import JobKey, JobRecord, Jobs
from koord.localcluster.operators.plan import JobInvalid, Operator, Plan
from koord.localcluster.recording import EventRecorder, Subject
from koord.localcluster.working import Workers
from koord.telemetry.logs import get_logger

_log = get_logger(__name__)

_WORKERS = 8
_GATHER_S = 0.05
_FIRST_RETRY_S = 0.5
_LONGEST_RETRY_S = 60.0
_OWNED_MARK = b'"ownerReferences"'

_decode_job = msgspec.json.Decoder(Object).decode


class _Head(msgspec.Struct):
    metadata: meta.ObjectMeta


_decode_head = msgspec.json.Decoder(_Head).decode


class OperatorRunner:
    """The stand-in operators of one cluster."""

    def __init__(self, api: ClusterApi, operators: Sequence[Operator], workers: int = _WORKERS) -> None:
        self._api = api
        self._operators = {operator.resource: operator for operator in operators}
        self._jobs = Jobs({(operator.api_version, operator.kind): operator.resource for operator in operators})
        self._recorders = {
            operator.resource: EventRecorder(api, f"{operator.kind.lower()}-controller") for operator in operators
        }
        self._workers: Workers[JobKey] = Workers("operators", self._handle, workers)
        # A decision before all jobs and pods are known would repeat or undo what is there.
        self._unknown = {"pods", *self._operators}
        self._tasks: list[asyncio.Task[Any]] = []
        self.decisions = 0
        self.pods_created = 0

    def start(self) -> None:
        """Follow and act, in the background."""
        self._tasks = [
            *self._workers.tasks(),
            asyncio.create_task(self._follow_pods(), name="operators: pods"),
            *(
                asyncio.create_task(self._follow_jobs(resource), name=f"operators: {resource}")
                for resource in self._operators
            ),
        ]

    async def stop(self) -> None:
        """Stop; jobs and pods stay as they are."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks = []

    @property
    def tasks(self) -> list[asyncio.Task[Any]]:
        """The running tasks; one that ends is a defect of ours."""
        return self._tasks

    # Watching -----------------------------------------------------------------------------------------------------

    async def _follow_pods(self) -> None:
        await follow(self._api, "pods", on_events=self._on_pods, on_complete=self._on_all_pods)

    def _on_pods(self, events: WatchEvents) -> None:
        for event in events:
            if event.type == "BOOKMARK" or _OWNED_MARK not in event.raw:
                continue
            try:
                if event.type == "DELETED":
                    uid = _decode_head(event.raw).metadata.uid
                    self._wake(self._jobs.drop_pod(event.namespace, event.name, uid))
                else:
                    self._wake(self._jobs.put_pod(event.namespace, event.raw, event.resource_version))
            except msgspec.ValidationError as error:
                _log.warning("pod not understood", pod=f"{event.namespace}/{event.name}", error=str(error))

    def _on_all_pods(self, seen: set[Key]) -> None:
        for namespace, name in self._jobs.pod_names():
            if (namespace, name) not in seen:
                self._wake(self._jobs.drop_pod(namespace, name))
        self._known("pods")

    async def _follow_jobs(self, resource: str) -> None:
        def on_events(events: WatchEvents) -> None:
            for event in events:
                key = JobKey(resource, event.namespace, event.name)
                if event.type == "DELETED":
                    self._wake(self._jobs.drop_job(key, event.resource_version))
                elif event.type != "BOOKMARK":
                    try:
                        self._wake(self._jobs.put_job(key, event.raw, event.resource_version))
                    except msgspec.ValidationError as error:
                        _log.warning("job not understood", job=f"{key.namespace}/{key.name}", error=str(error))

        def on_complete(seen: set[Key]) -> None:
            for key, record in list(self._jobs.records.items()):
                if key.resource == resource and record.raw is not None and (key.namespace, key.name) not in seen:
                    self._wake(self._jobs.drop_job(key, record.version))
            self._known(resource)

        await follow(self._api, resource, on_events=on_events, on_complete=on_complete)

    def _known(self, resource: str) -> None:
        self._unknown.discard(resource)
        if "pods" not in self._unknown:
            for record in list(self._jobs.records.values()):
                if record.key.resource not in self._unknown:
                    self._wake(record)

    # Deciding -----------------------------------------------------------------------------------------------------

    def _wake(self, record: JobRecord | None, after_s: float = 0.0) -> None:
        if record is None or "pods" in self._unknown or record.key.resource in self._unknown:
            return
        now = time.time()
        due = max(now + after_s, record.last_s + _GATHER_S)
        if not now < record.due_s <= due:
            record.due_s = due
            self._workers.at(due, record.key)

    async def _handle(self, key: JobKey) -> None:
        record = self._jobs.records.get(key)
        if record is None:
            return
        now = time.time()
        if record.due_s == 0.0 or record.due_s > now:
            return  # an old timer: handled since, or due later by now
        if record.busy:
            self._wake(record, _GATHER_S)
            return
        record.busy = True
        record.last_s = now
        record.due_s = 0.0
        try:
            await self._reconcile(record)
            record.failures = 0
        except (ApiError, OSError) as error:
            if isinstance(error, ApiError) and error.code == 404 and record.raw is None:
                return
            wait = min(_FIRST_RETRY_S * 2**record.failures, _LONGEST_RETRY_S)
            record.failures = min(record.failures + 1, 16)
            _log.warning(
                "job not reconciled", job=f"{key.namespace}/{key.name}", resource=key.resource, error=str(error)
            )
            self._wake(record, wait)
        finally:
            record.busy = False

    async def _reconcile(self, record: JobRecord) -> None:
        if record.raw is None:  # its pods are the garbage collector's
            self._jobs.forget(record)
            return
        operator = self._operators[record.key.resource]
        job: Object = {"apiVersion": operator.api_version, "kind": operator.kind, **_decode_job(record.raw)}
        try:
            plan = operator.decide(job, record.observed, time.time())
        except JobInvalid as error:
            await self._tell(record, "Warning", "InvalidJob", f"{operator.kind} {record.key.name}: {error}")
            return
        except Exception as error:  # a defect, or a job bent in a way nobody thought of: the others must go on
            _log.exception("job not understood", job=f"{record.key.namespace}/{record.key.name}")
            what = f"{type(error).__name__}: {error}"
            await self._tell(record, "Warning", "InvalidJob", f"{operator.kind} {record.key.name}: {what}")
            return
        self.decisions += 1
        await self._carry_out(record, job, plan)

    # Acting -------------------------------------------------------------------------------------------------------

    async def _carry_out(self, record: JobRecord, job: Object, plan: Plan) -> None:
        key = record.key
        if plan.status is not None:
            change = merge_patch(job.get("status") or {}, plan.status)
            if change:
                raw = await self._api.patch(
                    key.resource, key.namespace, key.name, {"status": change}, kind="merge", subresource="status"
                )
                version = int(_decode_head(raw).metadata.resource_version)
                self._jobs.put_job(key, raw, version)
        for notice in plan.notices:
            await self._tell(record, notice.type, notice.reason, notice.message)
        for pod in plan.delete:
            await self._delete_pod(record, pod.name, pod.uid)
        refused: ApiError | None = None
        for body in plan.create:
            try:
                raw = await self._api.create("pods", key.namespace, body)
            except ApiError as error:
                name = body["metadata"].get("name") or body["metadata"].get("generateName")
                await self._tell(record, "Warning", "FailedCreate", f"pod {name} not created: {error.message}")
                refused = error
                if error.code != 409:
                    break
                continue
            self.pods_created += 1
            version = int(_decode_head(raw).metadata.resource_version)
            self._jobs.put_pod(key.namespace, raw, version)
            await self._workers.give_way()
        if plan.delete_job:
            try:
                await self._api.delete(
                    key.resource, key.namespace, key.name, uid=record.uid, propagation_policy="Background"
                )
            except ApiError as error:
                if error.code not in (404, 409):
                    raise
        if plan.again_s is not None:
            self._wake(record, plan.again_s)
        if refused is not None:
            raise refused

    async def _delete_pod(self, record: JobRecord, name: str, uid: str) -> None:
        try:
            await self._api.delete("pods", record.key.namespace, name, uid=uid)
        except ApiError as error:
            if error.code not in (404, 409):
                raise
        pod = record.pods.get(uid)
        if pod is not None:
            record.pods[uid] = pod._replace(deleting=True, ours=True, ended_s=pod.ended_s or time.time())
        await self._workers.give_way()

    async def _tell(self, record: JobRecord, type_: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        operator = self._operators[record.key.resource]
        subject = Subject(operator.api_version, operator.kind, record.key.namespace, record.key.name, record.uid)
        await self._recorders[record.key.resource].record(subject, type_, reason, message)


def merge_patch(old: Object, new: Object) -> Object:
    """The JSON merge patch that turns `old` into `new`; empty if they are equal."""
    patch: Object = {}
    for name, value in new.items():
        before = old.get(name)
        if name in old and before == value:
            continue
        if isinstance(value, dict) and isinstance(before, dict):
            patch[name] = merge_patch(before, value)
        else:
            patch[name] = value
    for name in old.keys() - new.keys():
        patch[name] = None
    return patch
