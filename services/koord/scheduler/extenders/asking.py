"""Asking extenders about one pod, as upstream does: filters one after the other, each about what the one before left;
then those that rate, all at once, unless there is but one node left to choose.

An extender that may be ignored and fails is passed over; one that fails to rate adds nothing; any other failure is the
pod's error. ``managedResources`` say whose pods an extender looks at.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from koord.kube.pods import PodSpec
from koord.scheduler.config.extenders import ExtenderConfig
from koord.scheduler.engine.advice import Advice
from koord.scheduler.engine.classes import SchedulingClass
from koord.scheduler.extenders import metrics, wire
from koord.scheduler.extenders.client import ExtenderClient, ExtenderError
from koord.telemetry.context import TraceContext
from koord.telemetry.logs import Logger

SCALE = 100 // 10
"""Plugins rate from 0 to 100, extenders from 0 to 10."""

LONG_ANSWER = 1 << 18
LOG_EVERY_S = 1.0

T = TypeVar("T")


class Question(NamedTuple):
    """One pod (its JSON) and the nodes that plugins leave it; ``bodies`` has the JSON of nodes by name."""

    pod: bytes
    nodes: tuple[str, ...]
    bodies: Mapping[str, bytes]
    trace: TraceContext


class Extenders:
    """All extenders of a configuration. Those that may be ignored are asked last, as upstream has it."""

    def __init__(self, clients: Sequence[ExtenderClient], log: Logger) -> None:
        self.clients = tuple(sorted(clients, key=lambda client: client.config.ignorable))
        self._log = log
        self._logged: dict[str, float] = {}
        self._interested: WeakKeyDictionary[SchedulingClass, tuple[ExtenderClient, ...]] = WeakKeyDictionary()

    def interested(self, class_: SchedulingClass) -> tuple[ExtenderClient, ...]:
        """Those that look at pods of the class."""
        class_ = class_.base or class_
        found = self._interested.get(class_)
        if found is None:
            spec = class_.template.spec
            found = tuple(client for client in self.clients if looks_at(client.config, spec))
            self._interested[class_] = found
        return found

    def chooses(self, class_: SchedulingClass) -> bool:
        """Whether somebody has to be asked where pods of the class may go."""
        configs = (client.config for client in self.interested(class_))
        return any(config.filter_verb or config.prioritize_verb for config in configs)

    @property
    def reads_nodes(self) -> bool:
        """Whether some extender wants to be shown whole nodes."""
        return any(
            not config.node_cache_capable and bool(config.filter_verb or config.prioritize_verb)
            for config in (client.config for client in self.clients)
        )

    async def ask(self, class_: SchedulingClass, question: Question) -> Advice:
        """What they say of a pod of the class."""
        clients = self.interested(class_)
        shown = frozenset(question.nodes)
        left = question.nodes
        refused: dict[str, tuple[str, bool]] = {}
        for client in clients:
            if not left:
                break
            if not client.config.filter_verb:
                continue
            try:
                found = await self._filter(client, question, left)
            except ExtenderError as error:
                if self._ignored(client, client.config.filter_verb, error):
                    continue
                return Advice(shown, {}, error=str(error))
            passed = frozenset(found.passed)
            for name in left:
                if name in passed:
                    continue
                if name in found.unresolvable:
                    refused[name] = (found.unresolvable[name], False)
                elif name in found.failed:
                    refused[name] = (found.failed[name], True)
                else:
                    refused[name] = (f"node(s) were left out by extender {client.name}", False)
            left = found.passed
        scores = dict.fromkeys(left, 0)
        if len(left) > 1:
            for rated in await asyncio.gather(*(self._rate(client, question, left) for client in clients)):
                for name, score in rated.items():
                    if name in scores:
                        scores[name] += score
        return Advice(shown, scores, refused)

    async def _filter(self, client: ExtenderClient, question: Question, nodes: tuple[str, ...]) -> wire.Filtered:
        verb, by_name = client.config.filter_verb, client.config.node_cache_capable
        body = await client.ask(verb, _args(client.config, question, nodes), question.trace)
        found = await _read(client, verb, body, lambda: wire.read_filter(body, nodes, by_name=by_name))
        if isinstance(found, str):
            raise ExtenderError(f"extender {client.name}: {found}")
        return found

    async def _rate(self, client: ExtenderClient, question: Question, nodes: tuple[str, ...]) -> dict[str, int]:
        verb, factor = client.config.prioritize_verb, client.config.weight * SCALE
        if not verb:
            return {}
        try:
            body = await client.ask(verb, _args(client.config, question, nodes), question.trace)
            found = await _read(client, verb, body, lambda: wire.read_priorities(body))
        except ExtenderError as error:
            self.passed_over(client, verb, error)
            return {}
        return {name: score * factor for name, score in found.items()}

    def _ignored(self, client: ExtenderClient, verb: str, error: ExtenderError) -> bool:
        if not client.config.ignorable:
            return False
        self.passed_over(client, verb, error)
        return True

    def passed_over(self, client: ExtenderClient, verb: str, error: ExtenderError) -> None:
        """Count a failure that is ignored; log those of an extender once a second at most."""
        metrics.ignored.labels(client.name, verb).inc()
        now = time.monotonic()
        if now - self._logged.get(client.name, float("-inf")) >= LOG_EVERY_S:
            self._logged[client.name] = now
            self._log.warning(
                "an extender failed and is passed over", extender=client.name, verb=verb, error=str(error)
            )

    async def close(self) -> None:
        """End all connections."""
        for client in self.clients:
            await client.close()


def looks_at(config: ExtenderConfig, spec: PodSpec) -> bool:
    """Whether an extender looks at pods of this spec: one of their containers names a resource that it manages."""
    if not config.managed:
        return True
    managed = frozenset(config.managed)
    return any(
        not managed.isdisjoint(container.resources.requests) or not managed.isdisjoint(container.resources.limits)
        for container in (*spec.containers, *spec.init_containers)
    )


def _args(config: ExtenderConfig, question: Question, nodes: Sequence[str]) -> bytes:
    if config.node_cache_capable:
        return wire.args_by_name(question.pod, nodes)
    bodies = question.bodies
    return wire.args_by_object(question.pod, [bodies[name] for name in nodes if name in bodies])


async def _read(client: ExtenderClient, verb: str, body: bytes, read: Callable[[], T]) -> T:
    """What ``read`` makes of an answer, away from the loop if it is long. ExtenderError: the answer is none."""
    try:
        return await asyncio.to_thread(read) if len(body) > LONG_ANSWER else read()
    except wire.WireError as error:
        raise ExtenderError(f"extender {client.name}: {verb}: the answer {error}") from error
