"""Kubeconfig files and in-cluster credentials, read by kubernetes_asyncio (its only use in koord).

The library knows every way in which a kubeconfig can name credentials (files, inline data, exec plugins, OIDC); its
generated client is not used. Importing it takes about two seconds, so it happens inside the functions.
"""

import asyncio
import ssl
from pathlib import Path
from typing import Any

from koord.gateway.access import AccessError, ApiAccess

_IN_CLUSTER = "in-cluster"


async def load_access(kubeconfig: str) -> ApiAccess:
    """Access by the kubeconfig file, or by the pod's service account if ``kubeconfig`` is empty.

    AccessError names the file and what is wrong with it.
    """
    configuration = await asyncio.to_thread(_empty_configuration)
    source = kubeconfig or _IN_CLUSTER
    await _load(source, configuration)
    if getattr(configuration, "proxy", None):
        raise AccessError(f"{source}: clusters[].cluster.proxy-url is not supported")

    async def renew() -> str:
        fresh = _empty_configuration()
        await _load(source, fresh)
        return _authorization(fresh)

    try:
        tls = _tls(configuration) if str(configuration.host).startswith("https:") else None
    except (OSError, ssl.SSLError) as error:
        raise AccessError(f"{source}: certificate or key cannot be read: {error}") from error
    return ApiAccess(
        str(configuration.host),
        ssl=tls,
        server_name=configuration.tls_server_name or "",
        authorization=_authorization(configuration),
        renew=renew,
    )


def _empty_configuration() -> Any:
    from kubernetes_asyncio.client import Configuration

    return Configuration()


async def _load(source: str, configuration: Any) -> None:
    from kubernetes_asyncio import config

    try:
        if source == _IN_CLUSTER:
            config.load_incluster_config(configuration)  # type: ignore[no-untyped-call]
        elif not Path(source).is_file():  # noqa: ASYNC240 - once, before anything runs
            raise AccessError(f"{source}: no such file (setting kubeconfig)")
        else:
            await config.load_kube_config(config_file=source, client_configuration=configuration, persist_config=False)
    except AccessError:
        raise
    except Exception as error:  # the library raises whatever its parsers do
        raise AccessError(f"{source}: {error}") from error


def _authorization(configuration: Any) -> str:
    return str(configuration.api_key.get("BearerToken") or "")


def _tls(configuration: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert or None)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file or None)
    return context
