"""Settings of the gateway (section ``gateway``)."""

import re
from typing import Literal

import msgspec

from koord.gateway.election import MARGIN_S
from koord.kube.resources import WATCHED, Resource

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


class GatewaySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``kubeconfig`` of the common settings says which API server; empty means the pod's service account.

    ``connections``: connections for writes. ``concurrency``: decisions executed at a time. ``backlog``: decisions that
    may wait in memory. ``events_backlog``, ``events_per_s``: bounds of Kubernetes Events. ``lease_*``: the Lease that
    elects the leader. ``api_timeout_s``: how long the API server may still work on a request whose sender is gone (its
    ``--request-timeout``); waited for only if the ledger and the stream of decisions are lost together.
    ``foreign_bindings``: ``observe`` what other schedulers bind, or ``claim`` it in the ledger before it is bound, for
    which the API server asks this process at ``webhook_host`` (``webhook_port`` 0: a free one); with ``require``
    nothing is bound that could not be claimed, be it because koord does not answer; but in ``spared_namespaces`` and
    in ``lease_namespace``: what koord and the nodes need to come back. ``also_watch``: kinds that third-party plugins
    read; the gateway's role must allow to list and watch them.
    """

    connections: int = 64
    concurrency: int = 256
    backlog: int = 4096
    events_backlog: int = 20_000
    events_per_s: float = 300.0
    request_timeout_s: float = 15.0
    api_timeout_s: float = 60.0
    lease_namespace: str = "koord-system"
    lease_name: str = "koord-gateway"
    lease_duration_s: float = 10.0
    lease_renew_s: float = 1.0
    foreign_bindings: Literal["observe", "claim", "require"] = "observe"
    spared_namespaces: tuple[str, ...] = ("kube-system",)
    webhook_host: str = "127.0.0.1"
    webhook_port: int = 0
    also_watch: tuple[Resource, ...] = ()

    @property
    def watched(self) -> tuple[Resource, ...]:
        """All kinds that are listed and watched."""
        return (*WATCHED, *self.also_watch)

    def __post_init__(self) -> None:
        for name in ("connections", "concurrency", "backlog"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} must be at least 1")
        for name in ("events_per_s", "request_timeout_s", "api_timeout_s", "lease_renew_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}: {getattr(self, name):g} must be above 0")
        if self.events_backlog < 0:
            raise ValueError(f"events_backlog: {self.events_backlog} must not be negative")
        if self.backlog < self.concurrency:
            raise ValueError(f"backlog: {self.backlog} must not be less than concurrency ({self.concurrency})")
        if self.lease_duration_s != int(self.lease_duration_s):
            raise ValueError(f"lease_duration_s: {self.lease_duration_s:g} must be whole seconds, as a Lease has them")
        if self.lease_duration_s - MARGIN_S < 2 * self.lease_renew_s:
            raise ValueError(
                f"lease_duration_s: {self.lease_duration_s:g} must outlast two renewals and {MARGIN_S:g} s, "
                f"lease_renew_s is {self.lease_renew_s:g}"
            )
        if not self.lease_namespace or not self.lease_name:
            raise ValueError("lease_namespace, lease_name: must not be empty")
        if not 0 <= self.webhook_port < 65536:
            raise ValueError(f"webhook_port: {self.webhook_port} is not in 0..65535")
        tokens = {resource.token for resource in WATCHED}
        for index, resource in enumerate(self.also_watch):
            for field in ("version", "plural", "kind"):
                if not getattr(resource, field):
                    raise ValueError(f"also_watch[{index}].{field}: must not be empty")
            if not all(_NAME.fullmatch(part) for part in (resource.group or "core", resource.version, resource.plural)):
                raise ValueError(f"also_watch[{index}]: {resource.path()}: group, version and plural are DNS names")
            if resource.token in tokens:
                raise ValueError(f"also_watch[{index}]: {resource.plural}.{resource.group} is watched already")
            tokens.add(resource.token)
        if self.foreign_bindings != "observe" and not self.webhook_host:
            raise ValueError(f"webhook_host: must be named, for foreign_bindings is {self.foreign_bindings}")
