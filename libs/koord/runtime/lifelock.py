"""How processes on one machine see at once that another of them died, without waiting for its lease to end.

Each process holds a lock on a file named after its incarnation; the kernel lets go of it when the process ends, however
it ends, and not while it is only stopped. Whoever gets the lock of another has the proof of its death. The files' place
is the setting ``locks``; processes that do not share it cannot tell, and wait for the lease.

A file under its own name is locked, or its process is dead: it gets that name only once it is locked. So whoever starts
can tidy up: a dead one's file is marked first and removed when no lease of its process can be left. Names never come
again, so nothing is removed that somebody is about to lock.
"""

import errno
import fcntl
import os
import time
from pathlib import Path

KEEP_S = 600.0
"""A dead process's file is the proof of its death for as long as somebody may wait for its lease."""
_DEAD = b"dead"


class LifeLock:
    """The lock of one incarnation, and the look at others'. ``directory`` "" means none: nobody is ever known dead."""

    def __init__(self, directory: str, incarnation: str) -> None:
        self._directory = Path(directory) if directory else None
        self._own = incarnation
        self._descriptor = -1

    def hold(self) -> None:
        """Take the own lock, for as long as the process lives. OSError if the directory cannot be written to."""
        if self._directory is None:
            return
        unlocked = self._directory / f".{self._own}"
        self._descriptor = os.open(unlocked, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        unlocked.rename(self._directory / self._own)
        self._tidy(self._directory)

    def let_go(self) -> None:
        """The tidy end: give the lock back and remove the file."""
        if self._descriptor >= 0 and self._directory is not None:
            (self._directory / self._own).unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1

    def is_dead(self, incarnation: str) -> bool:
        """Whether ``incarnation`` is proven to have ended; False also means: not known."""
        # What others say may be anything: "" and ".." are directories, and such can be locked, too.
        is_name = incarnation and not incarnation.startswith(".") and "/" not in incarnation
        if self._directory is None or not is_name or incarnation == self._own:
            return False
        try:
            descriptor = os.open(self._directory / incarnation, os.O_RDONLY | os.O_CLOEXEC)
        except (OSError, ValueError):  # a name with a NUL in it
            return False
        try:
            # Shared: two that look at the same time are not in each other's way.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            return False
        finally:
            os.close(descriptor)
        return True

    def _tidy(self, directory: Path) -> None:
        """Mark the files of the dead, remove those marked long ago. Never the reason why a service does not start."""
        try:
            names = [path.name for path in directory.iterdir()]
        except OSError:
            return
        for name in names:
            if name == self._own or name.startswith("."):
                continue
            try:
                self._bury(directory / name)
            except OSError:
                continue  # it lives, somebody else was faster, or it is not ours to touch

    def _bury(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.read(descriptor, len(_DEAD)) != _DEAD:
                os.pwrite(descriptor, _DEAD, 0)
            elif time.time() - os.fstat(descriptor).st_mtime > KEEP_S:
                path.unlink()
        finally:
            os.close(descriptor)
