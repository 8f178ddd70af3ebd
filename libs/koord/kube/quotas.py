"""ElasticQuota: a tenant's guarantee (min) and ceiling (max); spec 20 section 2.9. It has no status sub-resource."""

import msgspec

from koord.kube.meta import ResourceList, TypedObject, View


class ElasticQuotaSpec(View):
    """``min`` is guaranteed, ``max`` is never exceeded; a resource missing in ``max`` is not limited."""

    min: ResourceList = {}
    max: ResourceList = {}


class ElasticQuotaStatus(View):
    """What the quota's pods use."""

    used: ResourceList = {}


class ElasticQuota(TypedObject):
    """One quota of a tree; its place in the tree is told by labels (``koord.kube.protocol.quota``)."""

    spec: ElasticQuotaSpec = msgspec.field(default_factory=ElasticQuotaSpec)
    status: ElasticQuotaStatus = msgspec.field(default_factory=ElasticQuotaStatus)
