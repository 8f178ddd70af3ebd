"""Settings of the gateway (section ``gateway``)."""

from typing import Literal

import msgspec


class GatewaySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``kubeconfig`` of the common settings says which API server; empty means the pod's service account.

    ``connections``: connections for writes. ``concurrency``: decisions executed at a time. ``backlog``: decisions that
    may wait in memory. ``events_backlog``, ``events_per_s``: bounds of Kubernetes Events. ``lease_*``: the Lease that
    elects the leader. ``api_timeout_s``: how long the API server may still work on a request whose sender is gone (its
    ``--request-timeout``); waited for only if the ledger and the stream of decisions are lost together.
    ``foreign_bindings``: ``observe`` what other schedulers bind, or ``claim`` it in the ledger before it is bound, for
    which the API server asks this process at ``webhook_host`` (``webhook_port`` 0: a free one); with ``require``
    nothing is bound that could not be claimed, be it because koord does not answer; but in ``spared_namespaces`` and
    in ``lease_namespace``: what koord and the nodes need to come back.
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
    lease_duration_s: float = 4.0
    lease_renew_s: float = 1.0
    foreign_bindings: Literal["observe", "claim", "require"] = "observe"
    spared_namespaces: tuple[str, ...] = ("kube-system",)
    webhook_host: str = "127.0.0.1"
    webhook_port: int = 0
