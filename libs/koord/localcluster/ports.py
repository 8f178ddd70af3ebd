"""A free port that stays ours: no other koord process on this machine is given it while the one that chose it lives.

A port is chosen before the process that listens on it is started, sometimes long before (Prometheus is told of it
when the services that it reads are up), and what is killed and restarted must get its port back. Between the two the
port is free for everybody, so those who choose must know of each other: each port is a byte of one file per user, and
whoever chooses it holds a lock on that byte until it ends. The kernel lets go of the lock when the process dies,
however it dies. Ports come from below the ephemeral range, where the machine has one that leaves room: a port of that
range may by then belong to some client's connection, even to one that was trying to reach the server.
"""

import errno
import fcntl
import os
import random
import socket
import tempfile
from collections import deque
from collections.abc import Callable
from pathlib import Path

HOST = "127.0.0.1"
FIRST = 20000
KEPT = 1024
"""How many of its choices a process keeps from others, and from itself: a test run chooses thousands."""
_TRIES = 200
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


class PortBook:
    """The choices of this process, held against those of others through the lock file `file`.

    One instance per process and file: a POSIX lock belongs to the process, and closing any descriptor of the file would
    let go of all of them. A child made by fork does not inherit them.
    """

    def __init__(self, file: Path, draw: Callable[[int, int], int] = random.randrange) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file = os.open(file, flags, 0o600)
        self._draw = draw
        self._kept: deque[int] = deque()

    def choose(self) -> int:
        """A loopback port that nobody listens on and no other process has chosen; `OSError` if there is none."""
        end = _first_ephemeral()
        for _ in range(_TRIES):
            port = self._draw(FIRST, end)
            if port in self._kept or not self._lock(port):
                continue
            if not _bindable(port):
                self._unlock(port)
                continue
            self._kept.append(port)
            if len(self._kept) > KEPT:
                self._unlock(self._kept.popleft())
            return port
        raise OSError(errno.EADDRINUSE, f"no free port from {FIRST} to {end} in {_TRIES} tries")

    def _lock(self, port: int) -> bool:
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except OSError:
            return False
        return True

    def _unlock(self, port: int) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, port)


_book: PortBook | None = None


def free_port() -> int:
    """A port that this process may give to a server; `OSError` (EADDRINUSE) if there is none."""
    global _book
    if _book is None:
        _book = PortBook(Path(tempfile.gettempdir()) / f"koord-ports-{os.getuid()}")
    return _book.choose()


def _first_ephemeral() -> int:
    try:
        first = int(_EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        first = 32768
    return max(first, FIRST + 2 * KEPT)


def _bindable(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
