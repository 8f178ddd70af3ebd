"""Live copies, stream and replays in any order: a cache ends right, tells nothing twice or backwards."""

import asyncio
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koord.bus import statecache, unseen
from koord.bus.client import header_block
from koord.bus.connection import Bus
from koord.bus.livenotes import Rank, rank_of
from koord.bus.statecache import MARKER, Change, StateCache
from koord.contracts.state import HEADER, format_header
from koord.contracts.subjects import Subjects
from koord.kube.resources import PODS
from tests.bus.conftest import Thing, body

KEYS = ("a", "b", "c")


class Message(msgspec.Struct):
    """A state message; ``version`` is the object's resourceVersion and the test's ``size``."""

    type: str
    name: str
    version: int
    epoch: str
    sequence: int = 0


class World:
    """An API server's history, a gateway that publishes it, a stream, and one cache that reads it."""

    def __init__(self) -> None:
        self.bus = cast(Bus, _NoBus())
        self.cache = StateCache(self.bus, PODS, Thing, self.tell)
        self.history: list[Message] = []
        self.objects: dict[str, int] = {}
        self.version = 0
        self.epoch = 0
        # What the gateway published and the stream does not hold yet; what of that is not copied; the stream.
        self.pending: list[Message] = []
        self.uncopied: list[Message] = []
        self.log: list[Message] = []
        self.position = 0
        # What was told.
        self.shown: dict[str, Thing] = {}
        self.ranks: dict[str, Rank] = {}
        self.lied: set[str] = set()
        self.faults: list[AssertionError] = []

    # What the cache says ------------------------------------------------------------------------------------------

    def tell(self, change: Change[Thing]) -> None:
        try:
            self.judge(change)
        except AssertionError as error:  # a cache goes on whatever its callbacks raise
            self.faults.append(error)

    def judge(self, change: Change[Thing]) -> None:
        held = self.shown.get(change.key)
        if change.kind == "ADDED":
            assert held is None and change.new is not None
        elif change.kind == "MODIFIED":
            assert change.old == held is not None and change.new is not None
        else:
            assert change.new is None and (held is None or change.old == held)
        if change.new is not None:
            self.shown[change.key] = change.new
        else:
            self.shown.pop(change.key, None)
        if change.swept:
            assert change.key not in self.cache._notes._notes, "the stream has not shown it yet, no wonder"
            self.ranks.pop(change.key, None)  # taken back: it may come again
        else:
            rank = rank_of(change.kind, change.resource_version)
            assert rank is not None
            before = self.ranks.get(change.key)
            assert before is None or rank > before or change.key in self.lied, f"{change} after {before}"
            self.ranks[change.key] = rank

    # What may happen ----------------------------------------------------------------------------------------------

    def happen(self, number: int) -> None:
        """An object changes, and the gateway publishes it."""
        name = KEYS[number % len(KEYS)]
        self.version += 1
        kind = "ADDED" if name not in self.objects else ("MODIFIED", "DELETED")[number // len(KEYS) % 2]
        if kind == "DELETED":
            # Of some deletions only the last version that was seen is known.
            last = self.objects.pop(name)
            version = last if number // 6 % 2 else self.version
        else:
            version = self.objects[name] = self.version
        message = Message(kind, name, version, str(self.epoch))
        self.history.append(message)
        self.pending.append(message)
        self.uncopied.append(message)

    def copy(self, number: int) -> None:
        """Live copies of what the stream does not confirm: in order, of one object only the newest."""
        waiting, self.uncopied = self.uncopied, []
        newest = {message.name: message for message in waiting}
        for message in waiting:
            if newest[message.name] is message and message in self.pending:
                self.live(message)

    def straggle(self, number: int) -> None:
        """A copy comes late or twice, or a gateway that was deposed sends what it has seen long ago."""
        if self.history:
            self.live(self.history[number % len(self.history)])

    def lie(self, number: int) -> None:
        """A copy of what the stream will never show: the API server was set back."""
        name = KEYS[number % len(KEYS)]
        self.lied.add(f"default/{name}")
        self.live(Message(("MODIFIED", "DELETED")[number % 2], name, self.version + 500, str(self.epoch)))

    def store(self, number: int) -> None:
        """The stream takes the oldest message, unless a newer one of the object made the gateway give it up."""
        if not self.pending:
            return
        message = self.pending.pop(0)
        if number % 3 and any(other.name == message.name for other in self.pending):
            return
        self.append(message)
        if not number % 5:
            self.append(message)  # the answer was lost, it was sent again

    def deliver(self, number: int) -> None:
        """The consumer shows the next message."""
        if self.position < len(self.log):
            self.position += 1
            self.tell_cache(self.log[self.position - 1])

    def bypass(self, number: int) -> None:
        """A direct read shows the last messages behind the consumer, which brings them all the same."""
        for message in self.last(len(self.log)):
            if message.sequence > self.position:
                self.tell_cache(message)

    async def replay(self, number: int) -> None:
        """A new consumer, maybe at a replica that lags: the last message of each object, then the following ones."""
        await self.cache.starting()
        self.position = max(0, len(self.log) - number % 4)
        for message in self.last(self.position):
            self.tell_cache(message)
        self.mark()
        if self.position == len(self.log):
            self.cache.caught_up()
            return
        while self.position < len(self.log):
            self.deliver(0)
        self.cache.caught_up()

    async def void(self, number: int) -> None:
        """The stream has not borne out for 30 s what live copies told."""
        notes = self.cache._notes
        for key in notes._notes:
            self.ranks.pop(key, None)  # what is not borne out is forgotten, and told again if it comes after all
        notes._notes = {key: (rank, float("-inf")) for key, (rank, _) in notes._notes.items()}
        await self.replay(0)

    async def lose(self, number: int) -> None:
        """The stream is made anew, and the gateway lists again."""
        self.epoch += 1
        self.log = []
        self.position = 0
        self.pending = [
            Message("ADDED", name, version, str(self.epoch)) for name, version in sorted(self.objects.items())
        ]
        self.uncopied = list(self.pending)
        self.history += self.pending
        while self.pending:
            self.store(1)
        self.ranks.clear()  # everything may be told anew
        await self.replay(0)

    # How --------------------------------------------------------------------------------------------------------------

    def append(self, message: Message) -> None:
        self.log.append(msgspec.structs.replace(message, sequence=len(self.log) + 1))

    def last(self, end: int) -> list[Message]:
        newest = {message.name: message for message in self.log[:end]}
        return sorted(newest.values(), key=lambda message: message.sequence)

    def live(self, message: Message) -> None:
        subject = self.bus.subjects.live_of(self.bus.subjects.state("pods_core", "default", message.name))
        processed = self.cache._processed
        self.cache.live(subject.encode(), headers(message), body(message.name, message.version))
        assert self.cache._processed == processed, "a live copy is no place in the stream"

    def tell_cache(self, message: Message) -> None:
        subject = self.bus.subjects.state("pods_core", "default", message.name)
        self.cache.message(subject.encode(), headers(message), body(message.name, message.version), message.sequence)

    def mark(self) -> None:
        subject = self.bus.subjects.state("pods_core", MARKER, MARKER)
        marker = Message("ADDED", MARKER, 1, str(self.epoch))
        self.cache.message(subject.encode(), headers(marker), b"{}", 0)

    async def end(self) -> None:
        """Everything arrives; what was told is what the stream says, and that is what there is."""
        while self.pending:
            self.store(1)
        while self.position < len(self.log):
            self.deliver(0)
        await self.void(0)
        await self.replay(0)
        wanted = {f"default/{name}": version for name, version in self.objects.items()}
        assert {key: item.size for key, item in self.cache.items.items()} == wanted
        assert self.cache.items == self.shown
        assert not self.cache._notes
        await self.cache.close()
        if self.faults:
            raise self.faults[0]


class _NoBus:
    """A bus of which a cache that is told by hand needs nothing."""

    clustered = True
    connected = True

    def __init__(self) -> None:
        self.subjects = Subjects("model")
        self.nc = self


def headers(message: Message) -> bytes:
    return header_block((HEADER, format_header(cast(Any, message.type), str(message.version), message.epoch)))


STEPS = ("happen", "copy", "straggle", "store", "deliver", "bypass", "replay", "void", "lose", "lie")
# Rare ones are rare.
CHOICES = st.sampled_from(STEPS[:6] * 3 + STEPS)


@given(steps=st.lists(st.tuples(CHOICES, st.integers(0, 59)), max_size=60))
@settings(deadline=None, max_examples=300)
def test_in_any_order_a_cache_ends_in_what_the_stream_says(steps: list[tuple[str, int]]) -> None:
    async def play() -> None:
        world = World()

        async def life(*_: object) -> tuple[str, int]:
            return str(world.epoch), len(world.log)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(statecache, "state_life", life)
            patch.setattr(unseen, "SWEEP_AFTER_S", 0.0)
            await world.replay(0)
            for step, number in steps:
                if (more := getattr(world, step)(number)) is not None:
                    await more
            await world.end()

    asyncio.run(play())
