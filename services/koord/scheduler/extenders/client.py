"""One extender over HTTP: its connections, its time-out, and what is said when it does not answer as it should."""

import asyncio
import contextlib
import time

import aiohttp

from koord.scheduler.config.extenders import ExtenderConfig
from koord.scheduler.extenders import metrics, tls
from koord.telemetry.context import HEADER, TraceContext
from koord.telemetry.records import Attributes
from koord.telemetry.spans import Spans

LEAST_ANSWER = 16 << 20
"""Bytes that an answer may have, whatever the question had; else twice as many as the question."""
CONNECTIONS = 64
IDLE_S = 60.0


class ExtenderError(Exception):
    """An extender did not do what it was asked; the text names it by its URL.

    ``sent``: it may have got the question, and may have acted on it; False also where it said that it did not.
    """

    def __init__(self, text: str, *, sent: bool = True) -> None:
        super().__init__(text)
        self.sent = sent


class ExtenderClient:
    """Asks one extender. Made inside the event loop; ConfigError: its TLS is of no use."""

    def __init__(self, config: ExtenderConfig, spans: Spans) -> None:
        self.config = config
        self._spans = spans
        self._ssl = tls.context_of(config)
        self._server_name = config.tls.server_name if config.tls is not None else ""
        self._session: aiohttp.ClientSession | None = None

    @property
    def name(self) -> str:
        """Its URL, as upstream names extenders."""
        return self.config.url_prefix

    async def ask(self, verb: str, body: bytes, trace: TraceContext, *, once: bool = False) -> bytes:
        """The body of its answer. ExtenderError: none in time, none at all, or not a 200.

        ``trace``: the span below which the call is recorded; it travels as ``traceparent``. Where a kept connection
        turns out to be closed it is asked again over a new one, unless it must hear of it ``once``.
        """
        url = f"{self.name.rstrip('/')}/{verb}"
        context = self._spans.reserve(trace)
        start_ns, start = time.time_ns(), time.perf_counter()
        failure: ExtenderError | None = None
        try:
            async with asyncio.timeout(self.config.http_timeout):
                try:
                    answer = await self._post(url, verb, body, context)
                except (aiohttp.ServerDisconnectedError, ConnectionResetError):
                    if once:
                        raise
                    answer = await self._post(url, verb, body, context)
        except TimeoutError:
            failure = ExtenderError(f'Post "{url}": no answer within {self.config.http_timeout:g} s')
        except aiohttp.ClientConnectorError as error:
            failure = ExtenderError(f'Post "{url}": {_words(error)}', sent=False)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            failure = ExtenderError(f'Post "{url}": {_words(error)}')
        except ExtenderError as error:
            failure = error
        finally:
            took = time.perf_counter() - start
            metrics.seconds.labels(self.name, verb).observe(took)
        text = None if failure is None else str(failure)
        attributes: Attributes = {"extender": self.name, "verb": verb, "bytes": len(body)}
        self._spans.record(
            "scheduler.extender",
            parent=trace,
            context=context,
            start_ns=start_ns,
            end_ns=time.time_ns(),
            attributes=attributes,
            error=text,
        )
        metrics.calls.labels(self.name, verb, "ok" if failure is None else "error").inc()
        if failure is not None:
            raise failure
        return answer

    async def _post(self, url: str, verb: str, body: bytes, trace: TraceContext) -> bytes:
        headers = {"Content-Type": "application/json", HEADER: trace.traceparent}
        server_name = self._server_name or None
        limit = max(LEAST_ANSWER, 2 * len(body))
        async with self._connected().post(
            url, data=body, headers=headers, ssl=self._ssl, server_hostname=server_name
        ) as response:
            if response.status != 200:
                raise ExtenderError(f"failed {verb} with extender at URL {url}, code {response.status}")
            answer = bytearray()
            async for part in response.content.iter_chunked(1 << 18):
                answer += part
                if len(answer) > limit:
                    response.close()
                    raise ExtenderError(f'Post "{url}": the answer has more than {limit} bytes')
        return bytes(answer)

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=CONNECTIONS, keepalive_timeout=IDLE_S)
            timeout = aiohttp.ClientTimeout(total=None)
            self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, trust_env=True)
        return self._session

    async def close(self) -> None:
        """End its connections."""
        session, self._session = self._session, None
        if session is not None:
            with contextlib.suppress(aiohttp.ClientError, OSError):
                await session.close()


def _words(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
