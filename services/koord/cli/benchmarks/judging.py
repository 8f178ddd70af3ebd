"""Whether a benchmark's work came to rest as it must: nothing lost, nothing done twice, nothing counted wrongly.

*Lost*: a pod without a node, a job that is not over. *Double*: a job admitted twice or with more pods than it has, and
what the checker finds in the history (a pod bound twice, a node or a quota above its room, a gang in part). *Drift*: an
item of the ledger that differs from a recount of the API's objects, or a record that is still open.
"""

import asyncio
import time

from koord.cli.benchmarks.arrivals import JOB_SIZE, NAMESPACE, Arrivals
from koord.cli.benchmarks.population import Population, until
from koord.cli.benchmarks.upprocess import UpProcess, say
from koord.cli.demo.recount import Drift, Recount, objects
from koord.cli.errors import CommandError
from koord.ledger.client import Ledger
from koord.ledger.model import LedgerUnavailable
from koord.localcluster.httpapi import HttpClusterApi

_STALL_S = 60.0
_REST_S = 60.0
_SHOWN = 10


class Judge:
    """Collects what is wrong; says each on standard error when it is found."""

    def __init__(self, up: UpProcess, api: HttpClusterApi, people: Population, arrivals: Arrivals) -> None:
        self._up = up
        self._api = api
        self._people = people
        self._arrivals = arrivals
        self.lost: list[str] = []
        self.doubled: list[str] = []
        self.drift: list[Drift] = []

    @property
    def clean(self) -> bool:
        """Whether nothing was wrong."""
        return not (self.lost or self.doubled or self.drift)

    def figures(self) -> dict[str, float]:
        """How many of each."""
        return {
            "lost": float(len(self.lost)),
            "double": float(len(self.doubled)),
            "drift": float(len(self.drift)),
        }

    async def rest(self, when: str) -> None:
        """Wait until all that was created is bound and over; judge that and the ledger. Then jobs count anew."""
        people = self._people
        if not await people.all_bound(_STALL_S):
            self._add(self.lost, [f"{when}: pod {key} has no node" for key in people.waiting])
            people.waiting.clear()
        units = {unit_of(name): name for name in self._arrivals.jobs}
        await until(lambda: units.keys() <= people.units_over, _REST_S)
        self._add(
            self.lost,
            [f"{when}: job {name} is not over" for unit, name in units.items() if unit not in people.units_over],
        )
        self._add(
            self.doubled,
            [
                f"{when}: job {name} was admitted {people.admissions[unit]} times and made {people.made[unit]} pods"
                for unit, name in units.items()
                if unit in people.units_over and (people.admissions[unit] > 1 or people.made[unit] != JOB_SIZE)
            ],
        )
        self._arrivals.jobs.clear()
        found = await audit(self._up, self._api, _REST_S)
        for one in found[:_SHOWN]:
            say(f"{when}: {one.item} {one.field}: the ledger has {one.ledger}, right is {one.right}")
        self.drift += found

    def finish(self) -> None:
        """Judge the history."""
        self._add(self.doubled, [f"{one.rule}: {one.subject}: {one.detail}" for one in self._people.violations()])

    def _add(self, where: list[str], found: list[str]) -> None:
        for line in found[:_SHOWN]:
            say(line)
        where += found


def unit_of(job: str) -> str:
    """The key of a job's QueueUnit."""
    return f"{NAMESPACE}/{job}-py-qu"


async def audit(up: UpProcess, api: HttpClusterApi, patience_s: float) -> list[Drift]:
    """Where the ledger differs from a recount of the API's objects, once it had ``patience_s`` to come to rest."""
    file = up.file()
    deadline = time.monotonic() + patience_s
    try:
        ledger = await Ledger.connect(file.redis, file.cluster, "bench-audit", wait_s=patience_s)
    except LedgerUnavailable as error:
        raise CommandError(f"the ledger cannot be read: {error}") from error
    async with ledger:
        while True:
            try:
                status, items = await ledger.status(), await ledger.items()
                found = Recount(await objects(api)).compare(items)
                records = {"held": status.held, "binding": status.binding, "closed": int(not status.open)}
            except LedgerUnavailable as error:
                found, records = [], {str(error): 1}
            if any(records.values()):
                found.append(Drift("records", "open", records, {}))
            if not found or time.monotonic() > deadline:
                return found
            await asyncio.sleep(0.5)
