"""Finalizers: which names may be there, and the two that a deletion adds or takes away by its propagation policy."""

from collections.abc import Sequence

from koord.localcluster.api.errors import Cause, forbidden_value, invalid_value
from koord.localcluster.api.resources import Resource
from koord.localcluster.clusterapi import Object

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
KUBERNETES = "kubernetes"
DEFINITION = "customresourcecleanup.apiextensions.k8s.io"
_STANDARD = (KUBERNETES, ORPHAN, FOREGROUND)

# What a client gets that says nothing: kinds whose first clients deleted dependents themselves leave them alone.
_ORPHANS_BY_DEFAULT = ("jobs.batch", "replicationcontrollers")
_NEVER_COLLECTED = ("events",)


def finalizer_causes(resource: Resource, finalizers: Sequence[str]) -> list[Cause]:
    """Built-in kinds take standard or qualified names; the two of the garbage collector exclude each other."""
    causes: list[Cause] = []
    if not resource.custom:
        causes.extend(
            invalid_value(
                f"metadata.finalizers[{i}]",
                finalizer,
                "name is neither a standard finalizer name nor is it fully qualified",
            )
            for i, finalizer in enumerate(finalizers)
            if "/" not in finalizer and finalizer not in _STANDARD and finalizer != DEFINITION
        )
    if ORPHAN in finalizers and FOREGROUND in finalizers:
        shown = "[" + ",".join(f'"{finalizer}"' for finalizer in finalizers) + "]"
        message = f"Invalid value: {shown}: finalizer {ORPHAN} and {FOREGROUND} cannot be both set"
        causes.append(Cause("FieldValueInvalid", "metadata.finalizers", message))
    return causes


def added_causes(new: Sequence[str], old: Sequence[str]) -> list[Cause]:
    """An object that is being deleted gets no new finalizers."""
    added = sorted(set(new).difference(old))
    if not added:
        return []
    shown = ", ".join(f'"{finalizer}"' for finalizer in added)
    why = f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{shown}}}"
    return [forbidden_value("metadata.finalizers", why)]


def for_deletion(resource: Resource, metadata: Object, policy: str | None, orphan: bool | None) -> list[str]:
    """The finalizers of an object that is deleted with a propagation policy (or the older `orphanDependents`).

    What the request says comes first, then a finalizer that is there, then the default of the kind.
    """
    present: list[str] = metadata.get("finalizers") or []
    kept = [finalizer for finalizer in present if finalizer not in (ORPHAN, FOREGROUND)]
    if resource.key in _NEVER_COLLECTED:
        return kept
    if orphan is not None:
        wanted = ORPHAN if orphan else None
    elif policy is not None:
        wanted = {"Orphan": ORPHAN, "Foreground": FOREGROUND}.get(policy)
    else:
        wanted = next((finalizer for finalizer in present if finalizer in (ORPHAN, FOREGROUND)), None)
        if wanted is None and resource.key in _ORPHANS_BY_DEFAULT:
            wanted = ORPHAN
    if wanted is not None:
        kept.append(wanted)
    return present if set(kept) == set(present) else kept
