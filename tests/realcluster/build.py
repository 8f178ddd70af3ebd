"""`make realcluster`: builds the control plane's programs from the Go modules beside this file, into a cache.

One folder per module, named by a hash of all that decides its content (go.mod, go.sum, Go's version, flags); a folder
appears whole or not at all, so a second run finds it and has nothing to do. `bin/` has links to the programs of the
present modules. etcd and kube-apiserver are the least that counts; another program that does not build is reported with
its error and the rest goes on.

A release such as `1.30.14` in the place of a module's name is built too, into a folder of its own,
with a module file that is written first (`tests.realcluster.modules`).

Exit codes: 0 built (or there already), 1 something needed did not build, 2 Go is missing or too old.
"""

import argparse
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.realcluster import modules
from tests.realcluster.programs import MODULES, RELEASE, Extra, Module, Program, release

ROOT = Path(__file__).parents[2]
SOURCES = "modules"
"""The folder of the cache with module files that were made for a release."""
API = "kube-apiserver"


class GoMissing(Exception):
    """Go is not installed or too old; says so in one line."""


class BuildError(Exception):
    """The go command failed; carries the end of what it said."""


def cache() -> Path:
    """The folder of all builds."""
    named = os.environ.get("REALCLUSTER_CACHE")
    return Path(named) if named else ROOT / ".realcluster"


def folder(module: Module = MODULES[0]) -> Path:
    """Links to the programs of a module as it is at present."""
    return cache() / module.place


def environment() -> dict[str, str]:
    """The environment of every go command: files decide, not flags of the user's; nothing is linked to C."""
    return {**os.environ, "GOFLAGS": "-mod=readonly", "GOWORK": "off", "CGO_ENABLED": "0"}


def go(*arguments: str, where: Path) -> str:
    """What the go command prints, run in `where`."""
    done = subprocess.run(["go", *arguments], cwd=where, env=environment(), capture_output=True, text=True)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if not line.startswith("go: downloading ")]
        raise BuildError("\n".join(lines[-15:]) or f"go {arguments[0]}: code {done.returncode}")
    return done.stdout


def go_version(needed: tuple[int, ...]) -> str:
    """The installed Go's version such as go1.26.8; `GoMissing` if there is none that is new enough."""
    want = "go" + ".".join(map(str, needed))
    if shutil.which("go") is None:
        raise GoMissing(f"a real control plane is built with {want} or later, and Go is not installed: no go in PATH")
    try:
        version = go("env", "GOVERSION", where=ROOT).strip()
    except BuildError as error:
        raise GoMissing(f"a real control plane is built with {want} or later, and go fails: {error}") from None
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
    if numbers < needed:
        raise GoMissing(f"a real control plane is built with {want} or later, and Go here is {version}")
    return version


def needed_go(module: Module) -> tuple[int, ...]:
    """The `go` line of a module file."""
    line = re.search(r"^go (\d[\d.]*)$", (module.source / "go.mod").read_text(), re.MULTILINE)
    if line is None:
        raise BuildError(f"{module.name}: go.mod has no go line")
    return tuple(int(part) for part in line[1].split("."))


def required_version(module: Module, path: str = "") -> str:
    """The version that the module file requires of `path`, by default of what it is about."""
    path = path or module.about
    text = (module.source / "go.mod").read_text()
    found = re.search(rf"^(?:require )?\s*{re.escape(path)} (v\S+)", text, re.MULTILINE)
    if found is None:
        raise BuildError(f"{module.name}: go.mod does not require {path}")
    return found[1]


def flags(module: Module) -> list[str]:
    """Flags of go build: no paths, no symbols, and the version that the program tells (else it says v0.0.0-master)."""
    linker = ["-s", "-w"]
    if module.tells_kubernetes:
        version = required_version(module, "k8s.io/kubernetes")
        major, minor = version.removeprefix("v").split(".")[:2]
        values = {
            "gitVersion": version,
            "gitMajor": major,
            "gitMinor": minor,
            "gitTreeState": "archive",
            # A fixed date: the same sources make the same bytes.
            "buildDate": "1970-01-01T00:00:00Z",
        }
        linker += [f"-X k8s.io/component-base/version.{name}={value}" for name, value in values.items()]
    tags = ["-tags", module.tags] if module.tags else []
    return ["-trimpath", "-ldflags", " ".join(linker), *tags]


def key(module: Module, version: str) -> str:
    """Names the folder of a build: changes with all that decides its content, a source of ours included."""
    digest = hashlib.sha256(repr((module.programs, module.extras, version, flags(module))).encode())
    for file in sorted(module.source.iterdir()):
        digest.update(file.read_bytes())
    return f"{module.name}-{required_version(module)}-{digest.hexdigest()[:16]}"


def build(module: Module, version: str) -> list[str]:
    """Build what is not there and link it into `bin/`; the names of needed programs that could not be built."""
    place = cache() / key(module, version)
    missing: list[str] = []
    if not place.is_dir():
        with tempfile.TemporaryDirectory(dir=cache(), prefix=f"{module.name}.") as made:
            parts = Path(made, "parts")
            parts.mkdir()
            complete = True
            for program in module.programs:
                complete &= _program(module, program, parts, missing)
            for extra in module.extras:
                complete &= _extra(module, extra, parts)
            # One that lacks a program is not kept as whole: the next run tries again.
            final = place if complete else cache() / f"{module.name}-incomplete"
            shutil.rmtree(final, ignore_errors=True)
            parts.rename(final)
            place = final
    else:
        for program in module.programs:
            _say(program.name, required_version(module, program.module), "there")
    for file in place.iterdir():
        _link(module, file)
    if folder(module) != folder():
        missing += _borrow(module, {file.name for file in place.iterdir()})
    return missing


def _borrow(module: Module, own: set[str]) -> list[str]:
    """Link what `bin` has and the module does not make; what it needs of that and is not there."""
    lent = [entry for entry in sorted(folder().iterdir()) if entry.exists()] if folder().is_dir() else []
    for entry in lent:
        if entry.name not in own:
            _link(module, cache() / entry.readlink().relative_to("..") if entry.is_symlink() else entry)
    missing = [name for name in module.needs if name not in {entry.name for entry in lent}]
    for name in missing:
        print(f"{name}: NOT THERE, it is borrowed of what make realcluster builds", flush=True)
    return missing


def _program(module: Module, program: Program, parts: Path, missing: list[str]) -> bool:
    begun = time.monotonic()
    version = required_version(module, program.module)
    try:
        go("build", *flags(module), "-o", str(parts / program.name), program.package, where=module.source)
    except BuildError as error:
        _say(program.name, version, f"NOT BUILT: {error}")
        if program.needed:
            missing.append(program.name)
        return False
    _say(program.name, version, f"built in {time.monotonic() - begun:.0f} s")
    return True


def _extra(module: Module, extra: Extra, parts: Path) -> bool:
    try:
        told = json.loads(go("list", "-m", "-json", extra.module, where=module.source))
    except BuildError as error:
        _say(extra.name, "", f"NOT MADE: {error}")
        return False
    source = Path(told["Dir"])
    files = [file for pattern in extra.files for file in sorted(source.glob(pattern))]
    if extra.name.endswith(".yaml"):
        (parts / extra.name).write_text("".join(f"---\n{file.read_text()}\n" for file in files))
    else:
        (parts / extra.name).mkdir()
        for file in files:
            (parts / extra.name / file.name).write_text(file.read_text())
    return bool(files)


def _link(module: Module, file: Path) -> None:
    folder(module).mkdir(parents=True, exist_ok=True)
    if file.is_dir():
        # A folder is made anew: kubectl does not follow a link to one.
        place = folder(module) / file.name
        place.unlink() if place.is_symlink() else shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(file, place)
        return
    temporary = folder(module) / f".{file.name}.{os.getpid()}"
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(Path("..") / file.relative_to(cache()))
    temporary.rename(folder(module) / file.name)


def _sweep(version: str) -> None:
    """Drop builds of module files that are no more, each a few hundred megabytes; releases asked for by name stay."""
    kept = {key(module, version) for module in MODULES} | {f"{module.name}-incomplete" for module in MODULES}
    places = [place for place in cache().iterdir() if place == folder() or RELEASE.fullmatch(place.name)]
    kept |= {place.name for place in places} | {SOURCES}
    kept |= {(place / API).readlink().parts[1] for place in places if (place / API).is_symlink()}
    for place in cache().iterdir():
        if place.is_dir() and place.name not in kept:
            shutil.rmtree(place, ignore_errors=True)
    for place in places:
        for link in place.iterdir():
            if not link.exists():
                link.unlink()


def _say(name: str, version: str, what: str) -> None:
    print(f"{name} {version}: {what}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Build what was asked for, by default all modules; the exit code."""
    names = [one.name for one in MODULES]
    parser = argparse.ArgumentParser(description="Build a real control plane for the tests.")
    parser.add_argument(
        "modules", nargs="*", metavar="module", help=f"of {', '.join(names)}; or a release of Kubernetes as 1.30.14"
    )
    chosen = parser.parse_args(arguments).modules
    unknown = [name for name in chosen if name not in names and not RELEASE.fullmatch(name)]
    if unknown:
        parser.error(f"no such module: {', '.join(unknown)}")
    wanted = [module for module in MODULES if module.name in chosen or not chosen]
    try:
        version = go_version(max(needed_go(module) for module in wanted or MODULES[:1]))
    except GoMissing as missing:
        print(missing, file=sys.stderr)
        return 2
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "lock").open("w") as lock:
        # Held until this process ends: a second one waits, and finds what the first has built.
        fcntl.flock(lock, fcntl.LOCK_EX)
        failed = [name for module in wanted for name in build(module, version)]
        for name in chosen:
            if RELEASE.fullmatch(name):
                failed += _release(name, version)
        if not chosen:
            _sweep(version)
    if failed:
        print(f"no real control plane without {' and '.join(failed)}", file=sys.stderr)
        return 1
    return 0


def _release(name: str, version: str) -> list[str]:
    """Write the module of a release if it is not there, and build it; what is needed and could not be built."""
    source = cache() / SOURCES / name
    if not (source / "go.sum").is_file():
        try:
            with tempfile.TemporaryDirectory(dir=cache(), prefix=f"{name}.") as made:
                written = Path(made, name)
                modules.write(written, f"v{name}")
                source.parent.mkdir(exist_ok=True)
                shutil.rmtree(source, ignore_errors=True)
                written.rename(source)
        except (RuntimeError, OSError) as error:
            _say("Kubernetes", f"v{name}", f"NOT BUILT: {error}")
            return [API]
    return build(release(name, source), version)


if __name__ == "__main__":
    sys.exit(main())
