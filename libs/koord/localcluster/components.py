"""Starts fake kubelets and stand-in operators on a `ClusterApi`.

That is in the API server's process, or over HTTP beside a real cluster.
"""

import argparse
import asyncio
from typing import Annotated, Any

import msgspec

from koord.localcluster.clusterapi import ClusterApi
from koord.localcluster.kubelets.fleet import WRITERS, Fleet
from koord.localcluster.kubelets.options import KubeletOptions
from koord.localcluster.operators.batchjob import JobOperator
from koord.localcluster.operators.kubeflow import PYTORCHJOB, TFJOB, KubeflowOperator
from koord.localcluster.operators.plan import Operator
from koord.localcluster.operators.rayjob import RayJobOperator
from koord.localcluster.operators.runner import OperatorRunner
from koord.telemetry.logs import get_logger

_log = get_logger(__name__)

KINDS = ("Job", "TFJob", "PyTorchJob", "RayJob")


class OperatorOptions(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Which operators run, and the first wait before a Job's failed pod is replaced (a real cluster waits 10 s)."""

    kinds: tuple[str, ...] = KINDS
    job_backoff_s: Annotated[float, msgspec.Meta(ge=0)] = 1.0

    def __post_init__(self) -> None:
        for kind in self.kinds:
            if kind not in KINDS:
                raise ValueError(f"kinds: {kind!r} is not one of {', '.join(KINDS)}")


class Options(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Options of the components, as JSON: `{"kubelets": {"nodes": 100}, "operators": {...}}`; null leaves one out."""

    kubelets: KubeletOptions | None = KubeletOptions()
    operators: OperatorOptions | None = OperatorOptions()

    @classmethod
    def parse(cls, text: str | bytes) -> "Options":
        """From JSON; `ValueError` names the field and the rule."""
        try:
            return msgspec.json.decode(text, type=cls)
        except msgspec.DecodeError as error:
            raise ValueError(f"components: {error}") from None


_running: set["Components"] = set()
"""Keeps them alive for callers who let go of what `start` answered: tasks alone are not held by the loop."""


class Components:
    """The running components."""

    def __init__(self, fleet: Fleet | None, runner: OperatorRunner | None) -> None:
        self.fleet = fleet
        self.runner = runner
        _running.add(self)
        self._watchdog = asyncio.create_task(self._watch(), name="components: watchdog")

    def counts(self) -> dict[str, int]:
        """Nodes, pods by stage, operator decisions and created pods."""
        counts = self.fleet.counts() if self.fleet is not None else {}
        if self.runner is not None:
            counts["decisions"] = self.runner.decisions
            counts["pods_created"] = self.runner.pods_created
        return counts

    async def failed(self) -> None:
        """Wait until a component fails, and raise its error; never returns otherwise."""
        await asyncio.shield(self._watchdog)

    async def stop(self) -> None:
        """Stop all; the cluster's objects stay."""
        _running.discard(self)
        self._watchdog.cancel()
        await asyncio.wait({self._watchdog})
        if self.runner is not None:
            await self.runner.stop()
        if self.fleet is not None:
            await self.fleet.stop()

    async def _watch(self) -> None:
        tasks: list[asyncio.Task[Any]] = []
        for part in (self.fleet, self.runner):
            if part is not None:
                tasks += part.tasks
        if not tasks:
            await asyncio.Event().wait()
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        task = done.pop()
        error = None if task.cancelled() else task.exception()
        _log.error("component failed", task=task.get_name(), error=repr(error))
        raise error or RuntimeError(f"{task.get_name()} ended")


async def start(api: ClusterApi, options: Options, *, writers: int = WRITERS) -> Components:
    """Start what `options` ask for; returns when all nodes are registered and the pods on them taken over.

    `writers` says how many writes of each component may be under way at a time: more over HTTP, where each waits.
    """
    fleet = runner = None
    if options.kubelets is not None:
        fleet = Fleet(api, options.kubelets, writers)
        await fleet.start()
    if options.operators is not None:
        runner = OperatorRunner(api, _operators(options.operators), writers)
        runner.start()
    return Components(fleet, runner)


def _operators(options: OperatorOptions) -> list[Operator]:
    every: tuple[Operator, ...] = (
        JobOperator(options.job_backoff_s),
        KubeflowOperator(TFJOB),
        KubeflowOperator(PYTORCHJOB),
        RayJobOperator(),
    )
    return [operator for operator in every if operator.kind in options.kinds]


def parse_options(arguments: argparse.Namespace, rest: list[str]) -> Options:
    """Options from the API server's command line; exits with 2 on a bad one.

    `arguments.nodes` is its `--nodes`; `rest` may have `--gpu-nodes N` and `--components JSON` (which wins).
    """
    parser = argparse.ArgumentParser(prog="python -m koord.localcluster.api", allow_abbrev=False, add_help=False)
    parser.add_argument("--components", default="{}")
    parser.add_argument("--gpu-nodes", type=int)
    given = parser.parse_args(rest)
    flags = {"nodes": getattr(arguments, "nodes", 0) or None, "gpu_nodes": given.gpu_nodes}
    try:
        value = msgspec.json.decode(given.components)
        kubelets = value.get("kubelets", {}) if isinstance(value, dict) else None
        if isinstance(kubelets, dict):
            value["kubelets"] = {name: flag for name, flag in flags.items() if flag is not None} | kubelets
        return Options.parse(msgspec.json.encode(value))
    except ValueError as error:
        parser.error(f"--components: {error}")
