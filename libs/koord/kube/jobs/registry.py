"""Every job kind the queue holds, by the bus token of its resource and by its kind."""

from typing import Final

from koord.kube.jobs.batchjob import BatchJob
from koord.kube.jobs.kind import JobKind
from koord.kube.jobs.pytorchjob import PYTORCHJOB
from koord.kube.jobs.rayjob import RayJob
from koord.kube.jobs.tfjob import TFJOB

_KINDS: Final[tuple[JobKind, ...]] = (BatchJob(), TFJOB, PYTORCHJOB, RayJob())

JOB_KINDS: Final[dict[str, JobKind]] = {kind.resource.token: kind for kind in _KINDS}
"""Token (``tfjobs_kubeflow_org``) to kind."""

BY_KIND: Final[dict[tuple[str, str], JobKind]] = {
    (kind.resource.api_version, kind.resource.kind): kind for kind in _KINDS
}
"""(apiVersion, kind), as in a QueueUnit's consumerRef, to kind."""
