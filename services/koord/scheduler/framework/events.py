"""What happens in the cluster that may make a rejected pod fit. Plugins register the events that may help them."""

import enum


class ClusterEvent(enum.Enum):
    """The values are upstream's labels of ``scheduler_queue_incoming_pods_total{event}``."""

    NODE_ADD = "NodeAdd"
    NODE_ALLOCATABLE = "NodeUpdateNodeAllocatable"
    NODE_LABEL = "NodeUpdateNodeLabel"
    NODE_TAINT = "NodeUpdateNodeTaint"
    POD_DELETE = "AssignedPodDelete"
    POD_ASSIGNED = "AssignedPodAdd"
    POD_UPDATE = "PodUpdate"
    QUOTA_CHANGE = "ElasticQuotaUpdate"
    LEDGER_RELEASE = "LedgerRelease"
    GANG_CHANGE = "GangUpdate"
    TIMEOUT = "UnschedulableTimeout"


NODE_EVENTS = frozenset(
    (
        ClusterEvent.NODE_ADD,
        ClusterEvent.NODE_ALLOCATABLE,
        ClusterEvent.NODE_LABEL,
        ClusterEvent.NODE_TAINT,
    )
)
ALL_EVENTS = frozenset(ClusterEvent)
