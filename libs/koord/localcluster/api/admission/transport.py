"""Carrying questions to webhooks: HTTPS with the authority that the configuration names, bounded in time and size.

Every destination has connections of its own, so that one webhook that hangs leaves the others theirs.
"""

import asyncio
import base64
import binascii
import math
import ssl
from collections import OrderedDict

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult

from koord.localcluster.api.admission.definitions import ClientConfig
from koord.localcluster.api.admission.failures import CallFailed
from koord.localcluster.api.admission.services import Services, Unreachable

MAX_ANSWER = 16 << 20
_CONNECTIONS = 256
_KEPT = 128
_IDLE_SECONDS = 60.0
_BODY_SHOWN = 2_048
_STATUS_WORDS = {
    401: "the server has asked for the client to provide credentials",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    406: "the server was unable to respond with a content type that the client supports",
    413: "the request entity is too large",
    415: "the server was not able to understand the content type of the request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be processing the request",
}


class _Fixed(AbstractResolver):
    """Answers every name with one address, so that a Service's name is what the certificate is checked against."""

    def __init__(self, services: Services, config: ClientConfig) -> None:
        self._services = services
        self._config = config

    async def resolve(self, host: str, port: int = 0, family: int = 0) -> list[ResolveResult]:
        assert self._config.service is not None
        target = self._services.address(self._config.service)
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(target.host, target.port, type=1)
        return [
            ResolveResult(hostname=host, host=str(address[0]), port=target.port, family=kind, proto=0, flags=0)
            for kind, _, _, _, address in found
        ]

    async def close(self) -> None:
        """Nothing is held."""


class Transport:
    """Posts reviews to webhooks. `aclose` ends its connections."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._sessions: OrderedDict[ClientConfig, aiohttp.ClientSession] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    async def post(self, config: ClientConfig, body: bytes, seconds: float) -> bytes:
        """The body of a webhook's answer; `CallFailed` when there is none within `seconds`."""
        url = self._url(config)
        shown = f"{url}?timeout={max(1, math.ceil(seconds - 0.001))}s"
        try:
            async with asyncio.timeout(seconds):
                return await self._post(self._session(config), shown, body)
        except TimeoutError:
            raise CallFailed(f'failed to call webhook: Post "{shown}": context deadline exceeded') from None
        except Unreachable as error:
            raise CallFailed(f'failed to call webhook: Post "{shown}": {error}') from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise CallFailed(f'failed to call webhook: Post "{shown}": {_words(error)}') from None

    @staticmethod
    async def _post(session: aiohttp.ClientSession, url: str, body: bytes) -> bytes:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        async with session.post(url, data=body, headers=headers, max_redirects=10) as response:
            answer = bytearray()
            async for part in response.content.iter_chunked(1 << 18):
                answer += part
                if len(answer) > MAX_ANSWER:
                    response.close()
                    raise CallFailed(f"failed to call webhook: the answer is larger than {MAX_ANSWER} bytes")
            if not 200 <= response.status < 300:
                raise CallFailed(f"failed to call webhook: {_refusal(response, bytes(answer))}")
            if not answer:
                kind = response.headers.get("Content-Type", "application/json")
                raise CallFailed(
                    "failed to call webhook: 0-length response with status code:"
                    f" {response.status} and content type: {kind}"
                )
            return bytes(answer)

    @staticmethod
    def _url(config: ClientConfig) -> str:
        if config.service is None:
            return config.url or ""
        service = config.service
        path = service.path or "/"
        return f"https://{service.name}.{service.namespace}.svc:{service.port}{path}"

    def _session(self, config: ClientConfig) -> aiohttp.ClientSession:
        session = self._sessions.get(config)
        if session is not None:
            self._sessions.move_to_end(config)
            return session
        resolver = _Fixed(self._services, config) if config.service is not None else None
        connector = aiohttp.TCPConnector(
            ssl=_tls(config.ca_bundle),
            resolver=resolver,
            use_dns_cache=resolver is None,
            limit=_CONNECTIONS,
            keepalive_timeout=_IDLE_SECONDS,
        )
        session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None))
        self._sessions[config] = session
        if len(self._sessions) > _KEPT:
            _, oldest = self._sessions.popitem(last=False)
            task = asyncio.create_task(oldest.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        return session

    async def aclose(self) -> None:
        """Close all connections."""
        sessions = list(self._sessions.values())
        self._sessions.clear()
        for session in sessions:
            await session.close()


def _tls(ca_bundle: str | None) -> ssl.SSLContext:
    """A client's context that trusts the bundle, or what the machine trusts when there is none."""
    if not ca_bundle:
        return ssl.create_default_context()
    try:
        pem = base64.b64decode(ca_bundle).decode()
        return ssl.create_default_context(cadata=pem)
    except (binascii.Error, UnicodeDecodeError, ssl.SSLError, ValueError) as error:
        raise CallFailed(f"could not get REST client: unable to load root certificates: {error}") from None


def _words(error: BaseException) -> str:
    """An error of the connection in the words of a Go client, as far as they are the same thing."""
    if isinstance(error, aiohttp.TooManyRedirects):
        return "stopped after 10 redirects"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"tls: failed to verify certificate: x509: {_certificate(error.certificate_error)}"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"dial tcp: lookup {error.host}: no such host"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "EOF"
    if isinstance(error, aiohttp.ClientConnectorError):
        if isinstance(error.os_error, ConnectionRefusedError):
            return f"dial tcp {error.host}:{error.port}: connect: connection refused"
        if isinstance(error.os_error, ConnectionResetError):
            return "EOF"  # it does not speak TLS
        reason = error.os_error.strerror or str(error.os_error) or type(error.os_error).__name__
        return f"dial tcp {error.host}:{error.port}: {reason}"
    return str(error) or type(error).__name__


def _certificate(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in (18, 19, 20, 21):
            return "certificate signed by unknown authority"
        if error.verify_code in (62, 64):
            return f"certificate is not valid for this host: {error.verify_message}"
        if error.verify_code == 10:
            return "certificate has expired or is not yet valid"
        return str(error.verify_message)
    return str(error)


def _refusal(response: aiohttp.ClientResponse, body: bytes) -> str:
    """What a status that is no success says."""
    if message := _status_message(body):
        return message
    if response.status in _STATUS_WORDS:
        return _STATUS_WORDS[response.status]
    text = ""
    if response.content_type.startswith("text/"):
        text = body[:_BODY_SHOWN].decode(errors="replace").strip()
    if response.status >= 500:
        shown = msgspec.json.encode(text or "unknown").decode()
        return f"an error on the server ({shown}) has prevented the request from succeeding"
    return text or f"the server responded with the status code {response.status}"


class _Status(msgspec.Struct):
    kind: str = ""
    message: str = ""


def _status_message(body: bytes) -> str:
    """The message of a Kubernetes Status, "" when the body is none."""
    try:
        status = msgspec.json.decode(body, type=_Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    return status.message if status.kind == "Status" else ""
