"""Objects as they are sent and as a real server stores them: what validation lets pass, and every default.

`python -m tests.conformance.stored KUBECONFIG` asks a real server and writes `tests/golden/stored/stored.json`; the
suite holds both servers against it.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent.parent / "golden" / "stored"
_PLURALS = {"Endpoints": "endpoints", "NetworkPolicy": "networkpolicies"}
# Different for every object.
_OWN = ("uid", "resourceVersion", "creationTimestamp", "managedFields")
# Given out by the server.
_ADDRESSES = ("clusterIP", "clusterIPs")


def sent() -> dict[str, dict[str, Any]]:
    """The objects by name."""
    documents = yaml.safe_load_all((FOLDER / "sent.yaml").read_text())
    return {document["metadata"]["name"]: document for document in documents}


def stored() -> dict[str, dict[str, Any]]:
    """What a real server made of them."""
    made: dict[str, dict[str, Any]] = json.loads((FOLDER / "stored.json").read_text())
    return made


def placed(obj: dict[str, Any], namespace: str) -> dict[str, Any]:
    """An object with the namespace it is sent to, wherever it names it."""
    made: dict[str, Any] = json.loads(json.dumps(obj).replace("NAMESPACE", namespace))
    return made


def path_of(obj: dict[str, Any], namespace: str) -> str:
    """Where objects of its kind are created."""
    version = obj["apiVersion"]
    plural = _PLURALS.get(obj["kind"], obj["kind"].lower() + "s")
    return f"/{'apis' if '/' in version else 'api'}/{version}/namespaces/{namespace}/{plural}"


def comparable(obj: dict[str, Any], namespace: str) -> dict[str, Any]:
    """A stored object without what is different on every server.

    The embedded server never shows a null, gives out no addresses, and guards no claims by a finalizer, as nothing
    would take it away.
    """
    uid = obj["metadata"]["uid"]
    text = json.dumps(obj).replace(uid, "UID").replace(namespace, "NAMESPACE")
    made: dict[str, Any] = _without_nulls(json.loads(text))
    for condition in made.get("status", {}).get("conditions", ()):
        condition["lastTransitionTime"] = "TIME"
    made["metadata"].pop("finalizers", None)
    if made["kind"] == "EndpointSlice":
        made["metadata"].pop("generation", None)  # counts here what has a spec
    for field in _OWN:
        made["metadata"].pop(field, None)
    if made["kind"] == "Service" and made["spec"].get("clusterIP") != "None":
        for field in _ADDRESSES:
            made["spec"].pop(field, None)
    return made


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


def main() -> int:
    """Ask a real server."""
    kubeconfig = sys.argv[1]
    kubectl = ["kubectl", "--kubeconfig", kubeconfig]
    namespace = "stored-objects"
    subprocess.run([*kubectl, "create", "namespace", namespace], check=True, capture_output=True)
    found = {}
    try:
        for name, obj in sent().items():
            command = [*kubectl, "create", "--raw", path_of(obj, namespace), "-f", "-"]
            body = json.dumps(placed(obj, namespace))
            done = subprocess.run(command, input=body, capture_output=True, text=True)
            if done.returncode:
                print(name, done.stderr)
                continue
            found[name] = comparable(json.loads(done.stdout), namespace)
    finally:
        subprocess.run([*kubectl, "delete", "namespace", namespace, "--wait=false"], check=True, capture_output=True)
    (FOLDER / "stored.json").write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
