"""Resources that NodeResourcesFit ignores are not held against a claim either: whoever manages them (an extender) says
where there are any. They are counted, so that what a pod took is known once a node offers them."""

from collections.abc import Callable

from koord.accounting.takes import NODE, Take
from koord.scheduler.framework.profile import Profile
from koord.scheduler.plugins.fit import NodeResourcesFit

Ignores = Callable[[str], bool]


def ignores_of(profile: Profile) -> Ignores | None:
    """Which resources of a node do not count under a profile; None: all count."""
    fit = next((plugin for plugin in profile.plugins if isinstance(plugin, NodeResourcesFit)), None)
    return fit.ignored if fit is not None and fit.ignores else None


def unchecked(takes: tuple[Take, ...], ignores: Ignores) -> tuple[Take, ...]:
    """The same amounts, with those of a node that are ignored in takes that never refuse."""
    split: list[Take] = []
    for take in takes:
        ignored = {name: amount for name, amount in take.amounts.items() if ignores(name)}
        if not ignored or not take.checked or not take.item.startswith(NODE):
            split.append(take)
            continue
        split.append(Take(take.item, {name: amount for name, amount in take.amounts.items() if name not in ignored}))
        split.append(Take(take.item, ignored, checked=False))
    return tuple(split)
