"""Private temporary directories that do not pile up when their owners are killed.

The owner holds a lock on a file in its directory, which the kernel lets go when the owner ends, however it ends.
Whoever makes the next directory removes those of the same kind that nobody holds.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_LOCK = "owner.lock"


class TemporaryDirectory:
    """A directory of mode 0700 in the system's temporary folder, named `<prefix><random>`, until `remove`."""

    def __init__(self, prefix: str) -> None:
        _sweep(prefix)
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        # Locked before it has the name that a sweeper looks for.
        unnamed = self.path / f"{_LOCK}.new"
        self._lock = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        unnamed.rename(self.path / _LOCK)

    def remove(self) -> None:
        """Remove it with all that it holds; may be called again."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _sweep(prefix: str) -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*/{_LOCK}"):
        with contextlib.suppress(OSError):
            if path.parent.stat().st_uid != os.getuid():
                continue
            lock = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path.parent, ignore_errors=True)
            finally:
                os.close(lock)
