"""What is shown of the quotas: sums and runtimes on the bus and on the objects. No I/O; nothing is decided here."""

from collections.abc import Callable, Iterable, Mapping

from koord.accounting.quotas import QuotaNode
from koord.contracts.quota import QuotaRuntime, QuotaState
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
from koord.quota.usage import LARGEST, Level, Sums, Usage
from koord.quota.writeback import patch_of

Of = Callable[[QuotaNode], Mapping[str, int]]


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
        self._published: dict[str, list[QuotaState] | None] = {}
        """What was published last of each tree; None: that it has no quotas any more did not go out."""

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
        self._published = dict.fromkeys(self._published)

    def compute(self) -> bool:
        """Sum up what changed; False if nothing did."""
        if not (self._usage.changed or self._stale):
            return False
        self._usage.changed = self._stale = False
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

    def runtimes(self, *, every: bool = False) -> list[QuotaRuntime]:
        """One message per tree whose numbers changed since the last call; ``every``: also of the others."""
        trees: dict[str, list[QuotaState]] = {}
        for name in sorted(self._quotas.tree):
            node = self._quotas.tree.get(name)
            sums = self._sums.get(name)
            if node is None or sums is None:
                continue
            parent = "" if node.parent == ROOT_QUOTA else node.parent
            least, most, runtime = _capped(node.min), _capped(node.max), _capped(self._runtime_of(node))
            limit = _capped(self._limit_of(node))
            limit = {} if limit == runtime else limit
            state = QuotaState(name, node.namespace, parent, least, most, runtime, sums.used, sums.request, limit)
            trees.setdefault(self._quotas.tree_of(name) or "_", []).append(state)
        messages = []
        for tree in sorted(trees.keys() | self._published.keys()):
            states = trees.get(tree, [])
            if not every and tree in self._published and states == self._published[tree]:
                continue
            if states:
                self._published[tree] = states
            else:
                del self._published[tree]  # told once that it is gone
            self._version += 1
            ceiling, by_runtime = str(self._limits.ceiling), self._limits.by_runtime
            messages.append(QuotaRuntime(tree, self._version, states, ceiling, by_runtime))
        return messages

    def unpublished(self, message: QuotaRuntime) -> None:
        """The message did not go out: it is due again."""
        self._published[message.tree] = None
        self._stale = True

    @property
    def trees(self) -> Iterable[str]:
        """The trees that were published, ``_`` for the default one."""
        return self._published

    def told(self, tree: str) -> bool:
        """Whether nothing is known that was not published."""
        return not (self._stale or self._usage.changed) and self._published.get(tree) is not None

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
