"""What plugins derived from objects of the book for a class of pods, kept as long as the objects do not change."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from koord.scheduler.volumes.book import VolumeBook
from koord.scheduler.volumes.claims import PodClaims

T = TypeVar("T")

KEEP = 1024
"""More than the engine keeps rankings."""


class Kept(Generic[T]):
    """A value with the book's clock when it was derived."""

    __slots__ = ("at", "checked", "depends", "value")

    def __init__(self, value: T, depends: tuple[str, ...], at: int) -> None:
        self.value = value
        self.depends = depends
        self.at = at
        self.checked = at


class Derived(Generic[T]):
    """``derive`` answers the value for the claims of a pod, and the stamps that it depends on."""

    def __init__(
        self, book: VolumeBook, derive: Callable[[PodClaims, VolumeBook], tuple[T, Iterable[str]]], keep: int = KEEP
    ) -> None:
        self._book = book
        self._derive = derive
        self._keep = keep
        self._kept: OrderedDict[PodClaims, Kept[T]] = OrderedDict()

    def of(self, claims: PodClaims) -> Kept[T]:
        """The value as of now; ``at`` is another number whenever the value may be another one."""
        book = self._book
        clock = book.stamps.clock
        found = self._kept.get(claims)
        if found is not None:
            if found.checked == clock:
                return found
            at = found.at
            if all(book.stamps.of(name) <= at for name in found.depends):
                found.checked = clock
                return found
        value, depends = self._derive(claims, book)
        made = self._kept[claims] = Kept(value, tuple(dict.fromkeys(depends)), clock)
        self._kept.move_to_end(claims)
        if len(self._kept) > self._keep:
            self._kept.popitem(last=False)
        return made
