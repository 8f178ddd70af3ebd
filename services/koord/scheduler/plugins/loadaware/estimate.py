"""What a pod will probably use, before anybody measured it. Spec 10 section 3.11, "Pod estimate"."""

from collections.abc import Mapping

import msgspec

from koord.accounting.requests import pod_limits, pod_request
from koord.kube.podresources import translated_name
from koord.kube.pods import PodSpec
from koord.kube.protocol import qos
from koord.kube.protocol.gotext import go_int
from koord.scheduler.plugins.loadaware.vectors import CPU, MEMORY

FACTORS = "scheduling.koordinator.sh/load-estimated-scaling-factors"
AFTER_SCHEDULED = "scheduling.koordinator.sh/load-estimated-seconds-after-pod-scheduled"
AFTER_INITIALIZED = "scheduling.koordinator.sh/load-estimated-seconds-after-initialized"
KEYS = (FACTORS, AFTER_SCHEDULED, AFTER_INITIALIZED)
"""Pod annotations, read if the arguments allow it."""

FLOORS: Mapping[str, int] = {CPU: 250, MEMORY: 200 << 20}
"""What is assumed of a pod that says nothing."""


def estimate(
    spec: PodSpec, priority_class: str, names: tuple[str, ...], factors: Mapping[str, int], *, native: bool
) -> tuple[float, ...]:
    """The expected usage of each resource in ``names``; 0 of those without a factor.

    A percentage (``factors``) of the larger of request and limit, in the resources of the pod's priority class, never
    more than the limit. ``native``: pods of class free or mid that ask for nothing of their class's own resources are
    taken by what they ask of cpu and memory; otherwise nothing is expected of them.
    """
    requests, limits = pod_request(spec), pod_limits(spec)
    expected: list[float] = []
    for name in names:
        factor = factors.get(name)
        if factor is None:
            expected.append(0.0)
            continue
        asked = translated_name(priority_class, name)
        request, limit = requests.get(asked, 0), limits.get(asked, 0)
        if native and priority_class in (qos.FREE, qos.MID) and not (request or limit):
            asked = name
            request, limit = requests.get(asked, 0), limits.get(asked, 0)
        amount = max(request, limit)
        if amount:
            scaled = (amount * factor + 50) // 100
            expected.append(float(min(scaled, limit) if limit else scaled))
        elif asked in (name, translated_name(qos.BATCH, name)):
            expected.append(float(FLOORS.get(name, 0)))
        else:
            expected.append(0.0)
    return tuple(expected)


def factors_of(annotations: Mapping[str, str], default: Mapping[str, int]) -> Mapping[str, int]:
    """``default``, overridden by what the pod says of itself; a text that cannot be read says nothing."""
    text = annotations.get(FACTORS)
    if not text:
        return default
    try:
        own = msgspec.json.decode(text, type=dict[str, int])
    except msgspec.DecodeError:
        return default
    return {**default, **own} if own else default


def deadline(
    annotations: Mapping[str, str],
    since: float,
    initialized: float,
    after_scheduled: int | None,
    after_initialized: int | None,
) -> float:
    """Until when an estimate counts whatever is reported, in seconds since the epoch; 0: no such rule.

    ``since``: the pod has its node; ``initialized``: 0 if it is not. An annotation beats the arguments, and 0 in it
    switches their rule off.
    """
    seconds = _seconds(annotations, AFTER_INITIALIZED, after_initialized)
    if seconds and initialized:
        return initialized + seconds
    seconds = _seconds(annotations, AFTER_SCHEDULED, after_scheduled)
    return since + seconds if seconds else 0.0


def _seconds(annotations: Mapping[str, str], key: str, default: int | None) -> int:
    text = annotations.get(key)
    own = None if text is None else go_int(text, 64)
    return own if own is not None and own >= 0 else max(0, default or 0)
