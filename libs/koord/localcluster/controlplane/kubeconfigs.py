"""Kubeconfig files: the address of a server, whom to trust, who one is. Keys inside, so readable by the owner only."""

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from koord.localcluster.api.privatefiles import write_private
from koord.localcluster.controlplane.authority import KeyPair


def certificate_user(keys: KeyPair) -> dict[str, Any]:
    """The `user` part for a client certificate, with the data inside so that the file can be moved."""
    return {
        "client-certificate-data": base64.b64encode(keys.certificate.read_bytes()).decode(),
        "client-key-data": base64.b64encode(keys.key.read_bytes()).decode(),
    }


def impersonation(user: dict[str, Any], name: str, groups: Sequence[str]) -> dict[str, Any]:
    """The `user` part of somebody who acts as another user."""
    return {**user, "as": name, "as-groups": list(groups)}


def write_kubeconfig(path: Path, url: str, ca: Path, user: dict[str, Any]) -> Path:
    """Write a kubeconfig with one context."""
    cluster = {"server": url, "certificate-authority-data": base64.b64encode(ca.read_bytes()).decode()}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "koord", "cluster": cluster}],
        "users": [{"name": "koord", "user": user}],
        "contexts": [{"name": "koord", "context": {"cluster": "koord", "user": "koord", "namespace": "default"}}],
        "current-context": "koord",
    }
    # JSON is YAML.
    write_private(path, json.dumps(content, indent=1))
    return path
