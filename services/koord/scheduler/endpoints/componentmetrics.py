"""``/metrics/slis`` and ``/metrics/resources``, as Kubernetes components have them beside ``/metrics``.

The second one has a line per pod and resource, which the scheduler's own metrics must not have. Only the replica that
writes the status of PodGroups answers it, so that a pod is told once however many share them; the others' is empty.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple
from weakref import WeakKeyDictionary

from koord.accounting.requests import pod_limits, pod_request
from koord.runtime.pages import Asked, Page, Pages
from koord.runtime.readiness import Readiness
from koord.scheduler.podshape import PodShape
from koord.scheduler.podview import PodView

MOST_PODS = 50_000
"""Pods that are told; what is more is left out, which a comment says."""
AT_ONCE = 500
KEPT_S = 10.0
_TEXT = "text/plain"
_UNITS = {"cpu": "cores", "memory": "bytes", "pods": "integer"}
_ENDED = frozenset(("Succeeded", "Failed"))


class _Amount(NamedTuple):
    resource: str
    unit: str
    value: str


_Amounts = tuple[tuple[_Amount, ...], tuple[_Amount, ...]]


class ComponentMetrics:
    """Both pages. ``pods`` by ``ns/name``; ``is_told`` says whether this replica is the one that tells of pods."""

    def __init__(
        self,
        pages: Pages,
        ready: Readiness,
        pods: Mapping[str, PodView],
        is_told: Callable[[], bool],
        scheduler: str,
    ) -> None:
        self._ready = ready
        self._pods = pods
        self._is_told = is_told
        self._scheduler = scheduler
        self._checks: Counter[tuple[str, str, str]] = Counter()
        self._amounts: WeakKeyDictionary[PodShape, _Amounts] = WeakKeyDictionary()
        self._lock = asyncio.Lock()
        self._kept = b""
        self._kept_at = float("-inf")
        pages.add("GET", "/metrics/slis", self._slis)
        pages.add("GET", "/metrics/resources", self._resources)

    # Health ---------------------------------------------------------------------------------------------------------

    async def _slis(self, asked: Asked) -> Page:
        """Every check is made now: each gate of readiness, and ``ping``, which is that this answers."""
        results = {("ping", "healthz"): True, ("ping", "readyz"): True}
        results |= {(name, "readyz"): met for name, met in self._ready.gates.items()}
        lines = ["# TYPE kubernetes_healthcheck gauge"]
        for (name, kind), met in sorted(results.items()):
            self._checks[name, "success" if met else "error", kind] += 1
            lines.append(f'kubernetes_healthcheck{{name="{name}",type="{kind}"}} {int(met)}')
        lines.append("# TYPE kubernetes_healthchecks_total counter")
        lines += [
            f'kubernetes_healthchecks_total{{name="{name}",status="{status}",type="{kind}"}} {count}'
            for (name, status, kind), count in sorted(self._checks.items())
        ]
        return Page(200, "\n".join([*lines, ""]).encode(), _TEXT)

    # Pods -----------------------------------------------------------------------------------------------------------

    async def _resources(self, asked: Asked) -> Page:
        """Made every ten seconds at most, a few hundred pods at a time, however often it is asked for."""
        if not self._is_told():
            return Page(200, b"", _TEXT)
        async with self._lock:
            if time.monotonic() - self._kept_at >= KEPT_S:
                self._kept = await self._told()
                self._kept_at = time.monotonic()
        return Page(200, self._kept, _TEXT)

    async def _told(self) -> bytes:
        requests: list[str] = ["# TYPE kube_pod_resource_request gauge\n"]
        limits: list[str] = ["# TYPE kube_pod_resource_limit gauge\n"]
        pods = [pod for pod in self._pods.values() if pod.status.phase not in _ENDED]
        for number, pod in enumerate(pods[:MOST_PODS], 1):
            self._tell(pod, requests, limits)
            if not number % AT_ONCE:
                await asyncio.sleep(0)
        if len(pods) > MOST_PODS:
            limits.append(f"# {len(pods) - MOST_PODS} pods are left out\n")
        return "".join((*requests, *limits)).encode()

    def _tell(self, pod: PodView, requests: list[str], limits: list[str]) -> None:
        meta, spec = pod.metadata, pod.spec
        if pod.shape is None:
            return
        name = _escaped(spec.scheduler_name or self._scheduler)
        of = f'namespace="{meta.namespace}",pod="{meta.name}",node="{spec.node_name}",scheduler="{name}"'
        of = f'{of},priority="{"" if spec.priority is None else spec.priority}"'
        for kind, amounts, lines in zip(("request", "limit"), self._of(pod.shape), (requests, limits), strict=True):
            lines += [
                f'kube_pod_resource_{kind}{{{of},resource="{one.resource}",unit="{one.unit}"}} {one.value}\n'
                for one in amounts
            ]

    def _of(self, shape: PodShape) -> _Amounts:
        """Pods of one shape ask for the same. A spec that cannot be read asks for nothing."""
        known = self._amounts.get(shape)
        if known is None:
            try:
                spec = shape.spec
                known = _amounts(pod_request(spec)), _amounts(pod_limits(spec))
            except ValueError:
                known = (), ()
            self._amounts[shape] = known
        return known


def _escaped(value: str) -> str:
    """The API takes any text as a scheduler's name."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _amounts(of: Mapping[str, int]) -> tuple[_Amount, ...]:
    """Cpu in cores, the rest in whole units."""
    return tuple(
        _Amount(
            name,
            _UNITS.get(name, "bytes" if "storage" in name or name.startswith("hugepages-") else "integer"),
            f"{amount / 1000:g}" if name == "cpu" else str(amount),
        )
        for name, amount in sorted(of.items())
        if amount and name != "pods"
    )
