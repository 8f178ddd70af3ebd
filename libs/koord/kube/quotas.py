# ruff: noqa: RUF012 - msgspec gives every instance its own copy of an empty default
"""ElasticQuota: a tenant's guarantee (min) and ceiling (max); spec 20 section 2.9. It has no status sub-resource."""

import msgspec

from koord.kube.meta import ResourceList, TypedObject, View


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
