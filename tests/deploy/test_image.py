"""The image: its Dockerfile, and that a service runs from the wheel with the packages of its extra alone.

Building and running images takes tools that not every machine has (tests/deploy/test_containers.py). What can go wrong
without notice (a missing file of the wheel, a package that only another extra brings) is tested here with the installed
packages themselves.
"""

import re
import subprocess
import sys
import zipfile
from importlib.metadata import Distribution, distribution, entry_points
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.deploy.manifests import ROOT, base, container

SERVICES = sorted(point.name for point in entry_points(group="koord.services"))
INSTRUCTIONS = [
    line.split(None, 1)
    for line in re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text()).splitlines()
    if line and not line.startswith("#")
]


def of_the_image(name: str) -> list[str]:
    """What follows an instruction in the last stage."""
    last = max(index for index, (word, _) in enumerate(INSTRUCTIONS) if word == "FROM")
    return [rest for word, rest in INSTRUCTIONS[last:] if word == name]


def test_hadolint_has_nothing_to_say() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([linter, ROOT / "Dockerfile"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_is_what_the_manifests_expect() -> None:
    [user] = of_the_image("USER")
    [port] = of_the_image("EXPOSE")
    assert of_the_image("ENTRYPOINT") == ['["koord"]']
    for service in SERVICES:
        workload = base().one("Deployment", f"koord-{service}")
        security = workload["spec"]["template"]["spec"]["securityContext"]
        assert user == f"{security['runAsUser']}:{security['runAsGroup']}"
        one = container(workload)
        assert one["ports"][0]["containerPort"] == int(port)
        assert "command" not in one


def test_what_is_copied_is_there_and_let_through() -> None:
    through = (ROOT / ".dockerignore").read_text().splitlines()
    copied = [rest.split() for word, rest in INSTRUCTIONS if word == "COPY" and not rest.startswith("--from")]
    sources = [source for parts in copied for source in parts[:-1]]
    assert "libs" in sources
    for source in sources:
        assert (ROOT / source).exists()
        assert f"!{source}" in through
    # koord's CRDs, the ledger's functions and whatever else is no Python file are not left out.
    assert [line for line in through if not line.startswith(("!", "#"))] == ["*", "**/__pycache__", "**/*.pyc"]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built and unpacked."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    [wheel] = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "koord")
    return folder / "koord"


PROGRAM = """
import sys
import koord.kube.crds, koord.ledger.library
from koord.runtime.service import find
assert find(sys.argv[1]).name == sys.argv[1]
assert len(koord.kube.crds.load()) >= 9
files = [module.__file__ for name, module in sys.modules.items() if name.startswith("koord.")]
assert all(file is None or file.startswith(sys.argv[2]) for file in files), files
"""


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_needs_the_wheel_and_its_extra_alone(service: str, unpacked: Path, tmp_path: Path) -> None:
    for needed in closure("koord", {service}):
        link(needed, tmp_path)
    # -S: nothing of the environment in which the tests run; the wheel and what is linked beside it.
    python = [getattr(sys, "_base_executable", sys.executable), "-S"]
    environment = {"PYTHONPATH": f"{unpacked}:{tmp_path}", "PATH": ""}
    for arguments in (["-c", PROGRAM, service, str(unpacked)], ["-m", "koord.cli.main", "run", service, "--help"]):
        done = subprocess.run([*python, *arguments], env=environment, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr


def closure(name: str, extras: set[str]) -> list[Distribution]:
    """The distributions that ``name[extras]`` needs, itself left out."""
    found: dict[str, Distribution] = {}
    done: set[tuple[str, str]] = set()
    todo = [(name, extra) for extra in ("", *extras)]
    while todo:
        wanted = todo.pop()
        if wanted in done:
            continue
        done.add(wanted)
        owner = distribution(wanted[0])
        found[wanted[0]] = owner
        for text in owner.requires or []:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": wanted[1]}):
                todo += [(requirement.name, extra) for extra in ("", *requirement.extras)]
    del found[name]
    return list(found.values())


def link(needed: Distribution, site: Path) -> None:
    """Make an installed distribution importable from ``site``; namespaces that several share get links inside."""
    files = [file for file in needed.files or [] if ".." not in file.parts]
    whole = {file.parts[0] for file in files if file.parts[1:] in (("__init__.py",), ("METADATA",))}
    for file in files:
        path = Path(file.parts[0]) if file.parts[0] in whole else Path(file)
        target = site / path
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(str(needed.locate_file(path)))
