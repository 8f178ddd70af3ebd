"""Pods as they enter: deprecated resource names, renamed resources, priority and preemption policy by label.

Spec 10 section 3.1. The scheduler's name by label is ``koord.kube.protocol.scheduler.scheduler_name``.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from koord.kube.podresources import erase_resources, rename_resources
from koord.kube.pods import PodSpec
from koord.kube.protocol import qos
from koord.scheduler.transformers import deprecated

REPLACE_RESOURCES: Final = "pod.koordinator.sh/replace-resources"
"""Annotation ``resA:resB,resC:``: erase C, then call A B."""
PREEMPTION_POLICY: Final = "scheduling.koordinator.sh/preemption-policy"
"""Label ``Never`` or ``PreemptLowerPriority``."""
DEVICE_ALLOCATED: Final = "scheduling.koordinator.sh/device-allocated"
"""Annotation: the devices a pod was given, by type, each with its resources."""

NEVER: Final = "Never"
PREEMPT_LOWER_PRIORITY: Final = "PreemptLowerPriority"


class PodGates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which of the optional transformers run: ReplaceResourcesTransformer, PriorityTransformer and
    PreemptionPolicyTransformer, all off by default."""

    replace_resources: bool = False
    priority: bool = False
    preemption_policy: bool = False


def transform_spec(spec: PodSpec, replace: str, gates: PodGates) -> PodSpec:
    """The spec with today's resource names; the same object if nothing changes.

    ``replace`` is the text of the annotation :data:`REPLACE_RESOURCES`. QuantityError: a cpu amount that is to be
    renamed is none.
    """
    spec = rename_resources(spec, deprecated.BATCH)
    spec = rename_resources(spec, deprecated.DEVICES)
    if gates.replace_resources and replace:
        erased, renames = replacements(replace)
        spec = erase_resources(spec, erased)
        for old, new in renames:
            spec = rename_resources(spec, {old: new})
    return spec


def replacements(text: str) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """What an annotation says to erase and to rename (old, new); entries without exactly one colon mean nothing."""
    pairs = [tuple(part.strip() for part in entry.split(":")) for entry in text.split(",")]
    known = [(pair[0], pair[1]) for pair in pairs if len(pair) == 2 and pair[0]]
    return tuple(old for old, new in known if not new), tuple((old, new) for old, new in known if new)


def pod_priority(own: int | None, labels: Mapping[str, str], gates: PodGates) -> int:
    """The pod's own priority; with the gate, one without (or 0) gets the default of its class by label."""
    if own or not gates.priority:
        return own or 0
    return qos.DEFAULT_VALUES[qos.priority_class(labels, own)]


def preemption_policy(own: str | None, labels: Mapping[str, str], gates: PodGates) -> str:
    """The pod's own policy (``""`` if it has none); with the gate the label alone decides, and without one: Never."""
    if not gates.preemption_policy:
        return own or ""
    text = labels.get(PREEMPTION_POLICY)
    return text if text in (NEVER, PREEMPT_LOWER_PRIORITY) else NEVER


def device_allocated(text: str) -> str:
    """The annotation :data:`DEVICE_ALLOCATED` with today's resource names; what cannot be read stays as it is."""
    if "kubernetes.io/" not in text:
        return text
    try:
        given: Any = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    if not isinstance(given, dict):
        return text
    changed = False
    for devices in given.values():
        for device in devices if isinstance(devices, list) else ():
            resources = device.get("resources") if isinstance(device, dict) else None
            if not isinstance(resources, dict):
                continue
            for old, new in deprecated.DEVICES.items():
                if old in resources and new not in resources:
                    resources[new] = resources.pop(old)
                    changed = True
    return msgspec.json.encode(given).decode() if changed else text
