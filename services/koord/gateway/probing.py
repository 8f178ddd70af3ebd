"""Finding out whether the API server honours uid and resourceVersion of a Binding, on a pod that nobody runs.

The pod lies in koord's own namespace for some milliseconds, asks for nothing and names a scheduler that does not exist.
Every Binding is a dry run to a node that does not exist, either; a server so old that it knows no dry run would bind
the pod to nowhere, and it is deleted all the same. Versions are no proof (vendors patch), so it is tried.
"""

import asyncio
import time
from typing import Any, Final

import msgspec

from koord.contracts.asks import Preconditions
from koord.gateway.access import AccessError
from koord.gateway.api import PATCH_TYPES, Api, ApiUnavailable
from koord.gateway.guarantees import Guarantees
from koord.gateway.lanes import STATUS
from koord.gateway.leanclient import RequestFailed, Response
from koord.gateway.objects import read_status
from koord.kube.resources import PODS
from koord.telemetry.logs import get_logger

log = get_logger("koord.gateway.probing")

NAME: Final = "koord-binding-probe"
NOBODY: Final = "koord-nobody"
"""The scheduler and the node of the probe's pod."""
VERSION_S: Final = 30.0
"""How often the server is asked for its version: another one is tried anew."""
_PATIENCE_S: Final = 5.0
_FIRST_S: Final = 0.2
_AGAIN_S: Final = 10.0
_encode = msgspec.json.encode


class ProbeFailed(Exception):
    """There is no verdict; the text says why."""


class _Meta(msgspec.Struct, rename="camel"):
    uid: str = ""
    resource_version: str = ""


class _Made(msgspec.Struct):
    metadata: _Meta


class _Version(msgspec.Struct, rename="camel"):
    git_version: str = ""


_made = msgspec.json.Decoder(_Made)
_version = msgspec.json.Decoder(_Version)


async def watch(api: Api, namespace: str, guarantees: Guarantees) -> None:
    """Until cancelled: try, then again whenever the server names another version, or while there is no verdict."""
    tried_of: str | None = None
    since = time.monotonic()
    pause = _FIRST_S
    while True:
        try:
            server = await _server(api)
            if server != tried_of:
                verdict, why = await probe(api, namespace)
                guarantees.found(verdict, server, why)
                tried_of, pause = server, VERSION_S
        except (ProbeFailed, ApiUnavailable, RequestFailed, AccessError, msgspec.MsgspecError) as error:
            if tried_of is None and time.monotonic() - since > _PATIENCE_S:
                guarantees.found("unknown", guarantees.server, str(error))
                pause = min(_AGAIN_S, 2.0 * pause)
            elif tried_of is not None:
                log.info("the API server was not asked for its version", error=str(error))
        if tried_of is not None:
            since = time.monotonic()
        await asyncio.sleep(pause)


async def probe(api: Api, namespace: str) -> tuple[Preconditions, str]:
    """The verdict and what it rests on. ProbeFailed, ApiUnavailable, RequestFailed."""
    answer = await api.call("create", PODS.path(namespace), _encode(_pod(namespace)), lane=STATUS)
    if answer.status == 409:
        await _sweep(api, namespace)
    if answer.status != 201:
        raise ProbeFailed(f"create pod {namespace}/{NAME}: {_words(answer)}")
    made = _made.decode(answer.body).metadata
    try:
        return await _try(api, namespace, made)
    finally:
        await _delete(api, namespace, made.uid)


async def _try(api: Api, namespace: str, made: _Meta) -> tuple[Preconditions, str]:
    body = _encode({"metadata": {"uid": made.uid, "annotations": {"koord.sh/probe": "binding"}}})
    answer = await api.call("patch", PODS.path(namespace, NAME), body, PATCH_TYPES["merge"], lane=STATUS)
    if answer.status != 200:
        raise ProbeFailed(f"patch pod {namespace}/{NAME}: {_words(answer)}")
    now = _made.decode(answer.body).metadata
    for what, uid, version in (
        ("uid", "00000000-0000-0000-0000-000000000000", ""),
        ("resourceVersion", made.uid, made.resource_version),
    ):
        answer = await _bind(api, namespace, uid, version)
        if answer.status < 300:
            return "ignored", f"a Binding with another {what} was accepted"
        if answer.status != 409:
            raise ProbeFailed(f"bind pod {namespace}/{NAME} (dry run): {_words(answer)}")
    # What was refused is allowed with the right ones, so it was refused for the wrong ones.
    answer = await _bind(api, namespace, made.uid, now.resource_version)
    if answer.status >= 300:
        raise ProbeFailed(f"bind pod {namespace}/{NAME} (dry run): {_words(answer)}")
    return "honoured", "Bindings with another uid or resourceVersion were refused"


async def _bind(api: Api, namespace: str, uid: str, version: str) -> Response:
    metadata = {"name": NAME, "namespace": namespace, "uid": uid} | ({"resourceVersion": version} if version else {})
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": metadata,
        "target": {"apiVersion": "v1", "kind": "Node", "name": NOBODY},
    }
    path = f"{PODS.path(namespace, NAME, 'binding')}?dryRun=All"
    return await api.call("bind", path, _encode(body), lane=STATUS)


async def _delete(api: Api, namespace: str, uid: str = "") -> None:
    options: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
    if uid:
        options["preconditions"] = {"uid": uid}
    try:
        answer = await api.call("delete", PODS.path(namespace, NAME), _encode(options), lane=STATUS)
    except ApiUnavailable as error:
        log.warning("the probe's pod was not deleted, the next probe does it", error=str(error))
        return
    if answer.status not in (200, 202, 404, 409):
        log.warning("the probe's pod cannot be deleted", error=_words(answer))


async def _sweep(api: Api, namespace: str) -> None:
    """Delete what a gateway left that died; that of one that probes just now is gone in a moment."""
    await asyncio.sleep(1.0)
    before = await api.read(PODS, namespace, NAME, lane=STATUS)
    if before is not None:
        await asyncio.sleep(2.0)
        await _delete(api, namespace, before.uid)


async def _server(api: Api) -> str:
    answer = await api.call("get", "/version", lane=STATUS)
    if answer.status != 200:
        raise ProbeFailed(f"get /version: {_words(answer)}")
    try:
        return _version.decode(answer.body).git_version
    except msgspec.MsgspecError as error:
        raise ProbeFailed(f"get /version: {error}") from error


def _pod(namespace: str) -> dict[str, Any]:
    """Admitted also where pods are restricted (Pod Security Standards)."""
    security = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": NAME,
            "namespace": namespace,
            "labels": {"app.kubernetes.io/name": NAME, "app.kubernetes.io/part-of": "koord"},
        },
        "spec": {
            "schedulerName": NOBODY,
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 0,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65534,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [{"name": "none", "image": "none", "securityContext": security}],
        },
    }


def _words(answer: Response) -> str:
    return f"answer {answer.status} {read_status(answer.body).message}".rstrip()
