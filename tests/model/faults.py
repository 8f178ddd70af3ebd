"""What may go wrong on the way."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from koord.ledger.model import LedgerUnavailable
from tests.model.apiserver import Sent
from tests.model.feeds import Feed
from tests.model.moves import Move

if TYPE_CHECKING:
    from tests.model.keepers import Queue, Quota
    from tests.model.play import Play


class Faults:
    """All that could go wrong, in a fixed order."""

    def __init__(self, play: "Play") -> None:
        self._play = play

    def all(self) -> list[Move]:
        return [*self._calls(), *self._decisions(), *self._messages(), *self._silences()]

    def _calls(self) -> Iterator[Move]:
        play = self._play
        away = LedgerUnavailable("as the model wants it")
        for gate in play.gates.shut:
            if "_v1 " in gate.label:
                yield Move(f"unavailable: {gate!r}", partial(play.gates.open, gate, away))
        for sent in play.api.under_way:
            yield Move(f"lost: {sent}", partial(play.api.lose, sent))
            if sent.response is None:
                if sent.binds:
                    yield Move(f"held up: {sent}", partial(self._hold_up, sent, 45.0))
                yield Move(f"not sent: {sent}", partial(play.api.lose, sent, certainly_unsent=True))
                for status in (429, 500, 422):
                    if status != 422 or sent.binds:
                        yield Move(f"{status}: {sent}", partial(play.api.refuse, sent, status))

    def _hold_up(self, what: Sent | Feed, seconds: float) -> None:
        what.held_until_s = self._play.loop.now + seconds

    def _decisions(self) -> Iterator[Move]:
        play = self._play
        decisions, moves = play.around.network.decisions, play.moves
        for message in decisions.on_the_way:
            if not message.awaited:
                yield Move(f"lost: {message}", partial(decisions.lose, message))
        for message in (*decisions.on_the_way, *decisions.unconfirmed):
            if message.awaited:
                yield Move(f"given up: {message}", partial(decisions.give_up, play.loop.now, at_once=message))
            if not message.copied:
                yield Move(f"late: {message}", partial(decisions.copy, message))
        for message in decisions.unconfirmed:
            yield Move(f"confirmation lost: {message}", partial(decisions.confirmation_lost, message))
        for message in decisions.copies:
            yield Move(f"lost: copy of {message}", partial(decisions.copies.remove, message))
            if moves.takes_decisions:
                yield Move(f"twice: copy of {message}", partial(moves.hand_out_copy, message, again=True))
        for stored in decisions.held:
            if stored.out and moves.takes_decisions:
                yield Move(f"again: {stored}", partial(moves.hand_out, stored))
        for stored in decisions.acknowledged[-3:]:
            yield Move(f"unacknowledged: {stored}", partial(decisions.again, stored))

    def _messages(self) -> Iterator[Move]:
        messages, moves = self._play.around.network.core, self._play.moves
        for core in messages[:3]:
            yield Move(f"lost: {core}", partial(messages.remove, core))
            yield Move(f"heard twice: {core}", partial(moves.hear, core, again=True))

    def _silences(self) -> Iterator[Move]:
        play = self._play
        for scheduler in play.schedulers:
            name = scheduler.actor.name
            if scheduler.actor.alive:
                yield Move(f"{name} repeats", partial(scheduler.upkeep, 31.0))
                yield Move(f"{name} gives up", partial(scheduler.plan, 700.0))
                dead = [one.actor.name for one in play.schedulers if not one.actor.alive]
                if dead:
                    yield Move(f"{name} retires {dead}", partial(scheduler.retire, dead))
        for one in play.owners:
            yield Move(f"{one.actor.name} was silent", partial(play.lapse, one.actor.name))
        keepers: tuple[Queue | Quota, ...] = (*play.queues, *play.quotas)
        if play.raw.exists(f"{{koord:{play.around.cluster}}}:offers"):
            yield Move("offers lapse", play.offers_lapse)
        for keeper in keepers:
            if keeper.actor.alive:
                yield Move(f"{keeper.actor.name} loses its lease", keeper.loses_its_lease)
        for reader in play.readers:
            if reader.actor.alive:
                for feed in reader.feeds[-3:]:
                    yield Move(f"{reader.actor.name} reads {feed.token} again", feed.renew)
                    if feed.behind:
                        label = f"slow: {reader.actor.name} with {feed.token}"
                        yield Move(label, partial(self._hold_up, feed, 25.0))
