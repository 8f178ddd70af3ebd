"""Requests to the API server as decisions need them: retried while that is safe, counted, told apart by outcome."""

import asyncio
import random
import time
from typing import Literal

from prometheus_client import Counter

from koord.gateway import metrics
from koord.gateway.access import AccessError, ApiAccess
from koord.gateway.lanes import EVENT, LANE_NAMES
from koord.gateway.leanclient import JSON, LeanClient, NotSent, OutcomeUnknown, Response
from koord.gateway.objects import Brief, ObjectError, read_object
from koord.kube.resources import PODS, Resource

Verb = Literal["get", "create", "update", "patch", "delete", "bind", "evict"]

PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
_METHODS: dict[Verb, str] = {
    "get": "GET",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
    "bind": "POST",
    "evict": "POST",
}


class ApiUnavailable(Exception):
    """No final answer although it was tried for the whole patience; the decision goes back to the queue.

    ``status`` is that of the last answer, 0 if there was none.
    """

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


def transient(status: int) -> bool:
    """Whether the same request may succeed later: too many requests, or the server's own trouble."""
    return status == 429 or status >= 500


class Api:
    """The lean client with metrics, renewal of credentials and retries. ``patience_s`` bounds :meth:`call`."""

    def __init__(self, client: LeanClient, access: ApiAccess, *, patience_s: float = 20.0) -> None:
        self._client = client
        self._access = access
        self._patience_s = patience_s
        self._counters: dict[tuple[str, int, int], Counter] = {}

    async def once(
        self, verb: Verb, path: str, body: bytes = b"", content_type: str = JSON, *, lane: int = 0
    ) -> Response:
        """One request, not repeated (but for a 401 after renewing credentials). Raises NotSent or OutcomeUnknown."""
        rank = min(lane, EVENT)
        try:
            answer = await self._client.request(_METHODS[verb], path, body, content_type, lane=rank)
            if answer.status == 401 and self._access.renewable and await self._access.renew():
                answer = await self._client.request(_METHODS[verb], path, body, content_type, lane=rank)
        except NotSent:
            self._count(verb, 0, lane)
            raise
        except AccessError as error:
            # Nobody let it in, and there are no other credentials just now: as if it had not been sent.
            self._count(verb, 401, lane)
            raise NotSent(f"401, and the credentials cannot be renewed: {error}") from error
        except OutcomeUnknown:
            self._count(verb, -1, lane)
            raise
        self._count(verb, answer.status, lane)
        return answer

    async def call(
        self,
        verb: Verb,
        path: str,
        body: bytes = b"",
        content_type: str = JSON,
        *,
        lane: int = 0,
        unsure: list[str] | None = None,
    ) -> Response:
        """A final answer to a request that may be repeated without harm; ApiUnavailable if there was none in time.

        ``unsure`` collects what went wrong with requests that may nevertheless have been, or still be, executed.
        """
        deadline = time.monotonic() + self._patience_s
        delay = 0.05
        while True:
            wait, status = 0.0, 0
            try:
                answer = await self.once(verb, path, body, content_type, lane=lane)
                if not transient(answer.status):
                    return answer
                wait, status = answer.retry_after, answer.status
                trouble = f"answer {answer.status}"
                if unsure is not None and answer.status >= 500:
                    unsure.append(trouble)
            except NotSent as error:
                trouble = str(error)
            except OutcomeUnknown as error:
                trouble = str(error)
                if unsure is not None:
                    unsure.append(trouble)
            delay = min(3.0, delay * 2.0)
            wait = max(wait, delay * random.uniform(0.5, 1.0))
            if time.monotonic() + wait > deadline:
                raise ApiUnavailable(f"{verb} {path}: {trouble}", status)
            await asyncio.sleep(wait)

    async def read(self, resource: Resource, namespace: str, name: str, *, lane: int = 0) -> Brief | None:
        """The object as it is now; None if there is none."""
        path = resource.path(namespace, name)
        answer = await self.call("get", path, lane=lane)
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise ApiUnavailable(f"get {path}: answer {answer.status}")
        try:
            return read_object(
                answer.body,
                kind=resource.kind,
                api_version=resource.api_version,
                pod=resource.token == PODS.token,
            )
        except ObjectError as error:
            raise ApiUnavailable(f"get {path}: {error}") from error

    def _count(self, verb: str, status: int, lane: int) -> None:
        key = (verb, status, lane)
        made = self._counters.get(key)
        if made is None:
            code = {0: "not sent", -1: "unknown"}.get(status, str(status))
            made = self._counters[key] = metrics.REQUESTS.labels(verb, code, LANE_NAMES[lane])
        made.inc()
