"""Files that only their owner reads, and that readers see whole or not at all."""

import os
from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner reads; readers see all of it or nothing."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        temporary.rename(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
