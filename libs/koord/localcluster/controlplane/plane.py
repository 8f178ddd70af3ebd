"""A whole control plane: etcd and apiservers, and on request the programs that work on the API.

    plane = ControlPlane(Path("bin"))
    await plane.start()
    await plane.start_controller_manager()
    plane.kubeconfig                                  # the administrator's
    plane.kubeconfig_for("alice", ["developers"])     # a user without any role
    await plane.apiservers[0].kill(); await plane.apiservers[0].start()
    await plane.stop()

Every part can be killed (`kill`), started again on its port (`start`), ended softly (`end`); `log_file` has what it
printed. All parts end with the process that started them.
"""

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml

from koord.localcluster.controlplane.apiserver import ApiServer
from koord.localcluster.controlplane.authority import ADMIN_GROUP, Authority
from koord.localcluster.controlplane.binaries import release
from koord.localcluster.controlplane.clients import (
    NO_FIELDS,
    ControllerManager,
    Kwok,
    Scheduler,
    scheduler_config_version,
)
from koord.localcluster.controlplane.etcd import Etcd
from koord.localcluster.controlplane.frontdoor import FrontDoor
from koord.localcluster.controlplane.kubeconfigs import certificate_user, write_kubeconfig
from koord.localcluster.controlplane.part import NO_FLAGS, Flags, Part, binary
from koord.localcluster.servers import ServerError
from koord.localcluster.tempdirs import TemporaryDirectory

P = TypeVar("P", bound=Part)

_ADMIN = "koord-admin"


class ControlPlane:
    """etcd (`etcd_members`) and `apiservers` kube-apiservers on it, from the folder `binaries`.

    With more than one apiserver the kubeconfigs lead to a front door that passes on to one that lives.
    `apiserver_flags` and `etcd_flags` are given to all of their kind. Without a controller manager, which makes the
    service accounts, the apiserver admits no pods unless `apiserver_flags` has `disable-admission-plugins:
    ServiceAccount`.
    """

    def __init__(
        self,
        binaries: Path,
        *,
        apiservers: int = 1,
        etcd_members: int = 1,
        fsync: bool = False,
        apiserver_flags: Flags = NO_FLAGS,
        etcd_flags: Flags = NO_FLAGS,
    ) -> None:
        self.binaries = binaries
        self._counts = (apiservers, etcd_members)
        self._fsync = fsync
        self._flags = (apiserver_flags, etcd_flags)
        self._temporary: TemporaryDirectory | None = None
        self._authority: Authority | None = None
        self._etcd: Etcd | None = None
        self._door: FrontDoor | None = None
        self._service_account_key: Path | None = None
        self.apiservers: list[ApiServer] = []
        self._clients: list[Part] = []
        self._kubeconfigs: dict[tuple[str, tuple[str, ...], str], Path] = {}

    # What stands there ----------------------------------------------------------------------------------------------

    @property
    def directory(self) -> Path:
        """Private, with all that the parts write; exists from `start` to `stop`."""
        if self._temporary is None:
            raise ServerError("control plane: not started")
        return self._temporary.path

    @property
    def authority(self) -> Authority:
        """Issues the certificates."""
        if self._authority is None:
            raise ServerError("control plane: not started")
        return self._authority

    @property
    def etcd(self) -> Etcd:
        """The store."""
        if self._etcd is None:
            raise ServerError("control plane: not started")
        return self._etcd

    @property
    def url(self) -> str:
        """Where clients connect: the apiserver, or the front door of several."""
        return self._door.url if self._door is not None else self.apiservers[0].url

    @property
    def kubeconfig(self) -> Path:
        """The administrator's, by client certificate."""
        return self.kubeconfig_for(_ADMIN, (ADMIN_GROUP,))

    def kubeconfig_for(self, user: str, groups: Sequence[str] = (), *, url: str | None = None) -> Path:
        """A kubeconfig of this user, who has the rights that RBAC gives to the user or to one of the groups.

        `url` leads to one apiserver instead of the front door.
        """
        key = (user, tuple(groups), url or self.url)
        if key not in self._kubeconfigs:
            path = self.directory / f"kubeconfig-{len(self._kubeconfigs)}"
            keys = self.authority.user(user, groups)
            self._kubeconfigs[key] = write_kubeconfig(path, key[2], self.authority.ca, certificate_user(keys))
        return self._kubeconfigs[key]

    def tls(self, user: str = _ADMIN, groups: Sequence[str] = (ADMIN_GROUP,)) -> ssl.SSLContext:
        """How an HTTP client connects as this user."""
        return self.authority.tls(self.authority.user(user, groups))

    # Life -----------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start etcd and the apiservers; ready when all answer. `ServerError` with the end of a log if not."""
        if self._temporary is not None:
            raise ServerError("control plane: started before")
        self._temporary = await asyncio.to_thread(TemporaryDirectory, "koord-controlplane-")
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        apiservers, members = self._counts
        apiserver_flags, etcd_flags = self._flags
        self._authority = authority = await asyncio.to_thread(Authority, self.directory / "pki")
        accounts = authority.service_account_keys()
        self._service_account_key = accounts.key
        self._etcd = Etcd(
            self.binaries,
            authority=authority,
            directory=self.directory / "etcd",
            members=members,
            fsync=self._fsync,
            flags=etcd_flags,
        )
        await self._etcd.start()
        self.apiservers = [
            ApiServer(
                self.binaries,
                authority=authority,
                etcd=self._etcd,
                service_accounts=accounts,
                directory=self.directory / f"apiserver-{number}",
                tls=self.tls(),
                flags=apiserver_flags,
            )
            for number in range(apiservers)
        ]
        # One after the other: the first one makes what every cluster begins with.
        for apiserver in self.apiservers:
            await apiserver.start()
        if apiservers > 1:
            self._door = FrontDoor(lambda: [apiserver.port for apiserver in self.apiservers])
            await self._door.start()

    async def stop(self) -> None:
        """End everything at once, as nothing is kept; may be called again."""
        members = self._etcd.members if self._etcd is not None else []
        parts: list[Part] = [*self._clients, *self.apiservers, *members]
        for part in parts:
            await part.kill()
            await part.stop()
        self._clients.clear()
        if self._door is not None:
            await self._door.stop()
        if self._temporary is not None:
            await asyncio.to_thread(self._temporary.remove)
            self._temporary = None

    # What works on the API ------------------------------------------------------------------------------------------

    async def start_controller_manager(self, *, flags: Flags = NO_FLAGS) -> ControllerManager:
        """kube-controller-manager; pods are admitted when it has made the namespace's service account."""
        assert self._service_account_key is not None
        part = ControllerManager(
            self.binaries,
            kubeconfig=self.kubeconfig_for("system:kube-controller-manager"),
            ca=self.authority.ca,
            service_account_key=self._service_account_key,
            keys=self.authority.server("kube-controller-manager"),
            directory=self._room("controller-manager"),
            tls=self.tls(),
            flags=flags,
        )
        return await self._begin(part)

    async def start_scheduler(self, *, config: Mapping[str, Any] = NO_FIELDS, flags: Flags = NO_FLAGS) -> Scheduler:
        """kube-scheduler; `config` are fields of its KubeSchedulerConfiguration."""
        user = self.kubeconfig_for("system:kube-scheduler")
        return await self._scheduler("kube-scheduler", user, config, flags)

    async def start_koord_scheduler(
        self, *, config: Mapping[str, Any] = NO_FIELDS, flags: Flags = NO_FLAGS
    ) -> Scheduler:
        """Koordinator's scheduler, as an administrator, for pods whose `schedulerName` is koord-scheduler.

        Its CRDs (`koordinator-crds` beside the binaries) must have been created. Without `config` it runs the plugins
        of the configuration that its release deploys (`koordinator-scheduler-config.yaml`).
        """
        fields = dict(config) or await asyncio.to_thread(self._koordinator_config)
        return await self._scheduler("koord-scheduler", self.kubeconfig, fields, flags)

    async def start_kwok(self, *, all_nodes: bool = False, stages: Path | None = None, flags: Flags = NO_FLAGS) -> Kwok:
        """kwok, for the nodes with the annotation ``kwok.x-k8s.io/node: fake`` or for all."""
        part = Kwok(
            self.binaries,
            kubeconfig=self.kubeconfig_for("kwok", (ADMIN_GROUP,)),
            keys=self.authority.server("kwok"),
            directory=self._room("kwok"),
            tls=self.tls(),
            all_nodes=all_nodes,
            stages=stages,
            flags=flags,
        )
        return await self._begin(part)

    def _koordinator_config(self) -> dict[str, Any]:
        config_map = yaml.safe_load(binary(self.binaries, "koordinator-scheduler-config.yaml").read_text())
        deployed = yaml.safe_load(config_map["data"]["koord-scheduler-config"])
        return {"profiles": deployed["profiles"]}

    async def _scheduler(self, program: str, kubeconfig: Path, config: Mapping[str, Any], flags: Flags) -> Scheduler:
        made_of = await asyncio.to_thread(release, binary(self.binaries, program))
        part = Scheduler(
            self.binaries,
            program,
            kubeconfig=kubeconfig,
            keys=self.authority.server(program),
            directory=self._room(program),
            tls=self.tls(),
            config={"apiVersion": scheduler_config_version(made_of), **config},
            flags=flags,
        )
        return await self._begin(part)

    def _room(self, name: str) -> Path:
        return self.directory / f"{name}-{len(self._clients)}"

    async def _begin(self, part: P) -> P:
        await part.start()
        self._clients.append(part)
        return part
