"""The folder of a server that keeps its objects: one server at a time, and what makes its kubeconfigs stay valid."""

import datetime
import fcntl
import os
import random
import secrets
import shutil
from pathlib import Path

import msgspec
from cryptography import x509

from koord.localcluster.api.certificates import CertificateFiles, make_certificates
from koord.localcluster.api.journal import JournalError
from koord.localcluster.api.privatefiles import write_private

_PORTS = (20_000, 30_000)
"""Below the ports that the kernel gives to clients, so that no connection takes the port while the server is down."""


class Identity(msgspec.Struct):
    """What clients know a server by, besides its certificate."""

    token: str
    port: int


class DataDirectory:
    """A locked data directory; `JournalError` when another server has it or it cannot be used.

    The kernel lets go of the lock when the process ends, however it ends.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = path / "store"
        self._identity = path / "identity.json"
        self._credentials = path / "credentials"
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise JournalError(f"data directory {path}: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(self._lock, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._lock)
            raise JournalError(
                f"data directory {path}: another API server (process {owner}) is using it; one at a time"
            ) from error
        try:
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, str(os.getpid()).encode(), 0)
        except OSError:
            pass  # on a full disk the lock holds all the same

    def identity(self) -> Identity:
        """The token and the port of this directory, chosen at the first call ever."""
        if self._identity.exists():
            try:
                return msgspec.json.decode(self._identity.read_bytes(), type=Identity)
            except msgspec.DecodeError as error:
                raise JournalError(f"{self._identity}: {error}") from error
        made = Identity(secrets.token_urlsafe(24), 0)
        self.keep(made)
        return made

    def keep(self, identity: Identity) -> None:
        """Remember the token and the port."""
        write_private(self._identity, msgspec.json.encode(identity).decode())

    def certificates(self) -> CertificateFiles:
        """The certificates of this directory; new ones when there are none or they end within a day."""
        folder = self._credentials
        files = CertificateFiles(folder / "ca.crt", folder / "server.crt", folder / "server.key")
        if files.key.exists():
            try:
                ends = x509.load_pem_x509_certificate(files.certificate.read_bytes()).not_valid_after_utc
            except (OSError, ValueError) as error:
                raise JournalError(f"{files.certificate}: {error}") from error
            if ends > datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1):
                return files
        part = folder.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(mode=0o700)
        make_certificates(part)
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)
        return files

    def close(self) -> None:
        """Let another server have the directory."""
        os.close(self._lock)


def some_ports(count: int = 20) -> list[int]:
    """Ports worth trying for a server that comes back on the port it had."""
    return random.sample(range(*_PORTS), count)
