"""An API server of before Kubernetes 1.23, as far as a gateway meets it: it does not read a Binding's preconditions.

In the place of the gateway's lean client, before the real embedded server.
"""

import asyncio
import json
from typing import Any

from koord.gateway.leanclient import LeanClient, Response


class OldServer:
    """Takes ``ignored`` out of what a Binding's metadata says; ``version`` is what it calls itself, if anything."""

    def __init__(self, client: LeanClient, ignored: tuple[str, ...] = ("uid", "resourceVersion")) -> None:
        self._client = client
        self.ignored = ignored
        self.version = ""
        self.requests: list[tuple[str, str]] = []
        self.pods: list[dict[str, Any]] = []
        """Those that were created."""

    def request(
        self, method: str, path: str, body: bytes = b"", content_type: str = "application/json", *, lane: int = 0
    ) -> "asyncio.Future[Response]":
        return asyncio.ensure_future(self._answer(method, path, body, content_type, lane))

    async def _answer(self, method: str, path: str, body: bytes, content_type: str, lane: int) -> Response:
        self.requests.append((method, path))
        if method == "POST" and path.endswith("/pods"):
            self.pods.append(json.loads(body))
        if path == "/version" and self.version:
            return Response(200, json.dumps({"gitVersion": self.version}).encode(), 0.0)
        if path.partition("?")[0].endswith("/binding"):
            binding = json.loads(body)
            for field in self.ignored:
                binding["metadata"].pop(field, None)
            body = json.dumps(binding).encode()
        return await self._client.request(method, path, body, content_type, lane=lane)
