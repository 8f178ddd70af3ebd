"""What a marker does to a test, by the release that is tested."""

import pytest

from tests.realcluster import since

_TEST = """
import pytest

NEWEST = {release} >= (1, 30)

@pytest.mark.since("1.28", "a feature")
def test_newer():
    assert NEWEST

@pytest.mark.since("1.24", "words")
def test_older():
    pass

@pytest.mark.parametrize("number", [1, 3, 2], ids=["one", "three", "two"])
@pytest.mark.since("1.30", "the second", only=("two",))
@pytest.mark.since("1.26", "both")
def test_some(number):
    assert NEWEST or number == 3
"""
_CONFTEST = """
from tests.realcluster import since

def pytest_configure(config):
    config.addinivalue_line("markers", "since(release, what): ...")

def pytest_collection_modifyitems(items):
    since.mark(items)
"""

pytest_plugins = ["pytester"]


@pytest.mark.parametrize(
    ("release", "check", "outcomes"),
    [
        ((1, 37), "", {"passed": 5}),
        ((1, 29), "", {"passed": 2, "failed": 2, "skipped": 1}),
        ((1, 24), "", {"passed": 1, "skipped": 4}),
        # The one that passes there is named: its marker says what is not so.
        ((1, 24), "check", {"passed": 1, "xfailed": 3, "failed": 1}),
        ((1, 37), "check", {"passed": 5}),
    ],
)
def test_what_holds_since_a_release_is_not_asked_of_an_older_one(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    release: tuple[int, int],
    check: str,
    outcomes: dict[str, int],
) -> None:
    monkeypatch.setenv("CONFORMANCE_SINCE", check)
    monkeypatch.setattr(since, "_HERE", pytester.path)
    monkeypatch.setattr(since, "tested", lambda: release)
    pytester.makeconftest(_CONFTEST)
    pytester.makepyfile(_TEST.replace("{release}", str(release)))
    result = pytester.runpytest_inprocess("-rs", "-p", "no:cacheprovider", "-p", "no:asyncio")
    result.assert_outcomes(**outcomes)
    if release == (1, 24) and not check:
        result.stdout.fnmatch_lines(
            ["*holds since Kubernetes 1.28: a feature", "*holds since Kubernetes 1.30: the second"]
        )
    if check and "failed" in outcomes:
        result.stdout.fnmatch_lines(["*XPASS(strict)* holds since Kubernetes 1.26: both"])
