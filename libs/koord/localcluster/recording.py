"""Events of kubelets and operators: what a user should know about an object, said once."""

import time
import uuid
from collections import OrderedDict
from typing import Literal, NamedTuple

from koord.kube.meta import micro_rfc3339, now_rfc3339
from koord.localcluster.clusterapi import ApiError, ClusterApi, Object
from koord.telemetry.logs import get_logger

_log = get_logger(__name__)

_REMEMBERED = 10_000


class Subject(NamedTuple):
    """The object that an event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


class EventRecorder:
    """Writes core/v1 Events as `component`; the same words about the same object are written once only."""

    def __init__(self, api: ClusterApi, component: str) -> None:
        self._api = api
        self._component = component
        self._told: OrderedDict[tuple[str, str, str], None] = OrderedDict()

    async def record(self, subject: Subject, type_: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        """Write the event. A refusal is logged, never raised: events inform, nothing depends on them."""
        key = (subject.uid, reason, message)
        if key in self._told:
            return
        self._told[key] = None
        if len(self._told) > _REMEMBERED:
            self._told.popitem(last=False)
        now = time.time()
        namespace = subject.namespace or "default"
        event: Object = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{subject.name[:200]}.{uuid.uuid4().hex[:16]}", "namespace": namespace},
            "involvedObject": {
                "apiVersion": subject.api_version,
                "kind": subject.kind,
                "namespace": subject.namespace,
                "name": subject.name,
                "uid": subject.uid,
            },
            "type": type_,
            "reason": reason,
            "message": message[:1024],
            "count": 1,
            "firstTimestamp": now_rfc3339(now),
            "lastTimestamp": now_rfc3339(now),
            "eventTime": micro_rfc3339(now),
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._component,
            "action": reason,
        }
        try:
            await self._api.create("events", namespace, event)
        except (ApiError, OSError) as error:
            del self._told[key]
            _log.warning("event not written", subject=f"{subject.namespace}/{subject.name}", error=str(error))
