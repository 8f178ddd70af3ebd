"""Nodes, pods and an engine for tests, built the way the service builds them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from koord.scheduler.catalogue import Catalogue
from koord.scheduler.engine.cluster import Cluster, NodeInfo, Taint
from koord.scheduler.engine.placement import Engine, PodInfo
from koord.scheduler.framework.contract import Plugin
from koord.scheduler.framework.profile import Profile
from koord.scheduler.plugins.coscheduling import Coscheduling
from koord.scheduler.plugins.fit import FitSettings
from koord.scheduler.plugins.profile import default_profile
from koord.scheduler.podview import PodView

GIB = 1 << 30
_decoder = msgspec.json.Decoder(PodView)


class Bed:
    """A cluster with an engine on the shipped profile less ``disabled``; ``extra`` plugins take the place of its own of
    their name."""

    def __init__(
        self,
        *,
        seed: str = "",
        fit: FitSettings | None = None,
        extra: Sequence[Plugin] = (),
        disabled: frozenset[str] = frozenset(),
    ) -> None:
        self.cluster = Cluster(seed)
        self.coscheduling = Coscheduling()
        profile = default_profile(self.coscheduling, fit=fit, disabled=disabled)
        if extra:
            weights = {plugin.name: weight for plugin, weight in profile.scores}
            left = {plugin.name: plugin for plugin in extra}
            plugins = [left.pop(plugin.name, plugin) for plugin in profile.plugins]
            profile = Profile((*plugins, *left.values()), weights)
        self.profile = profile
        self.engine = Engine(self.cluster, profile)
        self.catalogue = Catalogue(self.cluster, profile)

    def node(
        self,
        name: str,
        *,
        cpu: int = 4000,
        memory: int = 16 * GIB,
        pods: int = 110,
        labels: Mapping[str, str] | None = None,
        taints: Sequence[tuple[str, str, str]] = (),
        unschedulable: bool = False,
        more: Mapping[str, int] | None = None,
    ) -> None:
        self.engine.set_node(
            NodeInfo(
                name,
                {"cpu": cpu, "memory": memory, "pods": pods, **(more or {})},
                labels or {},
                tuple(Taint(*taint) for taint in taints),
                unschedulable,
            )
        )

    def pod(self, name: str, spec: Mapping[str, Any] | None = None, **meta: Any) -> PodInfo:
        return self.catalogue.pod(pod_view(name, spec, **meta))


def pod_body(
    name: str,
    spec: Mapping[str, Any] | None = None,
    *,
    namespace: str = "default",
    uid: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> bytes:
    meta: dict[str, Any] = {"name": name, "namespace": namespace, "uid": uid or f"uid-{namespace}-{name}"}
    if labels:
        meta["labels"] = dict(labels)
    if annotations:
        meta["annotations"] = dict(annotations)
    return json.dumps({"metadata": meta, "spec": dict(spec) if spec is not None else requests()}).encode()


def pod_view(name: str, spec: Mapping[str, Any] | None = None, **meta: Any) -> PodView:
    return _decoder.decode(pod_body(name, spec, **meta))


def requests(cpu: str = "1", memory: str = "1Gi", **more: Any) -> dict[str, Any]:
    """A spec of one container; more resources by ``resources``, other fields of the spec as they are."""
    wanted = {"cpu": cpu, "memory": memory, **more.pop("resources", {})}
    wanted = {name: amount for name, amount in wanted.items() if amount}
    return {"containers": [{"name": "main", "resources": {"requests": wanted}}], **more}
