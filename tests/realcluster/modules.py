"""How the Go modules beside this file came about, and how to move them to another release.

    python -m tests.realcluster.modules kubernetes v1.37.2 --also go.etcd.io/etcd/server/v3@v3.7.3

k8s.io/kubernetes requires its staging modules (k8s.io/api, k8s.io/client-go, ...) and replaces them by folders of its
own repository. A replace counts in the main module alone, so whoever requires k8s.io/kubernetes must replace each of
them again, by the published module of the same release: v0.N.P for v1.N.P. Replaces of other modules are taken over.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

GO = Path(__file__).parent / "go"
KUBERNETES = "k8s.io/kubernetes"
COMMANDS = {
    KUBERNETES: [f"{KUBERNETES}/cmd/{name}" for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")]
}


def go(*arguments: str, folder: Path) -> str:
    """What the go command prints, run in `folder`; `RuntimeError` with its error."""
    # No flags of the user's: what the files say decides.
    environment = {**os.environ, "GOFLAGS": "", "GOWORK": "off"}
    done = subprocess.run(["go", *arguments], cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"go {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def module_file(path: str, version: str, folder: Path) -> dict[str, Any]:
    """The go.mod of a published module, as `go mod edit -json` tells it."""
    found = json.loads(go("mod", "download", "-json", f"{path}@{version}", folder=folder))
    told: dict[str, Any] = json.loads(go("mod", "edit", "-json", found["GoMod"], folder=folder))
    return told


def staging_version(version: str) -> str:
    """The release of the staging modules: v0.37.2 for v1.37.2."""
    return "v0." + version.removeprefix("v1.")


def replacements(file: Mapping[str, Any], version: str) -> dict[str, str]:
    """What must be replaced by what (`path@version`) in a module that requires k8s.io/kubernetes at `version`."""
    result = {}
    for replace in file.get("Replace") or []:
        old, new = replace["Old"]["Path"], replace["New"]
        if new["Path"].startswith("./"):
            result[old] = f"{old}@{staging_version(version)}"
        else:
            result[old] = f"{new['Path']}@{new['Version']}"
    return result


def write(folder: Path, version: str, *, also: Sequence[str] = (), commands: Sequence[str] = ()) -> None:
    """Write go.mod and go.sum in `folder` for k8s.io/kubernetes at `version` and the tools `also` (`path@version`)."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("go.mod", "go.sum"):
        (folder / name).unlink(missing_ok=True)
    go("mod", "init", f"koord.sh/realcluster/{folder.name}", folder=folder)
    go("mod", "edit", "-go=1.26.0", folder=folder)
    replaced = replacements(module_file(KUBERNETES, version, folder), version)
    if replaced:
        go("mod", "edit", *(f"-replace={old}={new}" for old, new in replaced.items()), folder=folder)
    tools = [f"{command}@{version}" for command in commands or COMMANDS[KUBERNETES]]
    go("get", "-tool", *tools, *also, folder=folder)


def _main() -> int:
    parser = argparse.ArgumentParser(description="Write the Go module of a Kubernetes release.")
    parser.add_argument("name", help="folder below tests/realcluster/go")
    parser.add_argument("version", help="of k8s.io/kubernetes, such as v1.37.2")
    parser.add_argument("--also", action="append", default=[], help="another tool, path@version")
    arguments = parser.parse_args()
    try:
        write(GO / arguments.name, arguments.version, also=arguments.also)
    except (RuntimeError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main())
