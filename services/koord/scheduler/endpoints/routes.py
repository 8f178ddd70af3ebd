"""Puts the scheduler's pages on its HTTP server (spec 10 section 2.11)."""

from collections.abc import Awaitable, Callable

from koord.contracts.asks import ExplainPod, PodExplanation
from koord.runtime.pages import Asked, Handler, Page, Pages, json_page, message_page
from koord.scheduler.endpoints.nodes import node
from koord.scheduler.endpoints.plugins import all_endpoints
from koord.scheduler.engine.placement import Engine
from koord.scheduler.framework.endpoints import Endpoint, EndpointError
from koord.telemetry.logs import Logger

ROOT = "/apis/v1"
NOT_LEADER = "the instance is not leader"


class Routes:
    """The pages below ``/apis/v1``. ``unfit`` answers why nothing can be said now: an empty text, or a message for
    503. ``created``: when the PodGroup of an id was created."""

    def __init__(
        self,
        pages: Pages,
        engine: Engine,
        explain: Callable[[ExplainPod], Awaitable[PodExplanation]],
        unfit: Callable[[], str],
        log: Logger,
        created: Callable[[str], str] = lambda id_: "",
    ) -> None:
        self._pages = pages
        self._explain = explain
        self._unfit = unfit
        self._log = log
        self._add("__services__", self._services)
        self._add("pods/{namespace}/{name}/explain", self._pod)
        self._add("nodes/{node}", self._of(lambda parameters: node(engine, parameters["node"])))
        for pattern, endpoint in all_endpoints(engine, created).items():
            self._add(f"plugins/{pattern}", self._of(endpoint))

    def _add(self, pattern: str, handler: Handler) -> None:
        async def guarded(asked: Asked) -> Page:
            unfit = self._unfit()
            return message_page(503, unfit) if unfit else await handler(asked)

        self._pages.add("GET", f"{ROOT}/{pattern}", guarded)

    def _of(self, endpoint: Endpoint) -> Handler:
        async def asked_for(asked: Asked) -> Page:
            try:
                return json_page(endpoint({**asked.query, **asked.names}))
            except EndpointError as error:
                return message_page(error.status, str(error))
            except Exception as error:
                self._log.exception("a page of a plugin failed")
                return message_page(500, f"{type(error).__name__}: {error}")

        return asked_for

    async def _services(self, asked: Asked) -> Page:
        paths = self._pages.paths
        ours = {method: [path for path in listed if path.startswith(ROOT)] for method, listed in paths.items()}
        return json_page({method: listed for method, listed in ours.items() if listed})

    async def _pod(self, asked: Asked) -> Page:
        found = await self._explain(ExplainPod(asked.names["namespace"], asked.names["name"]))
        return json_page(found, 404 if found.state == "unknown" else 200)
