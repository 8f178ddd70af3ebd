"""The example plugin, importable from its sources, and installed as its users install it."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent / "licenseseats"
PIP = (sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation")
sys.path.insert(0, str(PACKAGE / "src"))


@pytest.fixture(scope="session")
def site_packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the package is installed in, its entry point included; nothing is downloaded."""
    target = tmp_path_factory.mktemp("site-packages")
    subprocess.run(
        [*PIP, "--target", str(target), str(PACKAGE)],
        check=True,
        capture_output=True,
    )
    return target


@pytest.fixture
def installed(site_packages: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The package is installed as far as this process can see."""
    monkeypatch.syspath_prepend(str(site_packages))
    yield site_packages
