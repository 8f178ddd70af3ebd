"""What is shown of the quotas: sums and runtimes on the bus and on the objects. No I/O; nothing is decided here."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from koord.accounting.quotas import QuotaNode
from koord.contracts.codec import encode
from koord.contracts.quota import QuotaRuntime, QuotaState, encode_runtime, name_of_part
from koord.kube.protocol.quota import (
    ALLOCATED,
    CHILD_REQUEST,
    GUARANTEED,
    NON_PREEMPTIBLE_REQUEST,
    NON_PREEMPTIBLE_USED,
    PREFIX,
    REQUEST,
    ROOT_QUOTA,
    RUNTIME,
    SYSTEM_QUOTA,
    allows_lending,
)
from koord.kube.quotas import ElasticQuota
from koord.quota.inforce import InForce
from koord.quota.limits import LimitRules
from koord.quota.parts import Part, Told, split
from koord.quota.usage import LARGEST, Level, Sums, Usage
from koord.quota.writeback import patch_of

Of = Callable[[QuotaNode], Mapping[str, int]]
STEP = 64
"""So many quotas are encoded in one go."""


class Showing:
    """Sums as of the last :meth:`compute`; runtimes, pod limits and guarantees as ``runtime_of`` … tell them."""

    def __init__(
        self,
        quotas: InForce,
        usage: Usage,
        runtime_of: Of,
        limit_of: Of,
        guarantee_of: Callable[[str], tuple[Mapping[str, int], Mapping[str, int]]],
        weight_of: Callable[[str], Mapping[str, int]],
        limits: LimitRules,
    ) -> None:
        self._quotas, self._usage, self._limits = quotas, usage, limits
        self._runtime_of, self._limit_of, self._guarantee_of = runtime_of, limit_of, guarantee_of
        self._weight_of = weight_of
        self._sums: dict[str, Sums] = {}
        self._to_show: set[str] = set()
        self._stale = True
        self._version = 0
        self._news = False
        """Whether something was summed up that was not looked through for what is to be published."""
        self._published: dict[str, Told] = {}

    def stir(self, names: Iterable[str] = ()) -> None:
        """Runtimes changed, those of ``names`` among them."""
        self._stale = True
        self._to_show.update(names)

    def look_at(self, name: str) -> None:
        """The object changed: it may not show what it should."""
        self._to_show.add(name)

    def forget(self) -> None:
        """Another shows what it computes; :meth:`stir` with every quota before that begins here again."""
        self._to_show.clear()
        for told in self._published.values():
            told.parts = dict.fromkeys(told.parts)

    def compute(self) -> bool:
        """Sum up what changed; False if nothing did."""
        if not (self._usage.changed or self._stale):
            return False
        self._usage.changed = self._stale = False
        self._news = True
        before = self._sums
        tree = self._quotas.tree
        nodes = [node for name in tree if (node := tree.get(name)) is not None]
        self._sums = self._usage.sums(
            [Level(node.name, node.parent, node.min, node.max, allows_lending(node.labels)) for node in nodes]
        )
        self._to_show.update(name for name, sums in self._sums.items() if before.get(name) != sums)
        return True

    def sums_of(self, name: str) -> Sums | None:
        """What a quota's subtree uses and asks for."""
        return self._sums.get(name)

    @property
    def news(self) -> bool:
        """Whether :meth:`runtimes` may have something to say."""
        return self._news

    def runtimes(self, *, every: bool = False) -> Iterator[Part | None]:
        """The parts of trees whose numbers changed since the last time; ``every``: also the others.

        None in between, after little work: others may go on. What changes then is news for the next time.
        """
        self._news = False
        trees: dict[str, dict[str, bytes]] = {}
        all_sums = self._sums
        for count, name in enumerate(sorted(self._quotas.tree), 1):
            node = self._quotas.tree.get(name)
            sums = all_sums.get(name)
            if node is not None and sums is not None:
                trees.setdefault(self._quotas.tree_of(name) or "_", {})[name] = encode(self._state(node, sums))
            if not count % STEP:
                yield None
        for tree in sorted(trees.keys() | self._published.keys()):
            yield None
            yield from self._parts(tree, trees.get(tree, {}), every=every)

    def _parts(self, tree: str, states: Mapping[str, bytes], *, every: bool) -> Iterator[Part | None]:
        told = self._published.setdefault(tree, Told())
        parts = split(states, told.count)
        every = every or len(parts) != told.count  # whoever reads counts the parts of one and the same number
        told.count = count = len(parts)
        contents = dict(enumerate(parts)) | {part: [] for part in told.parts if part >= count}
        due = [part for part, content in contents.items() if every or told.parts.get(part) != content]
        told.parts |= dict.fromkeys(due)
        self._version += bool(due)
        version = self._version
        for part in due:
            if states and part < count:
                told.parts[part] = contents[part]
            else:
                del told.parts[part]  # told once that it is gone
            if not told.parts:
                del self._published[tree]
            yield Part(tree, part, version, self._body(tree, part, count, version, contents[part]), gone=not states)
            yield None

    def _body(self, tree: str, part: int, count: int, version: int, content: list[bytes]) -> bytes:
        ceiling, by_runtime = str(self._limits.ceiling), self._limits.by_runtime
        message = QuotaRuntime(name_of_part(tree, part), version, [], ceiling, by_runtime, part, count)
        return encode_runtime(message, content)

    def _state(self, node: QuotaNode, sums: Sums) -> QuotaState:
        parent = "" if node.parent == ROOT_QUOTA else node.parent
        least, most, runtime = _capped(node.min), _capped(node.max), _capped(self._runtime_of(node))
        limit = _capped(self._limit_of(node))
        limit = {} if limit == runtime else limit
        return QuotaState(node.name, node.namespace, parent, least, most, runtime, sums.used, sums.request, limit)

    def unpublished(self, part: Part) -> None:
        """The message did not go out: it is due again."""
        self._published.setdefault(part.tree, Told()).parts[part.part] = None
        self._news = True

    @property
    def trees(self) -> Iterable[str]:
        """The trees that were published, ``_`` for the default one."""
        return self._published

    def told(self, tree: str) -> bool:
        """Whether nothing is known that was not published."""
        return not (self._stale or self._usage.changed or self._news) and self.sent(tree)

    def sent(self, tree: str) -> bool:
        """Whether no part of what was shown last waits to be sent again."""
        return tree in self._published and None not in self._published[tree].parts.values()

    def status(self, most: int) -> Iterable[tuple[tuple[str, str, str, str], dict[str, Mapping[str, int]]]]:
        """Name, tree, is-parent and parent of the first ``most`` quotas by name, and what each shows, by field."""
        for name in sorted(self._quotas.tree)[:most]:
            node, sums = self._quotas.tree.get(name), self._sums.get(name)
            if node is None or sums is None:
                continue
            fields = {key.removeprefix(PREFIX): values for key, values in self.annotations(node, sums).items()}
            fields |= {"used": sums.used, "min": node.min, "max": node.max, "sharedWeight": self._weight_of(name)}
            own = str(node.is_parent).lower()
            yield (name, self._quotas.tree_of(name), own, node.parent), fields

    def patches(self) -> Iterable[tuple[ElasticQuota, dict[str, object]]]:
        """Quotas whose object does not show the sums, with the patch that makes it."""
        for name in list(self._to_show):
            found, sums = self._quotas.get(name), self._sums.get(name)
            patch = None
            if found is not None and sums is not None:
                patch = patch_of(found[1], sums.used, self.annotations(found[0], sums))
            if found is None or patch is None:
                self._to_show.discard(name)
            else:
                yield found[1], patch

    def annotations(self, node: QuotaNode, sums: Sums) -> dict[str, Mapping[str, int]]:
        """What the object of a quota is to show, by annotation."""
        allocated, guaranteed = self._guarantee_of(node.name)
        return {
            REQUEST: sums.request,
            CHILD_REQUEST: sums.child_request,
            RUNTIME: self._runtime_of(node),
            ALLOCATED: allocated,
            GUARANTEED: guaranteed,
            NON_PREEMPTIBLE_REQUEST: sums.kept_request,
            NON_PREEMPTIBLE_USED: sums.kept_used,
        }

    def overusable(self) -> Iterable[tuple[str, Mapping[str, int], Mapping[str, int]]]:
        """Name, used and runtime of every quota of which something may be taken back."""
        self.compute()
        for name, sums in self._sums.items():
            node = self._quotas.tree.get(name)
            if node is not None and name not in (ROOT_QUOTA, SYSTEM_QUOTA):
                yield name, sums.used, self._runtime_of(node)


def _capped(amounts: Mapping[str, int]) -> dict[str, int]:
    """Amounts beyond what the ledger and the wire can count, cut."""
    return {name: min(amount, LARGEST) for name, amount in amounts.items()}
