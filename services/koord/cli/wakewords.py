"""The scheduler's events in the words of somebody who waits: ``NodeAdd`` is "a node comes"."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

_SAID: Final[Mapping[str, tuple[str, str]]] = {
    "NodeAdd": ("a node", "comes"),
    "NodeUpdateNodeAllocatable": ("a node", "offers more or less"),
    "NodeUpdateNodeLabel": ("a node", "gets other labels"),
    "NodeUpdateNodeTaint": ("a node", "gets other taints"),
    "NodeUpdateNodeAnnotation": ("a node", "gets other annotations"),
    "NodeDelete": ("a node", "goes"),
    "AssignedPodDelete": ("a pod", "leaves its node"),
    "AssignedPodAdd": ("a pod", "is placed"),
    "AssignedPodUpdatePodLabel": ("a pod", "gets other labels"),
    "PodUpdate": ("this pod", "changes"),
    "ElasticQuotaUpdate": ("a quota", "changes"),
    "GangUpdate": ("its gang", "changes"),
    "LedgerRelease": ("claimed room", "comes back"),
    "UnschedulableTimeout": ("its time", "is over"),
    "PluginObjectChange": ("an object of a plugin's", "changes"),
}
_VERBS: Final[Mapping[str, str]] = {"Add": "comes", "Update": "changes", "Delete": "goes"}
_KINDS: Final[Mapping[str, str]] = {
    "nodemetrics": "NodeMetric",
    "noderesourcetopologies": "NodeResourceTopology",
}
_GENERAL = re.compile(r"(?P<kind>\w+?)(\.[\w.]*?)?(?P<verb>Add|Update|Delete)")


def spoken(events: Iterable[str]) -> str:
    """Events by whom they happen to, in the order given; what is not known stays as it is."""
    by_subject: dict[str, list[str]] = {}
    for event in events:
        subject, verb = _said(event)
        verbs = by_subject.setdefault(subject, [])
        if verb not in verbs:
            verbs.append(verb)
    return "; ".join(f"{subject} {_either(verbs)}".strip() for subject, verbs in by_subject.items())


def _said(event: str) -> tuple[str, str]:
    known = _SAID.get(event)
    if known is not None:
        return known
    found = _GENERAL.fullmatch(event)
    if found is None:
        return event, ""
    kind = found["kind"]
    return f"a {_KINDS.get(kind, kind)}", _VERBS[found["verb"]]


def _either(verbs: list[str]) -> str:
    return verbs[0] if len(verbs) == 1 else f"{', '.join(verbs[:-1])} or {verbs[-1]}"
