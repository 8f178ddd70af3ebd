"""A chosen port is kept from every other process until its chooser ends."""

import errno
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from koord.localcluster import ports
from koord.localcluster.ports import HOST, PortBook

OTHER = """
import pathlib, sys
from koord.localcluster import ports
print(ports.PortBook(pathlib.Path(sys.argv[1]), lambda first, end: int(sys.argv[2])).choose(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def free(tmp_path: Path) -> list[int]:
    """Ports that nobody listens on."""
    book = PortBook(tmp_path / "elsewhere")
    return [book.choose() for _ in range(3)]


class Dice:
    """Draws what it is told, and the last of it for ever."""

    def __init__(self, *ports: int) -> None:
        self.ports = list(ports)

    def __call__(self, first: int, end: int) -> int:
        return self.ports.pop(0) if len(self.ports) > 1 else self.ports[0]


def test_another_process_chooses_it_only_when_its_chooser_is_dead(tmp_path: Path, free: list[int]) -> None:
    file = tmp_path / "ports"
    first, second, _ = free
    dice = Dice(first, second)
    command = [sys.executable, "-c", OTHER, str(file), str(first)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert int(other.stdout.readline()) == first
        book = PortBook(file, dice)
        assert book.choose() == second
        other.kill()
        other.wait(30)
    dice.ports = [first]
    assert book.choose() == first


def test_a_process_does_not_give_a_port_twice_nor_one_that_is_listened_on(tmp_path: Path, free: list[int]) -> None:
    first, second, third = free
    dice = Dice(first, first, second, third)
    book = PortBook(tmp_path / "ports", dice)
    with socket.socket() as taken:
        taken.bind((HOST, second))
        assert [book.choose(), book.choose()] == [first, third]
        dice.ports = [second]
        with pytest.raises(OSError, match="no free port from") as refused:
            book.choose()
    assert refused.value.errno == errno.EADDRINUSE
    assert book.choose() == second


def test_the_oldest_choices_are_given_again(tmp_path: Path, free: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "KEPT", 1)
    first, second, _ = free
    book = PortBook(tmp_path / "ports", Dice(first, second, first))
    assert [book.choose() for _ in range(3)] == [first, second, first]
