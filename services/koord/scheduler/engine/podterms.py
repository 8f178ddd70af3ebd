"""The affinity terms that pods with a node carry: they concern pods to come as well ("symmetry").

Equal terms of many pods are one entry, which counts its pods per row. Which entries concern a class is found through
the one label that a term asks for by value.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from koord.kube.pods import Affinity
from koord.kube.selectors import SelectorError
from koord.scheduler.engine.podselectors import NO_TERMS, Labels, PodTerms, Term, pod_terms, selects_pods
from koord.scheduler.engine.tally import Tally

Role = Literal["affinity", "anti", "preferred"]
TermKey = tuple[Role, int, Term]


class CarriedTerm(Tally):
    """One distinct term with how many pods of each row carry it.

    ``weight``: of a preferred term its own, negative for anti-affinity; of a required one how often the pod has it.
    """

    __slots__ = ("carriers", "number", "role", "term", "weight")

    def __init__(self, key: TermKey, number: int) -> None:
        super().__init__()
        self.role, self.weight, self.term = key
        self.number = number
        self.carriers = 0


class CarriedTerms:
    """The distinct terms in force. ``epoch`` moves when one comes or goes, or a namespace gets other labels."""

    def __init__(self, namespaces: Mapping[str, Labels]) -> None:
        self.epoch = 0
        self.keys: set[str] = set()
        """Labels that the terms name, ever."""
        self._namespaces = namespaces
        self._terms: dict[TermKey, CarriedTerm] = {}
        self._posted: dict[tuple[str, str], dict[TermKey, CarriedTerm]] = {}
        self._loose: dict[TermKey, CarriedTerm] = {}
        self._numbers = 0
        self._parsed: dict[tuple[int, str, tuple[str | None, ...]], tuple[Affinity, PodTerms]] = {}
        self._most = 4096

    def __len__(self) -> int:
        return len(self._terms)

    def of(self, affinity: Affinity | None, namespace: str, labels: Labels) -> PodTerms:
        """The terms of a pod, parsed once for equal pods (which share ``affinity``); SelectorError as in
        ``pod_terms``."""
        if affinity is None or not selects_pods(affinity):
            return NO_TERMS
        key = (id(affinity), namespace, _own_labels(affinity, labels))
        found = self._parsed.get(key)
        if found is not None and found[0] is affinity:
            return found[1]
        made = pod_terms(affinity, namespace, labels)
        if len(self._parsed) >= self._most:
            self._parsed.clear()
        self._parsed[key] = (affinity, made)
        return made

    def carry(self, affinity: Affinity | None, namespace: str, labels: Labels) -> tuple[CarriedTerm, ...]:
        """The entries of a pod's terms, each once, held until :meth:`release`. Terms that do not parse are left out:
        the pod runs already."""
        try:
            terms = self.of(affinity, namespace, labels)
        except SelectorError:
            return ()
        if not terms:
            return ()
        keys: list[TermKey] = [("affinity", 1, term) for term in terms.affinity]
        keys += [("anti", 1, term) for term in terms.anti]
        keys += [("preferred", weight, term) for weight, term in terms.preferred]
        # A term that a pod has twice weighs twice.
        return tuple(self._hold(key, keys.count(key)) for key in dict.fromkeys(keys))

    def expect(self, affinity: Affinity | None, namespace: str, labels: Labels) -> tuple[CarriedTerm, ...]:
        """Of a pod that may come: the required terms against others, held until :meth:`release`. No pod of any row
        carries them yet, but classes that they concern look at them from now on."""
        try:
            terms = self.of(affinity, namespace, labels)
        except SelectorError:
            return ()
        keys: list[TermKey] = [("anti", 1, term) for term in terms.anti]
        return tuple(self._hold(key, keys.count(key)) for key in dict.fromkeys(keys))

    def release(self, carried: Iterable[CarriedTerm]) -> None:
        """The last pod of a kind that carried them went."""
        for entry in carried:
            entry.carriers -= 1
            if not entry.carriers:
                self._drop(entry)

    def concerning(self, namespace: str, labels: Labels) -> Iterator[CarriedTerm]:
        """The entries that mean pods of that namespace with those labels, in the order they came."""
        found = list(self._loose.values())
        for item in labels.items():
            found += self._posted.get(item, _NONE).values()
        of_namespace = self._namespaces.get(namespace, _NO_LABELS)
        for entry in sorted(found, key=lambda each: each.number) if len(found) > 1 else found:
            if entry.term.which.matches(namespace, labels, of_namespace):
                yield entry

    def concern(self, name: str, before: Labels, after: Labels) -> bool:
        """Whether some term means pods of a namespace with one of these labels and not with the other."""
        whiches = (entry.term.which for entry in self._terms.values())
        return any(which.matches_namespace(name, before) != which.matches_namespace(name, after) for which in whiches)

    def _hold(self, key: TermKey, times: int) -> CarriedTerm:
        role, weight, term = key
        key = (role, weight * times, term)
        entry = self._terms.get(key)
        if entry is None:
            self._numbers += 1
            entry = self._terms[key] = CarriedTerm(key, self._numbers)
            self.epoch += 1
            narrowest = term.which.narrowest()
            if narrowest is None:
                self._loose[key] = entry
            else:
                for value in narrowest[1]:
                    self._posted.setdefault((narrowest[0], value), {})[key] = entry
            if term.which.selector is not None:
                self.keys.update(test.key for test in term.which.selector.requirements)
        entry.carriers += 1
        return entry

    def _drop(self, entry: CarriedTerm) -> None:
        key: TermKey = (entry.role, entry.weight, entry.term)
        del self._terms[key]
        self.epoch += 1
        narrowest = entry.term.which.narrowest()
        if narrowest is None:
            del self._loose[key]
            return
        for value in narrowest[1]:
            posted = self._posted[(narrowest[0], value)]
            del posted[key]
            if not posted:
                del self._posted[(narrowest[0], value)]


_NONE: Mapping[TermKey, CarriedTerm] = {}
_NO_LABELS: Labels = {}


def _own_labels(affinity: Affinity, labels: Labels) -> tuple[str | None, ...]:
    """The pod's own labels that its terms refer to."""
    values: list[str | None] = []
    for side in (affinity.pod_affinity, affinity.pod_anti_affinity):
        if side is not None:
            for term in [*side.required, *(weighted.pod_affinity_term for weighted in side.preferred)]:
                values += [labels.get(key) for key in (*term.match_label_keys, *term.mismatch_label_keys)]
    return tuple(values)
