# ruff: noqa: RUF012 - msgspec gives every instance its own copy of an empty default
"""ElasticQuota: a tenant's guarantee (min) and ceiling (max); spec 20 section 2.9. It has no status sub-resource.

ElasticQuotaProfile: makes the root quota of a tree from the room of some nodes; section 2.10.
"""

import msgspec

from koord.kube.meta import ResourceList, TypedObject, View
from koord.kube.selectors import LabelSelector


class ElasticQuotaSpec(View, frozen=True):
    """``min`` is guaranteed, ``max`` is never exceeded; a resource missing in ``max`` is not limited."""

    min: ResourceList = {}
    max: ResourceList = {}


class ElasticQuotaStatus(View, frozen=True):
    """What the quota's pods use."""

    used: ResourceList = {}


class ElasticQuota(TypedObject, frozen=True):
    """One quota of a tree; its place in the tree is told by labels (``koord.kube.protocol.quota``)."""

    spec: ElasticQuotaSpec = msgspec.field(default_factory=ElasticQuotaSpec)
    status: ElasticQuotaStatus = msgspec.field(default_factory=ElasticQuotaStatus)


class ElasticQuotaProfileSpec(View, frozen=True):
    """``quota_name``: the root quota to make, in the profile's namespace. ``resource_ratio``: the part of the nodes'
    room that it gets, as text above 0 and up to 1.
    """

    quota_name: str = ""
    quota_labels: dict[str, str] = {}
    resource_ratio: str | None = None
    node_selector: LabelSelector = msgspec.field(default_factory=LabelSelector)


class ElasticQuotaProfile(TypedObject, frozen=True):
    """One profile."""

    spec: ElasticQuotaProfileSpec = msgspec.field(default_factory=ElasticQuotaProfileSpec)
