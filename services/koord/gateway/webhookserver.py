"""Where the API server asks about foreign Bindings: HTTPS with a certificate of this process' own, and how it is told.

The leader registers itself, and the certificate with it, so there is no Secret and no Service to keep; whoever leads
next replaces both. Who binds waits two seconds at most for a koord that is away, and then goes on; or fails, where it
is required.
"""

import asyncio
import datetime
import ipaddress
import ssl
import tempfile
from base64 import b64encode
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from aiohttp import web

from koord.gateway.api import PATCH_TYPES, Api, ApiUnavailable
from koord.gateway.foreign import ForeignBindings
from koord.gateway.leanclient import RequestFailed
from koord.gateway.objects import read_status
from koord.telemetry.logs import get_logger

log = get_logger("koord.gateway.foreign")

NAME: Final = "koord-foreign-bindings"
PATH: Final = "/bindings"
_CONFIGURATIONS: Final = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
_TIMEOUT_S: Final = 2
_WITHDRAW_S: Final = 2.0
_DAYS: Final = 365
_encode = msgspec.json.encode


class WebhookServer:
    """``await start()``; ``register`` and ``withdraw`` as the leader; ``await stop()``.

    ``host`` is the address at which the API server reaches this process, ``port`` 0 takes a free one.
    """

    def __init__(
        self,
        api: Api,
        reviews: ForeignBindings,
        host: str,
        port: int,
        *,
        required: bool,
        on_stop: Callable[[], Awaitable[None]],
    ) -> None:
        self._required = required
        self._on_stop = on_stop
        self._api = api
        self._reviews = reviews
        self._host = host
        self._port = port
        application = web.Application(client_max_size=8 << 20)
        application.router.add_post(PATH, self._answer)
        self._runner = web.AppRunner(application, access_log=None, handle_signals=False)
        self._ca = b""
        self.url = ""

    async def start(self) -> None:
        """Listen; OSError when the port is taken."""
        context, self._ca = _certificate(self._host)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port, ssl_context=context)
        await site.start()
        self.url = f"https://{_in_url(self._host)}:{self._runner.addresses[0][1]}{PATH}"

    async def stop(self) -> None:
        """Close the server."""
        await self._runner.cleanup()
        await self._on_stop()

    async def register(self) -> None:
        """Have the API server ask here about every Binding that is not made by this gateway's user."""
        user = await self._user()
        answer = await self._api.call("create", _CONFIGURATIONS, _encode(self._configuration(user)))
        if answer.status == 409:
            answer = await self._api.call(
                "patch", f"{_CONFIGURATIONS}/{NAME}", _encode(self._configuration(user)), PATCH_TYPES["merge"]
            )
        if answer.status not in (200, 201):
            raise ApiUnavailable(f"register {NAME}: answer {answer.status} {read_status(answer.body).message}")
        log.info("foreign Bindings are claimed", url=self.url, but=user)

    async def withdraw(self) -> None:
        """Have it ask nobody; the next leader registers itself again."""
        try:
            async with asyncio.timeout(_WITHDRAW_S):
                answer = await self._api.call("delete", f"{_CONFIGURATIONS}/{NAME}")
        except (ApiUnavailable, RequestFailed, TimeoutError) as error:
            log.warning("the webhook stays registered", error=str(error) or "no answer in time")
            return
        if answer.status not in (200, 404):
            log.warning("the webhook stays registered", error=read_status(answer.body).message)

    async def _user(self) -> str:
        """Who this gateway is to the API server."""
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        answer = await self._api.call("create", "/apis/authentication.k8s.io/v1/selfsubjectreviews", _encode(review))
        if answer.status != 201:
            raise ApiUnavailable(f"SelfSubjectReview: answer {answer.status} {read_status(answer.body).message}")
        found: dict[str, Any] = msgspec.json.decode(answer.body)
        return str(found["status"]["userInfo"]["username"])

    def _configuration(self, user: str) -> dict[str, Any]:
        # The gateway has claimed what it binds; to ask it would cost each of its Bindings a round trip.
        others = {"name": "not-koord", "expression": f"request.userInfo.username != {_encode(user).decode()}"}
        rule = {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["CREATE"],
            "resources": ["pods/binding"],
            "scope": "Namespaced",
        }
        webhook = {
            "name": "foreign-bindings.koord.sh",
            "clientConfig": {"url": self.url, "caBundle": b64encode(self._ca).decode()},
            "rules": [rule],
            "matchConditions": [others],
            "failurePolicy": "Fail" if self._required else "Ignore",
            "sideEffects": "NoneOnDryRun",
            "timeoutSeconds": _TIMEOUT_S,
            "admissionReviewVersions": ["v1"],
        }
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": NAME, "labels": {"app.kubernetes.io/part-of": "koord"}},
            "webhooks": [webhook],
        }

    async def _answer(self, request: web.Request) -> web.Response:
        try:
            return web.Response(body=await self._reviews.answer(await request.read()), content_type="application/json")
        except ValueError as error:
            return web.Response(status=400, text=f"{error}\n")


def _certificate(host: str) -> tuple[ssl.SSLContext, bytes]:
    """A self-signed certificate for one address, and itself as the authority. Its key is on disk for a moment only."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "koord-gateway")])
    try:
        address: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        address = x509.DNSName(host)
    begin = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=5)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + datetime.timedelta(days=_DAYS))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    # Python reads keys from files only; this one is its owner's alone, and gone when it was read.
    with tempfile.NamedTemporaryFile(prefix="koord-webhook-") as file:
        file.write(secret + pem)
        file.flush()
        context.load_cert_chain(file.name)
    return context, pem


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
