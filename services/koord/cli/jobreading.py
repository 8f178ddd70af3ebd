"""What ``koord explain job`` reads: the one job and what belongs to it, and who of the cluster is silent.

Nothing here lists a whole cluster. A job that the bus does not show is asked for at the API server, for there may be no
gateway to tell of it; and what is old or unanswered is said, so that nobody takes silence for an answer.
"""

from fractions import Fraction
from typing import Any

from koord.cli.errors import CommandError
from koord.cli.jobview import QueueRule, explain
from koord.cli.state import ANY, Reader, Silent
from koord.cli.views import queue_of
from koord.contracts.asks import BindingsSettled, ExplainPod, PodExplanation, SettleBindings
from koord.kube import resources
from koord.kube.jobs.registry import JOB_KINDS
from koord.kube.protocol import quota as quota_keys

Object = dict[str, Any]

_DEEPEST = 64
_ASKED_AT_MOST = 40
_WAITS = frozenset(("active", "backoff", "unschedulable", "gated"))


async def read(reader: Reader, namespace: str, name: str) -> Object:
    """All that is known of a job and why it waits, see :func:`explain`; CommandError if there is no such job."""
    notes = [await _gateway(reader)]
    jobs = {token: await reader.some(resources.BY_TOKEN[token], namespace, name) for token in JOB_KINDS}
    if not any(jobs.values()):
        for token in JOB_KINDS:
            found = await reader.from_api(resources.BY_TOKEN[token], namespace, name)
            jobs[token] = [found] if found is not None else []
        if any(jobs.values()):
            notes.append("the API server has it, the bus does not show it yet: nothing has been done about it")
    units = await reader.some(resources.QUEUE_UNITS, namespace)
    pods = await reader.some(resources.PODS, namespace)
    queues: list[Object] = []
    quotas: list[Object] = []
    # Jobs of several kinds may have one name, each its own queue.
    for queue in sorted({queue_of(unit) for unit in units if _consumer(unit) == name} - {""}):
        queues += await reader.some(resources.QUEUES, ANY, queue)
        quotas += await _chain(reader, queue)
    try:
        rule = await _rule(reader)
        told = explain(namespace, name, jobs, units, queues, quotas, pods, rule)
    except CommandError as error:
        raise CommandError("; ".join((str(error), *filter(None, notes)))) from error
    waiting = next((group["example"] for group in told["pods"] if group["status"] == "Pending"), "")
    if waiting:
        notes.append(await _scheduler(reader, waiting))
    told["notes"] += [note for note in notes if note]
    return told


def _consumer(unit: Object) -> str:
    return str(((unit.get("spec") or {}).get("consumerRef") or {}).get("name") or "")


async def _chain(reader: Reader, name: str) -> list[Object]:
    """The quota of that name and those above it."""
    found: dict[str, Object] = {}
    while name and name not in found and len(found) < _DEEPEST:
        for quota in await reader.some(resources.ELASTIC_QUOTAS, ANY, name):
            found[name] = quota
        if name not in found:
            break
        name = (found[name]["metadata"].get("labels") or {}).get(quota_keys.PARENT) or ""
    return list(found.values())


async def _rule(reader: Reader) -> QueueRule:
    """What the quota service holds the queue to, as it published it last; else what it does by default."""
    told = await reader.runtimes()
    return QueueRule() if told is None else QueueRule(Fraction(told.ceiling), told.by_runtime)


async def _gateway(reader: Reader) -> str:
    """What to say of a gateway that is silent: what is shown here may be old."""
    try:
        await reader.ask("gateway", "settle", SettleBindings([]), BindingsSettled)
    except Silent as silent:
        age = await reader.state_age_s()
        old = f"; the state shown here is {age:.0f} s old" if age is not None else ""
        return f"no gateway {silent.words}{old}: nothing is bound or written until one does"
    except CommandError:
        return ""
    return ""


async def _scheduler(reader: Reader, pod: str) -> str:
    """What the scheduler says of a pod that waits, or that it says nothing."""
    namespace, _, name = pod.partition("/")
    try:
        answer = await explain_pod(reader, namespace, name)
    except Silent as silent:
        return f"no scheduler {silent.words}: the pods wait until one does"
    except CommandError as error:
        return f"the scheduler says of pod {pod}: {error}"
    if answer.state not in _WAITS or not answer.message:
        return ""
    return f"the scheduler says of pod {pod}: {answer.message}"


async def explain_pod(reader: Reader, namespace: str, name: str) -> PodExplanation:
    """What the scheduler knows of a pod. Errors as :meth:`Reader.ask`."""
    question = ExplainPod(namespace, name)
    # Any of several schedulers may answer; only the one whose pod it is knows more than that it is not its own.
    for _ in range(_ASKED_AT_MOST):
        answer = await reader.ask("scheduler", "explain", question, PodExplanation)
        if answer.state != "elsewhere":
            break
    return answer
