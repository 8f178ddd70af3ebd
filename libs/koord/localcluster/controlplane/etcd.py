"""etcd: one member or several, TLS with client certificates, data in its folder.

Without fsync by default: what is asked of it here is to outlive a killed process, not a lost machine.
"""

import asyncio
import ssl
from collections.abc import Sequence
from pathlib import Path

from koord.localcluster.controlplane.authority import Authority, KeyPair
from koord.localcluster.controlplane.part import NO_FLAGS, Flags, Part, binary
from koord.localcluster.ports import HOST, free_port
from koord.localcluster.servers import ServerError

_ATTEMPTS = 5


class Member(Part):
    """One etcd process. `peers` maps the names of all members to the ports on which they talk to each other."""

    name = "etcd"

    def __init__(
        self,
        program: Path,
        *,
        name: str,
        peers: dict[str, int],
        authority: Authority,
        directory: Path,
        tls: ssl.SSLContext,
        keys: KeyPair,
        fsync: bool,
        flags: Flags,
    ) -> None:
        super().__init__(program, directory=directory, tls=tls, flags=flags)
        self.name = name
        self._peers = peers
        self._authority = authority
        self._keys = keys
        self._fsync = fsync

    def defaults(self) -> Flags:
        """The flags of the next start."""
        peer = f"https://{HOST}:{self._peers[self.name]}"
        ca, certificate, key = (str(path) for path in (self._authority.ca, self._keys.certificate, self._keys.key))
        return {
            "name": self.name,
            "data-dir": str(self.directory / "data"),
            "listen-client-urls": self.url,
            "advertise-client-urls": self.url,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": ",".join(f"{name}=https://{HOST}:{port}" for name, port in self._peers.items()),
            "initial-cluster-token": self._authority.folder.parent.name,
            "client-cert-auth": "true",
            "trusted-ca-file": ca,
            "cert-file": certificate,
            "key-file": key,
            "peer-client-cert-auth": "true",
            "peer-trusted-ca-file": ca,
            "peer-cert-file": certificate,
            "peer-key-file": key,
            "unsafe-no-fsync": "false" if self._fsync else "true",
            "log-level": "warn",
            "quota-backend-bytes": str(8 << 30),
            "auto-compaction-mode": "periodic",
            "auto-compaction-retention": "0",
        }

    def _data(self) -> Sequence[Path]:
        return [self.directory / "data"]


class Etcd:
    """A cluster of members that start and stop together; each can be killed and restarted by itself."""

    def __init__(
        self,
        binaries: Path,
        *,
        authority: Authority,
        directory: Path,
        members: int = 1,
        fsync: bool = False,
        flags: Flags = NO_FLAGS,
    ) -> None:
        self._program = binary(binaries, "etcd")
        self._authority = authority
        self._directory = directory
        self._count = members
        self._fsync = fsync
        self._flags = flags
        self.keys = authority.user("kube-apiserver-etcd-client")
        self._server_keys = authority.server("etcd")
        self.tls = authority.tls(self.keys)
        self.members: list[Member] = []

    @property
    def urls(self) -> list[str]:
        """Where clients connect, one per member."""
        return [member.url for member in self.members]

    async def start(self) -> None:
        """Start all members; ready when each sees a leader."""
        for attempt in range(_ATTEMPTS):
            peers = {f"etcd-{number}": free_port() for number in range(self._count)}
            self.members = [
                Member(
                    self._program,
                    name=name,
                    peers=peers,
                    authority=self._authority,
                    # A cluster that did not come up knows its peers by ports that were taken: nothing of it is kept.
                    directory=self._directory / f"{attempt}" / name,
                    tls=self.tls,
                    keys=self._server_keys,
                    fsync=self._fsync,
                    flags=self._flags,
                )
                for name in peers
            ]
            results = await asyncio.gather(*(member.start() for member in self.members), return_exceptions=True)
            errors = [result for result in results if isinstance(result, BaseException)]
            if not errors:
                return
            await self.stop()
            if not all(isinstance(error, ServerError) and "no free port" in str(error) for error in errors):
                raise errors[0]
        raise ServerError(f"etcd: no free peer ports in {_ATTEMPTS} attempts")

    async def kill(self) -> None:
        """Kill all members; their data stay."""
        await asyncio.gather(*(member.kill() for member in self.members))

    async def restart(self) -> None:
        """Start the members that do not run, together (they may need each other), on their ports and data."""
        await asyncio.gather(*(member.start() for member in self.members))

    async def stop(self) -> None:
        """End all members."""
        await asyncio.gather(*(member.stop() for member in self.members))
