"""Where the API server asks about foreign Bindings: HTTPS with a certificate of this process' own, and how it is told.

The leader registers itself, and the certificate with it, so there is no Secret and no Service to keep; whoever leads
next replaces both. It does so again and again: a registration that somebody deleted or changed would claim nothing.
Who binds waits two seconds at most for a koord that is away, and then goes on; or fails, where it is required.

Some namespaces are spared from failing: what koord itself needs to come back, and what nodes need to become ready, must
not wait for koord.
"""

import asyncio
import datetime
import ipaddress
import ssl
import tempfile
import time
from base64 import b64encode
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from aiohttp import web

from koord.gateway.access import AccessError, ApiAccess
from koord.gateway.api import PATCH_TYPES, Api, ApiUnavailable
from koord.gateway.foreign import ForeignBindings
from koord.gateway.leanclient import RequestFailed
from koord.gateway.objects import read_status
from koord.telemetry.logs import get_logger

log = get_logger("koord.gateway.foreign")

NAME: Final = "koord-foreign-bindings"
PATH: Final = "/bindings"
SPARED_PATH: Final = "/bindings/spared"
_CONFIGURATIONS: Final = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
_TIMEOUT_S: Final = 2
_WITHDRAW_S: Final = 2.0
_DAYS: Final = 365
_RENEW_S: Final = 180 * 86_400.0
_LEARNED_S: Final = 5.0
"""So long the API server may take to learn of a new certificate."""
AGAIN_S: Final = 15.0
_FAILED_AGAIN_S: Final = 2.0
_encode = msgspec.json.encode


def check_reachable(host: str, access: ApiAccess) -> None:
    """AccessError if ``host`` is this machine by a name that means another one to the API server."""
    if _is_loopback(host) and not _is_loopback(access.host):
        raise AccessError(
            f"gateway.webhook_host: {host} is not this process for the API server at {access.url}: "
            "give the address at which it reaches this process"
        )


async def withdraw_leftover(api: Api) -> None:
    """Delete the registration of a gateway that died, by one that asks for none: it would stop others for nothing."""
    try:
        answer = await api.call("delete", f"{_CONFIGURATIONS}/{NAME}")
    except (ApiUnavailable, RequestFailed, AccessError) as error:
        log.warning("not known whether a webhook is registered", error=str(error))
        return
    if answer.status == 200:
        log.warning("a webhook that an earlier gateway had left is withdrawn", name=NAME)
    elif answer.status not in (403, 404):
        log.warning("the webhook of an earlier gateway stays registered", error=read_status(answer.body).message)


class WebhookServer:
    """``await start()``; ``keep_registered`` and ``withdraw`` as the leader; ``await stop()``.

    ``host`` is the address at which the API server reaches this process, ``port`` 0 takes a free one. ``required``:
    without an answer nothing is bound, but in the namespaces ``spared``.
    """

    def __init__(
        self,
        api: Api,
        reviews: ForeignBindings,
        host: str,
        port: int,
        *,
        required: bool,
        spared: Sequence[str] = (),
    ) -> None:
        self._required = required
        self._spared = sorted(set(spared))
        self._api = api
        self._reviews = reviews
        self._host = host
        self._port = port
        application = web.Application(client_max_size=8 << 20)
        application.router.add_post(PATH, self._answer)
        application.router.add_post(SPARED_PATH, self._answer)
        self._runner = web.AppRunner(application, access_log=None, handle_signals=False)
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._ca = b""
        self._since_s = 0.0
        self._base = ""

    @property
    def url(self) -> str:
        """Where the API server asks; empty before the start."""
        return f"{self._base}{PATH}" if self._base else ""

    async def start(self) -> None:
        """Listen; OSError when the port is taken."""
        self._ca, key = _certificate(self._host)
        _load(self._context, self._ca, key)
        self._since_s = time.monotonic()
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port, ssl_context=self._context)
        await site.start()
        self._base = f"https://{_in_url(self._host)}:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        """Close the server."""
        await self._runner.cleanup()
        await self._reviews.close()

    async def keep_registered(self) -> None:
        """Until cancelled: register, and see to it that it stays so."""
        told = ""
        while True:
            pause = AGAIN_S
            try:
                if time.monotonic() - self._since_s > _RENEW_S:
                    await self.renew_certificate()
                await self.register()
                if not told:
                    told = self.url
                    log.info("foreign Bindings are claimed", url=told)
            except (ApiUnavailable, RequestFailed, AccessError, msgspec.MsgspecError) as error:
                log.warning("foreign Bindings may not be claimed", error=str(error))
                pause = _FAILED_AGAIN_S
            await asyncio.sleep(pause)

    async def register(self) -> None:
        """Have the API server ask here about every Binding that is not made by this gateway's user."""
        configuration = _encode(self._configuration(await self._user(), self._ca))
        answer = await self._api.call("patch", f"{_CONFIGURATIONS}/{NAME}", configuration, PATCH_TYPES["merge"])
        if answer.status == 404:
            answer = await self._api.call("create", _CONFIGURATIONS, configuration)
        if answer.status not in (200, 201):
            raise ApiUnavailable(f"register {NAME}: answer {answer.status} {read_status(answer.body).message}")

    async def renew_certificate(self) -> None:
        """Another certificate for what is asked from now on; both are trusted until all API servers know it."""
        ca, key = _certificate(self._host)
        old, self._ca = self._ca, ca + self._ca
        try:
            await self.register()
            await asyncio.sleep(_LEARNED_S)
        except BaseException:
            self._ca = old
            raise
        _load(self._context, ca, key)
        self._ca, self._since_s = ca, time.monotonic()

    async def withdraw(self) -> None:
        """Have it ask nobody, unless somebody else is registered by now; the next leader registers itself again."""
        path = f"{_CONFIGURATIONS}/{NAME}"
        try:
            async with asyncio.timeout(_WITHDRAW_S):
                answer = await self._api.call("get", path)
                if answer.status == 200:
                    found = _registered.decode(answer.body)
                    if self.url not in [hook.client_config.url for hook in found.webhooks]:
                        return
                    options = {"preconditions": {"resourceVersion": found.metadata.resource_version}}
                    answer = await self._api.call("delete", path, _encode(options))
        except (ApiUnavailable, RequestFailed, AccessError, msgspec.MsgspecError, TimeoutError) as error:
            log.warning("the webhook stays registered", error=str(error) or "no answer in time")
            return
        if answer.status not in (200, 404, 409):
            log.warning("the webhook stays registered", error=read_status(answer.body).message)

    async def _user(self) -> str:
        """Who this gateway is to the API server."""
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        answer = await self._api.call("create", "/apis/authentication.k8s.io/v1/selfsubjectreviews", _encode(review))
        if answer.status != 201:
            raise ApiUnavailable(f"SelfSubjectReview: answer {answer.status} {read_status(answer.body).message}")
        return _reviewed.decode(answer.body).status.user_info.username

    def _configuration(self, user: str, ca: bytes) -> dict[str, Any]:
        # The gateway has claimed what it binds; to ask it would cost each of its Bindings a round trip.
        others = {"name": "not-koord", "expression": f"request.userInfo.username != {_encode(user).decode()}"}
        rule = {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["CREATE"],
            "resources": ["pods/binding", "bindings"],
            "scope": "Namespaced",
        }

        def webhook(name: str, path: str, policy: str, names: str) -> dict[str, Any]:
            key = "kubernetes.io/metadata.name"
            chosen = [{"key": key, "operator": names, "values": self._spared}] if names else []
            return {
                "name": name,
                "clientConfig": {"url": self._base + path, "caBundle": b64encode(ca).decode()},
                "rules": [rule],
                "matchConditions": [others],
                "namespaceSelector": {"matchExpressions": chosen} if chosen else {},
                "failurePolicy": policy,
                "sideEffects": "NoneOnDryRun",
                "timeoutSeconds": _TIMEOUT_S,
                "admissionReviewVersions": ["v1"],
            }

        if not self._required:
            webhooks = [webhook("foreign-bindings.koord.sh", PATH, "Ignore", "")]
        elif not self._spared:
            webhooks = [webhook("foreign-bindings.koord.sh", PATH, "Fail", "")]
        else:
            webhooks = [
                webhook("foreign-bindings.koord.sh", PATH, "Fail", "NotIn"),
                webhook("spared-bindings.koord.sh", SPARED_PATH, "Ignore", "In"),
            ]
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": NAME, "labels": {"app.kubernetes.io/part-of": "koord"}},
            "webhooks": webhooks,
        }

    async def _answer(self, request: web.Request) -> web.Response:
        required = self._required and request.path == PATH
        try:
            answer = await self._reviews.answer(await request.read(), required=required)
        except ValueError as error:
            return web.Response(status=400, text=f"{error}\n")
        return web.Response(body=answer, content_type="application/json")


class _ClientConfig(msgspec.Struct):
    url: str = ""


class _Webhook(msgspec.Struct, rename="camel"):
    client_config: _ClientConfig


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Configuration(msgspec.Struct):
    metadata: _Meta
    webhooks: list[_Webhook] = []


class _UserInfo(msgspec.Struct):
    username: str


class _ReviewStatus(msgspec.Struct, rename="camel"):
    user_info: _UserInfo


class _SelfReview(msgspec.Struct):
    status: _ReviewStatus


_registered = msgspec.json.Decoder(_Configuration)
_reviewed = msgspec.json.Decoder(_SelfReview)


def _certificate(host: str) -> tuple[bytes, bytes]:
    """A self-signed certificate for one address, which is its own authority, and its key; both as PEM."""
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
    return pem, secret


def _load(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    # Python reads keys from files only; this one is its owner's alone, and gone when it was read.
    with tempfile.NamedTemporaryFile(prefix="koord-webhook-") as file:
        file.write(key + certificate)
        file.flush()
        context.load_cert_chain(file.name)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
