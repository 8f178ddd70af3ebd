"""The state stream, as each cache reads it: the last message of each object, then one change after the other."""

import json
from typing import Any

from koord.bus.client import header_block
from koord.bus.lastvalues import LastValues
from koord.bus.statecache import MARKER, StateCache
from koord.contracts.state import HEADER, format_header
from koord.contracts.subjects import Subjects
from koord.kube.resources import Resource
from tests.model.apiserver import ApiServer, Life, StateChange
from tests.model.stepping import Actor
from tests.model.streams import Network


class Feed:
    """What one cache has seen of one resource's stream. ``late`` is how much the first picture lacks at the end."""

    def __init__(
        self, server: ApiServer, actor: Actor, resource: Resource, cache: StateCache[Any], late: int = 0
    ) -> None:
        self.actor = actor
        self.resource = resource
        self.position = 0
        self.life = 0
        self.held_until_s = 0.0
        """The reader is slow, and comes to nothing more before that."""
        self._server = server
        self._cache = cache
        self._subjects = Subjects("model")
        self._marked = 0
        vars(cache._reader)["feed"] = self
        cache.epoch = "0"
        self._read(late)

    @property
    def token(self) -> str:
        return self.resource.token

    @property
    def lost(self) -> bool:
        """Whether the stream that it read is no more."""
        return self.life < len(self._server.lives) - 1

    @property
    def behind(self) -> bool:
        """Whether there is something to deliver."""
        return len(self._server.log(self.resource)) > self.position or self._marked < len(self._marks)

    @property
    def _marks(self) -> list[tuple[int, int, str]]:
        return self._server.marks.get(self.token, [])

    @property
    def _life(self) -> Life:
        return self._server.lives[self.life]

    def last(self) -> int:
        """The place of the last message of the resource that the stream has now."""
        life, log = self._server.lives[-1], self._server.log(self.resource)
        base = life.bases.get(self.token, 0)
        listed = max((number for number, _ in life.listed.get(self.token, {}).values()), default=0)
        changed = life.place(int(log[-1].version)) if len(log) > base else 0
        marked = max((life.place(version) for at, version, _ in self._marks if at >= base), default=0)
        return max(listed, changed, marked)

    def deliver(self, most: int) -> None:
        """The next changes arrive, and the marks between them."""
        with self.actor.within():
            for change in self._server.log(self.resource)[self.position : self.position + most]:
                self.position += 1
                self._tell(change, self._life.place(int(change.version)))
                self._tell_marks()
            self._tell_marks()
            self._cache.pause()

    async def renew(self) -> None:
        """A new consumer reads from the start, maybe of a new stream, and sweeps."""
        with self.actor.within():
            self.life = len(self._server.lives) - 1
            self._cache._reader._position = 0
            await self._cache.starting()
            self._read(0)
            self._cache.pause()

    def _read(self, late: int) -> None:
        log, life = self._server.log(self.resource), self._life
        base = life.bases.get(self.token, 0)
        self.position = max(base, self.position, len(log) - late)
        last: dict[tuple[str, str], int] = {}
        for index in range(base, self.position):
            last[log[index].key] = index
        with self.actor.within():
            for key, (number, change) in life.listed.get(self.token, {}).items():
                if key not in last:
                    self._tell(change, number)
            for index in sorted(last.values()):
                self._tell(log[index], life.place(int(log[index].version)))
            marks = [(version, mark) for at, version, mark in self._marks if base <= at <= self.position]
            self._marked = len([at for at, _, _ in self._marks if at <= self.position])
            version, mark = marks[-1] if marks else (0, "")
            self._tell_mark(mark, life.place(version) if marks else self._cache.position)
            self._cache.caught_up()

    def _tell_marks(self) -> None:
        for at, version, mark in self._marks[self._marked :]:
            if at > self.position:
                break
            self._marked += 1
            if at >= self._life.bases.get(self.token, 0):
                self._tell_mark(mark, self._life.place(version))

    def _tell_mark(self, mark: str, place: int) -> None:
        subject = self._subjects.state(self.token, MARKER, MARKER).encode()
        header = header_block((HEADER, format_header("ADDED", "1", str(self.life))))
        self._told(place)
        self._cache.message(subject, header, json.dumps({"mark": mark}).encode() if mark else b"", place)

    def _tell(self, change: StateChange, place: int) -> None:
        subject = self._subjects.state(self.token, change.namespace, change.name).encode()
        header = header_block((HEADER, format_header(change.type, change.version, str(self.life))))
        self._told(place)
        self._cache.message(subject, header, change.body, place)

    def _told(self, place: int) -> None:
        reader = self._cache._reader
        reader._position = max(reader._position, place)


class Values:
    """What one reader has seen of last values whose subjects have ``part`` in them."""

    def __init__(self, network: Network, actor: Actor, part: str, reader: LastValues[Any]) -> None:
        self._network = network
        self._actor = actor
        self._part = part
        self._reader = reader
        self._seen: dict[str, int] = {}
        self.deliver()

    @property
    def behind(self) -> bool:
        return bool(self._news())

    def deliver(self) -> None:
        """All of them arrive."""
        with self._actor.within():
            for subject, number, body in self._news():
                self._seen[subject] = number
                self._reader.message(subject.encode(), None, body, number)

    def _news(self) -> list[tuple[str, int, bytes]]:
        return [
            (subject, number, body)
            for subject, (number, body) in self._network.values.items()
            if self._part in subject and self._seen.get(subject) != number
        ]
