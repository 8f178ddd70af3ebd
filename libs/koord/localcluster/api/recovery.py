"""From the files of a data directory back to the objects that were stored, definitions included."""

import contextlib
import time
from typing import TYPE_CHECKING

from koord.localcluster.api import crds
from koord.localcluster.api.apply.writers import unpacked
from koord.localcluster.api.builtin import CRDS
from koord.localcluster.api.journal import Journal, JournalError
from koord.localcluster.api.records import Kind, Record
from koord.localcluster.clusterapi import ApiError

if TYPE_CHECKING:
    from koord.localcluster.api.cluster import Cluster


def restore(cluster: "Cluster", journal: Journal) -> None:
    """Fill an empty cluster.

    The changes of the log become the recent changes of their collections, so watches resume at versions after the
    snapshot. `JournalError` when the files are damaged or hold objects of a resource that nothing defines.
    """
    store = cluster.store
    store.journal = None  # what is read from the log is not written to it again
    for record in journal.snapshot_records():
        _put(cluster, record, announce=False)
    for record in journal.log_records():
        if record.kind == Kind.VERSION:
            store.skip_to(record.version)
            continue
        store.version = record.version
        if record.kind == Kind.PUT:
            _put(cluster, record, announce=True)
        else:
            _delete(cluster, record)
    for collection in store.collections.values():
        if collection.resource.custom:
            crds.complete(collection)
    store.journal = journal
    # A power failure may have lost changes that clients saw: their versions must not become those of other changes.
    store.skip_to(max(store.version + 1, int(time.time() * 1_000_000)))
    with contextlib.suppress(ApiError):  # on a full disk the next start skips these versions as well
        journal.append(Kind.VERSION, store.version)


def _put(cluster: "Cluster", record: Record, *, announce: bool) -> None:
    collection = cluster.store.collections.get(record.key)
    if collection is None:
        raise JournalError(
            f"{record.key} {record.namespace}/{record.name}, stored in the data directory: this server knows no such"
            " resource, and no stored definition defines it"
        )
    obj = collection.restore(record.raw, record.version, unpacked(record.writers), announce=announce)
    if record.key == CRDS.key:
        crds.register(cluster, obj)


def _delete(cluster: "Cluster", record: Record) -> None:
    collection = cluster.store.collections.get(record.key)
    obj = collection.restore_removal(record.namespace, record.name, record.raw, record.version) if collection else None
    if obj is not None and record.key == CRDS.key:
        crds.unregister(cluster, obj)
