"""Reading the ledger: nothing here moves a record."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from typing import Any, Final, Literal, TypeVar, get_args

from koord.ledger import nominationwire, wire
from koord.ledger.model import MAX_MEMBERS, Fault, Item, LedgerDamaged, LedgerStatus, Record, Sums
from koord.ledger.nominations import Nomination

Part = Literal["counts", "claims", "slots", "records", "items"]
PARTS: Final[tuple[Part, ...]] = get_args(Part)
T = TypeVar("T")


class Reader(ABC):
    """The reading half of the client. All methods raise LedgerUnavailable when Redis cannot be reached."""

    async def status(self) -> LedgerStatus:
        """The ledger at a glance; also refreshes :attr:`epoch`."""
        status = wire.status(await self._call("status_v1"))
        self._learn(status.epoch)
        return status

    async def items(self, prefix: str = "") -> dict[str, Item]:
        """All items whose name begins with ``prefix``, read in slices: each item is consistent, all of them are not."""
        found: dict[str, Item] = {}
        cursor = "0"
        while True:
            cursor, rows = await self._call("items_v1", wire.pack((prefix, cursor)))
            found.update(_each(wire.item, rows))
            if cursor == "0":
                return found

    async def items_named(self, names: Collection[str]) -> dict[str, Item]:
        """The items with these names, as far as they exist, at one moment (4,096 a call); costs what is asked for."""
        found: dict[str, Item] = {}
        wanted = list(names)
        for first in range(0, len(wanted), MAX_MEMBERS):
            rows = await self._call("items_named_v1", wire.pack(wanted[first : first + MAX_MEMBERS]))
            found.update(_each(wire.item, rows))
        return found

    async def guards(self, names: Collection[str]) -> dict[str, int]:
        """The versions of these guards as they are now; 0 for one that was never raised."""
        wanted = list(names)
        versions: list[int] = await self._call("guards_v1", wire.pack(wanted))
        return dict(zip(wanted, map(int, versions), strict=True))

    async def sums(self, names: Collection[str]) -> dict[str, Sums]:
        """What these items and the records say of each other at one moment; reads every record, so: rarely."""
        _, rows = await self._call("sums_v1", wire.pack(list(names)))
        return dict(_each(wire.sums, rows))

    async def faults(self, of: Collection[Part] = PARTS) -> AsyncIterator[Fault]:
        """What is damaged though every sum may be right; read in slices, ``counts`` alone costs next to nothing."""
        for part in of:
            cursor = "0"
            while True:
                cursor, rows = await self._call("faults_v1", wire.pack((part, cursor)))
                for row in rows or ():
                    yield Fault(*row)
                if cursor == "0":
                    break

    async def owners(self) -> set[str]:
        """The incarnations that have HELD claims."""
        return set(await self._call("owners_v1"))

    async def record(self, uid: str) -> Record | None:
        """The record of a pod or QueueUnit."""
        rows = await self._call("records_v1", wire.pack([uid]))
        return next(_each(wire.record, rows), None)

    async def records(self) -> AsyncIterator[Record]:
        """All records, read in slices; one that changes meanwhile is seen at least once if it stays."""
        async for record in self._scan("scan_records_v1", wire.record):
            yield record

    async def binding(self) -> AsyncIterator[Record]:
        """The records that are BINDING, read in slices as :meth:`records`; costs what is in flight, not what runs."""
        async for record in self._scan("scan_binding_v1", wire.record):
            yield record

    async def flights(self) -> AsyncIterator[Record]:
        """The records that are HELD or BINDING, read in slices as :meth:`binding`."""
        async for record in self._scan("scan_flights_v1", wire.record):
            yield record

    async def records_of(self, uids: Collection[str]) -> dict[str, Record]:
        """The records of those of these pods or QueueUnits that have one; costs what is asked for."""
        wanted = list(uids)
        found: dict[str, Record] = {}
        for first in range(0, len(wanted), MAX_MEMBERS):
            rows = await self._call("records_v1", wire.pack(wanted[first : first + MAX_MEMBERS]))
            found.update({record.uid: record for record in _each(wire.record, rows)})
        return found

    async def nominations(self) -> AsyncIterator[Nomination]:
        """The nominated pods, read in slices as :meth:`records`."""
        async for found in self._scan("scan_nominated_v1", nominationwire.nomination):
            yield found

    # ---- inside ----

    async def _scan(self, function: str, decode: Callable[[Any], T]) -> AsyncIterator[T]:
        cursor = "0"
        while True:
            cursor, rows = await self._call(function, wire.pack((cursor,)))
            for one in _each(decode, rows):
                yield one
            if cursor == "0":
                return

    @abstractmethod
    def _learn(self, epoch: int) -> None:
        """An answer named the epoch."""

    @abstractmethod
    async def _call(self, function: str, *arguments: bytes) -> Any:
        """What a function answers, unpacked."""


def _each(decode: Callable[[Any], T], rows: Iterable[Any]) -> Iterator[T]:
    """What was stored, decoded; LedgerDamaged for what nobody of koord has stored."""
    for row in rows or ():
        try:
            yield decode(row)
        except (ValueError, TypeError, LookupError, OverflowError, AttributeError) as error:
            raise LedgerDamaged(f"{str(row)[:80]}: cannot be read: {error}") from error
