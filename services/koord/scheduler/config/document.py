"""The file as it stands, before anything is merged: the fields of ``KubeSchedulerConfiguration`` v1."""

from typing import Any

import msgspec

from koord.scheduler.config.decoding import Int32, Int64, Seconds
from koord.scheduler.config.extenders import Extender
from koord.scheduler.config.merging import Plugins


class PluginConfig(msgspec.Struct, frozen=True, rename="camel"):
    """Arguments of one plugin."""

    name: str = ""
    args: Any = None


class Profile(msgspec.Struct, frozen=True, rename="camel"):
    """One of ``profiles``."""

    scheduler_name: str | None = None
    percentage_of_nodes_to_score: Int32 | None = None
    plugins: Plugins | None = None
    plugin_config: tuple[PluginConfig, ...] = ()


class LeaderElectionBlock(msgspec.Struct, frozen=True, rename="camel"):
    """``leaderElection``."""

    leader_elect: bool | None = None
    lease_duration: Seconds | None = None
    renew_deadline: Seconds | None = None
    retry_period: Seconds | None = None
    resource_lock: str = ""
    resource_name: str = ""
    resource_namespace: str = ""


class ClientConnectionBlock(msgspec.Struct, frozen=True, rename="camel"):
    """``clientConnection``; koord's gateway has settings of its own."""

    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = ""
    qps: float = 0.0
    burst: Int32 = 0


class Document(msgspec.Struct, frozen=True, rename="camel"):
    """A whole file."""

    api_version: str = ""
    kind: str = ""
    parallelism: Int32 | None = None
    leader_election: LeaderElectionBlock = LeaderElectionBlock()
    client_connection: ClientConnectionBlock = ClientConnectionBlock()
    enable_profiling: bool | None = None
    enable_contention_profiling: bool | None = None
    percentage_of_nodes_to_score: Int32 | None = None
    pod_initial_backoff_seconds: Int64 | None = None
    pod_max_backoff_seconds: Int64 | None = None
    profiles: tuple[Profile, ...] = ()
    extenders: tuple[Extender, ...] = ()
    delay_cache_until_active: bool = False
