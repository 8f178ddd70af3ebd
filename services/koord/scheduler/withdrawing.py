"""Claims that were accepted and break a rule beside what others claimed before: taken back before anything is bound.

The ledger knows amounts, slots and who came first, not which pods may be near each other. So every claim of pods under
such rules is judged once more when its answer tells of pods that were placed before it and did not count yet. Where no
other scheduler claims, the answer tells of none and nothing is judged twice.
"""

from collections.abc import Sequence

import msgspec

from koord.bus.errors import BusError
from koord.contracts.ledger import LedgerHint
from koord.ledger.client import Ledger
from koord.ledger.model import ClaimAnswer, ClaimRequest, LedgerUnavailable, Release
from koord.scheduler.binds import Binds
from koord.scheduler.claiming import Planned
from koord.scheduler.engine.rejudging import Rejudging, repels
from koord.scheduler.outgoing import Outgoing
from koord.scheduler.rivals import Rivals
from koord.telemetry.logs import Logger

UNKNOWN = "a pod that another scheduler placed is not known yet"
_encode = msgspec.json.Encoder().encode


class Withdrawing:
    """Marks claims of pods with rules, and finds those that cannot stand."""

    def __init__(
        self,
        rivals: Rivals,
        rejudging: Rejudging,
        *,
        ledger: Ledger,
        binds: Binds,
        outgoing: Outgoing,
        log: Logger,
    ) -> None:
        self.rivals = rivals
        self._rejudging = rejudging
        self._ledger = ledger
        self._binds = binds
        self._outgoing = outgoing
        self._log = log

    def marked(self, plan: Planned, request: ClaimRequest, now: float) -> ClaimRequest:
        """The claim with what the ledger is to tell its planner, and others of it."""
        sees = keeps_off = False
        given: dict[str, str] | None = None
        for pod, placed in plan.members:
            sees = sees or self._rejudging.looks_around(pod, placed)
            keeps_off = keeps_off or repels(pod)
            if placed.annotations:
                given = given or {}
                given[pod.uid] = _encode(dict(placed.annotations)).decode()
        if not sees and not keeps_off:
            return request
        if sees:
            self.rivals.interested(now)
        return msgspec.structs.replace(request, sees=sees, repels=keeps_off, given=given)

    async def faults(
        self, plans: Sequence[Planned], requests: Sequence[ClaimRequest], answers: Sequence[ClaimAnswer], came: int
    ) -> dict[str, str]:
        """By claim, why it could not stand: it was given back, and its pods are planned anew. ``came`` is what
        ``rivals.came`` was before the pods were planned."""
        rivals = self.rivals
        rivals.absorb()
        accepted = [
            (plan, request, answer)
            for plan, request, answer in zip(plans, requests, answers, strict=True)
            if answer.status == "ok"
        ]
        known = True
        if rivals.missing or rivals.lost:
            known = await rivals.known()
        if known and rivals.came == came:
            return {}
        faults: dict[str, str] = {}
        releases: list[Release] = []
        uids: list[str] = []
        for plan, request, answer in accepted:
            unknown = not known and (request.sees or rivals.lost or rivals.missing_repels)
            text = UNKNOWN if unknown else ""
            for pod, placed in plan.members:
                text = text or self._rejudging.fault(pod, placed)
            if text:
                faults[request.id] = text
                releases.append(Release(request.id, answer.token))
                uids += [pod.uid for pod, _ in plan.members]
        if releases:
            await self._give_back(releases, uids)
        return faults

    async def _give_back(self, releases: Sequence[Release], uids: list[str]) -> None:
        self._log.info("claims are taken back: others placed pods that forbid them", claims=len(releases))
        try:
            answers = await self._ledger.release(releases)
        except LedgerUnavailable:
            for release in releases:
                self._binds.release(release)
            return
        items = sorted({item for answer in answers for item in answer.items})
        try:
            await self._outgoing.hint(LedgerHint("released", items, uids))
        except BusError as error:
            self._log.warning("nobody was told what was taken back", error=str(error))
