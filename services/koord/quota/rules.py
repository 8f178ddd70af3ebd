"""Whether an ElasticQuota may come into force (spec 20 section 3.10); the tree itself judges quantities and chains.

A quota that breaks a rule changes nothing: its last good version stays in force, and an event says what is wrong.
"""

from koord.accounting.quotas import QuotaTree, QuotaTreeError
from koord.kube.protocol.quota import PARENT, AnnotationError
from koord.kube.quantity import QuantityError
from koord.kube.quotas import ElasticQuota


class QuotaError(ValueError):
    """An ElasticQuota that cannot come into force; names the quota, the field and the rule."""


def enforce(tree: QuotaTree, quota: ElasticQuota, last_good: ElasticQuota | None) -> bool:
    """Put ``quota`` into force; True if that changed the tree.

    QuotaError when a quantity is impossible or negative, min is above max, or its parents would form a cycle; the tree
    is then as with ``last_good`` (None: without it).
    """
    try:
        changed = tree.set(quota)
    except (QuantityError, AnnotationError) as error:
        text = str(error)
        raise QuotaError(text if text.startswith("ElasticQuota ") else f"ElasticQuota {quota.key}: {text}") from error
    try:
        tree.chain(quota.metadata.name)
    except QuotaTreeError as error:
        if error.reason != "cycle":
            return changed  # a missing ancestor may still come; units of the quota wait until it does
        cycle = _cycle(tree, quota.metadata.name)
        if last_good is None:
            tree.remove(quota.metadata.name, quota.metadata.namespace)
        else:
            tree.set(last_good)
        raise QuotaError(
            f"ElasticQuota {quota.key}: metadata.labels[{PARENT}]: the parents form a cycle: {' -> '.join(cycle)}"
        ) from error
    return changed


def _cycle(tree: QuotaTree, name: str) -> list[str]:
    """The way up from ``name`` until the first quota that comes again, which ends it."""
    way = [name]
    while (node := tree.get(way[-1])) is not None and node.parent not in way:
        way.append(node.parent)
    return [*way, node.parent] if node is not None else way
