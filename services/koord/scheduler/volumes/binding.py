"""Where a pod can go for the sake of its claims, and which volume each claim would get there.

Spec 10 section 3.15, VolumeBinding. :func:`resolve` looks at the claims, once and again when something they depend on
changed; :meth:`Resolved.judge` answers for all rows of a window.
"""

from collections.abc import Iterable

import msgspec
import numpy as np

from koord.columns.matrix import Bools, Ints
from koord.kube.selectors import compile_label_selector
from koord.kube.storage import NO_PROVISIONER, PersistentVolume, PersistentVolumeClaim, StorageClass
from koord.scheduler.engine.nodeterms import NodeTerm, terms_mask
from koord.scheduler.engine.window import Window
from koord.scheduler.volumes.book import VolumeBook, amount
from koord.scheduler.volumes.claims import UNBOUND_IMMEDIATE, PodClaims, problem, waits_for_node
from koord.scheduler.volumes.places import NOTHING, Places
from koord.scheduler.volumes.pool import Ask, mode_bits
from koord.scheduler.volumes.stamps import of_capacity, of_claim, of_class, of_driver, of_gift, of_pool, of_volume

NODE_CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
NO_VOLUME = "node(s) didn't find available persistent volumes to bind"
NO_SPACE = "node(s) did not have enough free storage"
NO_SUCH_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"


class Delayed(msgspec.Struct, frozen=True, eq=False):
    """A claim that waits for a node. ``pinned``: the node for which its volume is being made already.

    ``gift``: a volume that is the claim's by its ``claimRef``, with where it can be reached.
    ``topologies``: nodes for which the class can make volumes; empty: for none.
    """

    claim: PersistentVolumeClaim
    size: int
    class_: str
    ask: Ask
    pinned: str | None
    gift: tuple[str, Places] | None
    topologies: Places
    checks_room: bool


class Choice(msgspec.Struct, frozen=True):
    """What a claim gets on the chosen node: a volume that exists, or (empty) one that is made for it."""

    claim: PersistentVolumeClaim
    volume: str = ""


class Verdict(msgspec.Struct):
    """Per row: is it possible, and why not. ``chosen[i]`` is the position of the volume that ``delayed[i]`` gets."""

    ok: Bools
    reasons: list[tuple[str, Bools]]
    chosen: list[Ints]


class Resolved(msgspec.Struct, frozen=True, eq=False):
    """The claims of a pod as they are. ``refusal``: why it fits nowhere."""

    refusal: str | None = None
    bound: tuple[Places | str, ...] = ()
    """Of bound claims: where the volume can be reached, or the name of a volume that does not exist."""
    delayed: tuple[Delayed, ...] = ()
    """Pinned ones first, then by size."""

    @property
    def anywhere(self) -> bool:
        """Whether the claims leave all nodes open."""
        return not self.delayed and all(place is None for place in self.bound)

    def judge(self, book: VolumeBook, window: Window) -> Verdict:
        """Where the pod can go."""
        size = window.size
        ok: Bools = np.ones(size, dtype=np.bool_)
        reasons: list[tuple[str, Bools]] = []
        for place in self.bound:
            if place is None:
                continue
            if isinstance(place, str):
                if ok.any():
                    reasons.append((NO_SUCH_VOLUME, ok))
                    ok = np.zeros(size, dtype=np.bool_)
                break
            reached = terms_mask(place, window)
            refused: Bools = ok & ~reached
            if refused.any():
                reasons.append((NODE_CONFLICT, refused))
            ok = ok & reached
        found, more, chosen = self._judge_delayed(book, window)
        return Verdict(ok & found, reasons + more, chosen)

    def _judge_delayed(self, book: VolumeBook, window: Window) -> tuple[Bools, list[tuple[str, Bools]], list[Ints]]:
        size = window.size
        ok: Bools = np.ones(size, dtype=np.bool_)
        if not self.delayed:
            return ok, [], []
        for one in self.delayed:
            if one.pinned is not None:
                ok &= _is_node(one.pinned, window)
        no_volume: Bools = ~ok
        no_space: Bools = np.zeros(size, dtype=np.bool_)
        chosen = self._choose(book, window)
        for one, positions in zip(self.delayed, chosen, strict=True):
            open_: Bools = ok & (positions == NOTHING)
            if not open_.any():
                continue
            makeable = _anywhere(one.topologies, window)
            bad: Bools = open_ & ~makeable
            no_volume |= bad
            ok &= ~bad
            if one.checks_room:
                cramped: Bools = open_ & makeable & ~book.capacity(one.class_).enough(one.size, window)
                no_space |= cramped
                ok &= ~cramped
        reasons = [(text, rows) for text, rows in ((NO_VOLUME, no_volume), (NO_SPACE, no_space)) if rows.any()]
        return ok, reasons, chosen

    def _choose(self, book: VolumeBook, window: Window) -> list[Ints]:
        """Per claim and row the volume it gets: -1 its gift, ``NOTHING`` none. Smaller claims choose first."""
        chosen: list[Ints] = []
        in_class: dict[str, list[Ints]] = {}
        for one in self.delayed:
            positions: Ints = np.full(window.size, NOTHING, dtype=np.int64)
            if one.pinned is None and one.gift is not None:
                positions[_anywhere(one.gift[1], window)] = -1
            elif one.pinned is None:
                pool = book.pool(one.class_)
                fits = pool.fitting(one.ask)
                if fits.any():
                    taken = in_class.setdefault(one.class_, [])
                    candidates = pool.index.first(fits, window, len(taken) + 1)
                    positions = _first_free(candidates, taken)
                    taken.append(positions)
            chosen.append(positions)
        return chosen

    def choices(self, book: VolumeBook, verdict: Verdict) -> list[Choice]:
        """What each claim gets on the first row of the verdict's window, where it must be possible."""
        found: list[Choice] = []
        for one, positions in zip(self.delayed, verdict.chosen, strict=True):
            position = int(positions[0])
            if position == NOTHING:
                found.append(Choice(one.claim))
            elif position < 0:
                assert one.gift is not None, "only gifts are chosen by -1"
                found.append(Choice(one.claim, one.gift[0]))
            else:
                found.append(Choice(one.claim, book.pool(one.class_).names[position]))
        return found


def resolve(claims: PodClaims, book: VolumeBook) -> tuple[Resolved, list[str]]:
    """What the claims are now, and the stamps that tell when that may have changed."""
    depends: list[str] = []
    bound: list[Places | str] = []
    delayed: list[Delayed] = []
    refusal: str | None = None
    immediate = False
    found: list[PersistentVolumeClaim] = []
    for use in claims.uses:
        depends.append(of_claim(use.key))
        claim = book.claims.get(use.key)
        refusal = refusal or problem(use, claim)
        if claim is not None:
            found.append(claim)
    for claim in found:
        if claim.bound:
            name = claim.spec.volume_name
            depends.append(of_volume(name))
            bound.append(book.where[name] if name in book.volumes else name)
            continue
        depends.append(of_class(claim.storage_class))
        if not waits_for_node(claim, book) or claim.spec.volume_name:
            immediate = True
            continue
        one, needs = _delayed(claim, book)
        depends += needs
        delayed.append(one)
    if refusal is None and immediate:
        refusal = UNBOUND_IMMEDIATE
    delayed.sort(key=lambda one: (one.pinned is None, one.size if one.pinned is None else 0))
    return Resolved(refusal, tuple(bound), tuple(delayed)), depends


def _delayed(claim: PersistentVolumeClaim, book: VolumeBook) -> tuple[Delayed, Iterable[str]]:
    spec, key, class_name = claim.spec, claim.key, claim.storage_class
    class_ = book.classes[class_name]
    size = amount(spec.resources.requests, f"PersistentVolumeClaim {key}: spec.resources.requests")
    selector = None if spec.selector is None else compile_label_selector(spec.selector)
    attributes = spec.volume_attributes_class_name or ""
    ask = Ask(size, mode_bits(spec.access_modes), spec.volume_mode == "Block", attributes, selector)
    pinned = book.selected_node(claim)
    depends = [of_gift(key), of_driver(class_.provisioner)]
    gift: tuple[str, Places] | None = None
    if pinned is None:
        depends.append(of_pool(class_name))
        for name in book.given_to(claim):
            depends.append(of_volume(name))
            if gift is None and _would_do(book.volumes[name], ask, class_name):
                gift = (name, book.where[name])
    driver = book.drivers.get(class_.provisioner)
    checks_room = size > 0 and driver is not None and bool(driver.spec.storage_capacity)
    if checks_room:
        depends.append(of_capacity(class_name))
    return Delayed(claim, size, class_name, ask, pinned, gift, _topologies(class_), checks_room), depends


def _would_do(volume: PersistentVolume, ask: Ask, class_: str) -> bool:
    """A volume that names the claim is the claim's unless it is too small or of another kind."""
    spec = volume.spec
    return (
        volume.storage_class == class_
        and volume.metadata.deletion_timestamp is None
        and amount(spec.capacity, "spec.capacity") >= ask.size
        and (spec.volume_mode == "Block") == ask.block
        and (spec.volume_attributes_class_name or "") == ask.attributes
    )


def _topologies(class_: StorageClass) -> Places:
    if class_.provisioner in ("", NO_PROVISIONER):
        return ()
    if not class_.allowed_topologies:
        return None
    return tuple(
        NodeTerm(tuple((test.key, "In", tuple(test.values)) for test in term.match_label_expressions))
        for term in class_.allowed_topologies
    )


def _anywhere(place: Places, window: Window) -> Bools:
    return np.ones(window.size, dtype=np.bool_) if place is None else terms_mask(place, window)


def _is_node(name: str, window: Window) -> Bools:
    row = window.cluster.index.find(name)
    if row is None:
        return np.zeros(window.size, dtype=np.bool_)
    here: Bools = np.zeros(window.cluster.high, dtype=np.bool_)
    here[row] = True
    return here[window.rows]


def _first_free(candidates: Ints, taken: list[Ints]) -> Ints:
    """On each row the first candidate that no earlier claim took; there is one more candidate than earlier claims."""
    free: Ints = np.full(candidates.shape[1], NOTHING, dtype=np.int64)
    for candidate in candidates[::-1]:
        usable = candidate != NOTHING
        for earlier in taken:
            usable &= candidate != earlier
        free = np.where(usable, candidate, free)
    return free
