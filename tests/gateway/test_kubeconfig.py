"""Kubeconfig files as users have them: tokens, exec plugins, certificates; what is wrong is named."""

import asyncio
import json
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from koord.gateway.access import AccessError, ApiAccess
from koord.gateway.api import Api, ApiUnavailable
from koord.gateway.kubeconfig import load_access
from koord.gateway.leanclient import LeanClient, NotSent
from tests.gateway.conftest import ApiProcess
from tests.gateway.test_leanclient import OK, Server, server  # noqa: F401 - a fixture


def write(folder: Path, user: dict[str, Any], cluster: dict[str, Any] | None = None) -> str:
    path = folder / "config"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:6443/prefix", **(cluster or {})}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(content))
    return str(path)


async def test_a_token_and_an_address_with_a_path(tmp_path: Path) -> None:
    access = await load_access(write(tmp_path, {"token": "abc"}))
    assert (access.url, access.authorization) == ("http://127.0.0.1:6443/prefix", "Bearer abc")


async def test_an_exec_plugin_is_asked_again(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin"
    token = tmp_path / "token"
    token.write_text("one")
    credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
    text = json.dumps({**credential, "status": {"token": "TOKEN"}}).replace("TOKEN", "'$(cat " + str(token) + ")'")
    plugin.write_text(f"#!/bin/sh\necho '{text}'\n")
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    exec_ = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin), "interactiveMode": "Never"}
    access = await load_access(write(tmp_path, {"exec": exec_}))
    assert access.authorization == "Bearer one"
    assert not await access.renew()
    token.write_text("two")
    assert await access.renew()
    assert access.authorization == "Bearer two"


async def test_certificates_and_a_server_name_are_used(api_process: ApiProcess, tmp_path: Path) -> None:
    real = yaml.safe_load(await asyncio.to_thread(Path(api_process.kubeconfig).read_text))
    cluster = real["clusters"][0]["cluster"]
    access = await load_access(write(tmp_path, real["users"][0]["user"], {**cluster, "tls-server-name": "localhost"}))
    client = LeanClient(access, timeout_s=10)
    answer = await Api(client, access).call("get", "/api/v1/namespaces/default")
    assert (access.server_name, answer.status) == ("localhost", 200)
    await client.close()


@pytest.mark.parametrize(
    ("user", "cluster", "text"),
    [
        ({"token": "a"}, {"proxy-url": "http://proxy"}, "proxy-url is not supported"),
        ({"token": "a"}, {"server": "https://h", "certificate-authority-data": "bm8="}, "cannot be read"),
        ({"token": "a"}, {"server": "nowhere"}, "must be http"),
    ],
)
async def test_what_cannot_be_used_is_named(
    tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any], text: str
) -> None:
    with pytest.raises(AccessError, match=text):
        await load_access(write(tmp_path, user, cluster))


async def test_a_file_that_is_no_kubeconfig_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("just text")
    with pytest.raises(AccessError, match=str(path)):
        await load_access(str(path))


async def test_a_401_renews_the_credentials_and_asks_once_more(server: Server) -> None:  # noqa: F811
    async def renew() -> str:
        server.handler = server.always(OK)
        return "Bearer new"

    server.handler = server.always(
        b"HTTP/1.1 401 Unauthorized\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", close=True
    )
    access = ApiAccess(f"http://127.0.0.1:{server.port}", authorization="Bearer old", renew=renew)
    client = LeanClient(access, connections=1)
    assert (await Api(client, access).once("get", "/")).status == 200
    assert b"Bearer new" in server.requests[-1]
    await client.close()


async def test_a_401_with_credentials_that_cannot_be_renewed_is_tried_again_later(server: Server) -> None:  # noqa: F811
    """Whoever asked goes on as with a server that is away: no failing plugin may end the service."""
    refused = b"HTTP/1.1 401 Unauthorized\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    tries = 0

    async def renew() -> str:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise AccessError("exec plugin: exit code 1")
        server.handler = server.always(OK)
        return "Bearer new"

    server.handler = server.always(refused, close=True)
    access = ApiAccess(f"http://127.0.0.1:{server.port}", authorization="Bearer old", renew=renew)
    client = LeanClient(access, connections=1)
    try:
        with pytest.raises(NotSent, match="credentials cannot be renewed: exec plugin"):
            await Api(client, access).once("get", "/")
        assert (await Api(client, access).call("get", "/")).status == 200
    finally:
        await client.close()
    server.handler = server.always(refused, close=True)
    tries = -1000
    client = LeanClient(access, connections=1)
    try:
        with pytest.raises(ApiUnavailable, match="credentials cannot be renewed"):
            await Api(client, access, patience_s=0.2).call("get", "/")
    finally:
        await client.close()
