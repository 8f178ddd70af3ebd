"""What the quota service published last of each quota, put together from the parts of the trees.

Parts come one by one, and of a tree's parts some may be older than others. Nothing depends on their fitting together:
they are what a scheduler plans by, and the ledger judges every claim by its own limits.
"""

import msgspec

from koord.contracts.quota import QuotaRuntime


class _Told(msgspec.Struct):
    """The quotas of a tree by part; ``older``: told when it had another number of parts, or by an older writer."""

    count: int
    parts: dict[int, set[str]] = {}
    older: set[str] = set()


class Runtimes:
    """``of``: what each quota may use, by resource; ``asked``: what its pods ask for, where that was told."""

    def __init__(self) -> None:
        self.of: dict[str, dict[str, int]] = {}
        self.asked: dict[str, dict[str, int]] = {}
        self._told: dict[str, _Told] = {}

    def take(self, published: QuotaRuntime) -> set[str]:
        """Take in a part; the quotas of which something else is known than before.

        A quota is gone when its part comes without it; or, where the number of parts changed, once all of them came.
        """
        amounts = {state.name: state.limit or state.runtime for state in published.quotas}
        tree, part, count = published.whole, published.part, published.parts
        told = self._told.setdefault(tree, _Told(count))
        if told.count != count:
            told.older.update(*told.parts.values())
            told.count, told.parts = count, {}
        doubtful = told.parts.get(part, set()) - amounts.keys()
        if part < count:
            told.parts[part] = set(amounts)
        if len(told.parts) == count:
            doubtful |= told.older
            told.older = set()
        if not told.older and not any(told.parts.values()):
            del self._told[tree]
        changed = {name for name, runtime in amounts.items() if self.of.get(name) != runtime}
        self.of.update(amounts)
        self.asked.update((state.name, state.request) for state in published.quotas)
        if doubtful:
            for one in self._told.values():  # not if it moved to another part or tree that was published before
                doubtful.difference_update(one.older, *one.parts.values())
            for name in doubtful:
                self.asked.pop(name, None)
                if self.of.pop(name, None) is not None:
                    changed.add(name)
        return changed
