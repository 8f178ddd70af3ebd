"""The module files say what they should, before anything is built of them."""

import re
from pathlib import Path

import pytest

from tests.realcluster import binaries, build, modules, programs


def required(name: str) -> dict[str, str]:
    """What a module file requires, by path."""
    lines = [line for line in _lines(name) if "=>" not in line]
    found = [match for line in lines if (match := re.match(r"(?:require )?\t?(\S+) (v\S+)", line))]
    return {match[1]: match[2] for match in found}


def replaced(name: str) -> dict[str, str]:
    """What a module file replaces, by path, with `path@version`."""
    found = [match.groups() for line in _lines(name) if (match := re.search(r"(\S+) => (\S+) (v\S+)", line))]
    return {old: f"{new}@{version}" for old, new, version in found}


def _lines(name: str) -> list[str]:
    return (programs.GO / name / "go.mod").read_text().splitlines()


@pytest.mark.parametrize("module", programs.MODULES, ids=lambda module: module.name)
def test_every_program_is_a_tool_of_its_module(module: programs.Module) -> None:
    text = (programs.GO / module.name / "go.mod").read_text()
    tools = set(re.findall(r"^(?:tool |\t)([^\s(]+)$", text, re.MULTILINE))
    assert tools == {program.package for program in module.programs}
    assert required(module.name)[module.about]


@pytest.mark.parametrize(("name", "unserved"), [("kubernetes", set()), ("koordinator", {"k8s.io/externaljwt"})])
def test_the_staging_modules_are_of_the_release(name: str, unserved: set[str]) -> None:
    """All that k8s.io/kubernetes requires at v0.0.0 is replaced, and by the release that goes with it."""
    kubernetes = required(name)["k8s.io/kubernetes"]
    staging = {path for path, version in required(name).items() if version == "v0.0.0"}
    of_the_release = {
        path for path, new in replaced(name).items() if new == f"{path}@{modules.staging_version(kubernetes)}"
    }
    assert len(of_the_release) > 20
    assert staging - of_the_release <= unserved


async def test_no_replace_of_the_release_is_missing(tmp_path: Path) -> None:
    """What the published module file of k8s.io/kubernetes replaces by its own folders, ours replaces by modules."""
    _needs_a_build()
    version = required("kubernetes")["k8s.io/kubernetes"]
    file = modules.module_file(modules.KUBERNETES, version, tmp_path)
    assert modules.replacements(file, version) == replaced("kubernetes")
    assert replaced("kubernetes")


def test_every_module_file_is_tidy_enough_to_build_read_only() -> None:
    """With -mod=readonly go list fails when a requirement or a hash is missing."""
    _needs_a_build()
    for module in programs.MODULES:
        packages = [f"-tags={module.tags}", "-json=ImportPath,Error", *(one.package for one in module.programs)]
        listed = build.go("list", "-deps", *packages, where=programs.GO / module.name)
        assert '"Error"' not in listed


def test_the_build_says_in_one_line_that_go_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    newest = ".".join(map(str, max(build.needed_go(module) for module in programs.MODULES)))
    assert build.main([]) == 2
    assert capsys.readouterr().err == (
        f"a real control plane is built with go{newest} or later, and Go is not installed: no go in PATH\n"
    )
    old = tmp_path / "go"
    old.write_text("#!/bin/sh\necho go1.19.2\n")
    old.chmod(0o700)
    assert build.main(["kwok"]) == 2
    assert capsys.readouterr().err == (
        "a real control plane is built with go1.26.0 or later, and Go here is go1.19.2\n"
    )


def test_a_program_that_does_not_build_is_told_and_the_rest_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """With a go of the test's own: the one that fails is named with its error, and tried again by the next run."""
    fake = tmp_path / "path" / "go"
    fake.parent.mkdir()
    fake.write_text(_FAKE_GO)
    fake.chmod(0o700)
    monkeypatch.setenv("PATH", f"{fake.parent}:/usr/bin:/bin")
    monkeypatch.setenv("REALCLUSTER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FAKE_GO_FAILS", "kube-scheduler")
    assert build.main(["kubernetes"]) == 0
    first = capsys.readouterr().out
    assert "kube-scheduler v1.37.2: NOT BUILT: cannot find it\n" in first
    assert (build.folder() / "etcd").read_text() == "etcd\n"
    assert not (build.folder() / "kube-scheduler").exists()
    monkeypatch.setenv("FAKE_GO_FAILS", "etcd")
    assert build.main(["kubernetes"]) == 1
    assert "no real control plane without etcd\n" in capsys.readouterr().err
    monkeypatch.setenv("FAKE_GO_FAILS", "")
    assert build.main(["kubernetes"]) == 0
    assert capsys.readouterr().out.count(": built in ") == 4
    assert build.main(["kubernetes"]) == 0
    assert capsys.readouterr().out.count(": there\n") == 4
    assert (build.folder() / "kube-scheduler").read_text() == "kube-scheduler\n"


def test_another_release_is_built_by_its_number_and_stays(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Into a folder of its own, with the newest one's etcd; `make realcluster` leaves it alone."""
    go, cache = tmp_path / "path" / "go", tmp_path / "cache"
    source = cache / build.SOURCES / "1.30.14"
    for folder in (go.parent, source):
        folder.mkdir(parents=True)
    go.write_text(_FAKE_GO)
    go.chmod(0o700)
    # As it is after a first time; the first time it is written with what the module proxy tells.
    (source / "go.mod").write_text("go 1.26.0\n\nrequire k8s.io/kubernetes v1.30.14\n")
    (source / "go.sum").touch()
    monkeypatch.setenv("PATH", f"{go.parent}:/usr/bin:/bin")
    monkeypatch.setenv("REALCLUSTER_CACHE", str(cache))
    assert build.main(["1.30.14"]) == 1
    assert "etcd: NOT THERE, it is borrowed of what make realcluster builds\n" in capsys.readouterr().out
    assert build.main(["kubernetes", "1.30.14"]) == 0
    assert "kube-apiserver v1.30.14: there\n" in capsys.readouterr().out
    (cache / "kubernetes-v1.36.0-before").mkdir()
    build.main([])
    assert build.main(["1.30.14"]) == 0
    place = cache / "1.30.14"
    ours = {"kube-apiserver", "kube-controller-manager", "kube-scheduler"}
    borrowed = {"etcd", "kwok", "koord-scheduler", "prometheus", "collector"}
    assert {link.name: link.read_text() for link in place.iterdir()} == {name: f"{name}\n" for name in ours | borrowed}
    assert {link.readlink().parts[1].partition("-v")[0] for link in place.iterdir()} >= {"1.30.14", "kubernetes"}
    assert not (cache / "kubernetes-v1.36.0-before").exists()
    with pytest.raises(SystemExit):
        build.main(["1.30"])
    assert "no such module: 1.30" in capsys.readouterr().err


_FAKE_GO = """#!/bin/sh
if [ "$1" = env ]; then echo go1.99.0; exit; fi
while [ "$1" != -o ]; do shift; done
name=$(basename "$2")
if [ "$name" = "$FAKE_GO_FAILS" ]; then echo "go: downloading something" >&2; echo "cannot find it" >&2; exit 1; fi
echo "$name" > "$2"
"""


def _needs_a_build() -> None:
    # Asks for module files that are not in this repository: only where the programs can be built at all.
    if binaries.mode() != "required":
        pytest.skip("asks the module proxy: only under make test-real")
