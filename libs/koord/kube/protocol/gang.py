"""Keys of gangs on pods and PodGroups, and the reader of a pod's gang (spec 20 section 2.5)."""

from collections.abc import Mapping
from typing import Final

import msgspec

from koord.kube.protocol.gotext import DurationError, go_duration, go_int

PREFIX: Final = "gang.scheduling.koordinator.sh/"
POD_GROUP: Final = "pod-group.scheduling.sigs.k8s.io"
"""Label: the gang's PodGroup, which the pod then waits for."""

NAME: Final = PREFIX + "name"
MIN_AVAILABLE: Final = PREFIX + "min-available"
WAITING_TIME: Final = PREFIX + "waiting-time"
TOTAL_NUMBER: Final = PREFIX + "total-number"
MODE: Final = PREFIX + "mode"
GROUPS: Final = PREFIX + "groups"
MATCH_POLICY: Final = PREFIX + "match-policy"
NETWORK_TOPOLOGY_SPEC: Final = PREFIX + "network-topology-spec"
NETWORK_TOPOLOGY_INDEX: Final = PREFIX + "network-topology-index"

POD_GROUP_NAME: Final = POD_GROUP + "/name"
POD_GROUP_MIN_AVAILABLE: Final = POD_GROUP + "/min-available"
POD_GROUP_MATCH_POLICY: Final = POD_GROUP + "/match-policy"

STRICT: Final = "Strict"
NON_STRICT: Final = "NonStrict"
ONLY_WAITING: Final = "only-waiting"
WAITING_AND_RUNNING: Final = "waiting-and-running"
ONCE_SATISFIED: Final = "once-satisfied"
MATCH_POLICIES: Final = frozenset((ONLY_WAITING, WAITING_AND_RUNNING, ONCE_SATISFIED))

LABEL_KEYS: Final = (POD_GROUP, POD_GROUP_NAME)
"""Labels that make a pod a gang's member."""

_groups = msgspec.json.Decoder(list[str])


class GangRef(msgspec.Struct, frozen=True, gc=False):
    """The gang a pod says it belongs to.

    ``min`` None: missing or bad, the gang stays uninitialised. ``wait_s`` None: the scheduler's default.
    ``groups`` are the ids of the gangs that must be placed together, sorted; at least this one. ``match_policy`` empty:
    the scheduler's default. ``waits_for_pod_group``: a PodGroup of that id must exist. ``problems`` names each bad
    value: key, text, rule, and what is used instead.
    """

    namespace: str
    name: str
    min: int | None
    mode: str = STRICT
    wait_s: float | None = None
    groups: tuple[str, ...] = ()
    match_policy: str = ""
    total: int = 0
    waits_for_pod_group: bool = False
    problems: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """``ns/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def group_id(self) -> str:
        """The ids of the gang group, joined by ``,``: equal for gangs that must be placed together."""
        return ",".join(self.groups)


def gang_name(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """The gang's name: label, deprecated label, then annotation; ``""`` if the pod is alone."""
    return labels.get(POD_GROUP) or labels.get(POD_GROUP_NAME) or annotations.get(NAME, "")


def carries_gang(labels: Mapping[str, str], annotations: Mapping[str, str]) -> bool:
    """Whether a pod template already says anything about a gang, so that nobody else should."""
    return (
        any(key in labels for key in (POD_GROUP, POD_GROUP_NAME, POD_GROUP_MIN_AVAILABLE))
        or NAME in annotations
        or MIN_AVAILABLE in annotations
    )


def gang_of(labels: Mapping[str, str], annotations: Mapping[str, str], namespace: str) -> GangRef | None:
    """The gang of a pod in ``namespace``, or None. Bad values are named in ``problems`` and replaced by defaults."""
    name = gang_name(labels, annotations)
    if not name:
        return None
    problems: list[str] = []
    minimum = _minimum(labels, annotations, problems)
    return GangRef(
        namespace=namespace,
        name=name,
        min=minimum,
        mode=_mode(annotations, problems),
        wait_s=_wait(annotations, problems),
        groups=_group_ids(annotations, f"{namespace}/{name}", problems),
        match_policy=_match_policy(annotations, problems),
        total=_total(annotations, minimum, problems),
        waits_for_pod_group=bool(labels.get(POD_GROUP)),
        problems=tuple(problems),
    )


def governed_by(ref: GangRef, min_member: int, timeout_s: int | None, annotations: Mapping[str, str]) -> GangRef:
    """``ref`` as the PodGroup of its id has it: the PodGroup's quorum, time-out and annotations win over the pod's."""
    problems: list[str] = []
    if min_member < 0:
        problems.append(f"spec.minMember: must not be negative, got {min_member}; 0 is used")
        min_member = 0
    return GangRef(
        namespace=ref.namespace,
        name=ref.name,
        min=min_member,
        mode=_mode(annotations, problems),
        wait_s=float(timeout_s) if timeout_s is not None and timeout_s > 0 else None,
        groups=_group_ids(annotations, ref.id, problems),
        match_policy=_match_policy(annotations, problems),
        total=_total(annotations, min_member, problems),
        waits_for_pod_group=ref.waits_for_pod_group,
        problems=tuple(problems),
    )


def write_gang(name: str, minimum: int) -> dict[str, str]:
    """The annotations that make pods with them one Strict gang."""
    return {NAME: name, MIN_AVAILABLE: str(minimum)}


def _minimum(labels: Mapping[str, str], annotations: Mapping[str, str], problems: list[str]) -> int | None:
    key, text = POD_GROUP_MIN_AVAILABLE, labels.get(POD_GROUP_MIN_AVAILABLE)
    if text is None:
        key, text = MIN_AVAILABLE, annotations.get(MIN_AVAILABLE)
    if text is None:
        if POD_GROUP not in labels:
            problems.append(f"{MIN_AVAILABLE}: missing, must be a 32-bit integer; the gang stays uninitialised")
        return None
    minimum = go_int(text)
    if minimum is None:
        problems.append(f'{key}: must be a 32-bit integer, got "{text}"; the gang stays uninitialised')
    elif minimum < 0:
        problems.append(f'{key}: must not be negative, got "{text}"; 0 is used')
        minimum = 0
    return minimum


def _mode(annotations: Mapping[str, str], problems: list[str]) -> str:
    text = annotations.get(MODE)
    if text is None or text in (STRICT, NON_STRICT):
        return text or STRICT
    problems.append(f'{MODE}: must be Strict or NonStrict, got "{text}"; Strict is used')
    return STRICT


def _wait(annotations: Mapping[str, str], problems: list[str]) -> float | None:
    text = annotations.get(WAITING_TIME)
    if text is None:
        return None
    try:
        wait = go_duration(text)
    except DurationError as error:
        problems.append(f"{WAITING_TIME}: {error}; the default is used")
        return None
    if wait <= 0:
        problems.append(f'{WAITING_TIME}: must be above 0, got "{text}"; the default is used')
        return None
    return wait / 1e9


def _group_ids(annotations: Mapping[str, str], own: str, problems: list[str]) -> tuple[str, ...]:
    text = annotations.get(GROUPS)
    if not text:
        return (own,)
    try:
        groups = _groups.decode(text)
    except msgspec.MsgspecError as error:
        problems.append(f"{GROUPS}: must be a JSON list of ns/name: {error}; the gang is alone")
        return (own,)
    return tuple(sorted(set(groups))) or (own,)


def _match_policy(annotations: Mapping[str, str], problems: list[str]) -> str:
    key = MATCH_POLICY if MATCH_POLICY in annotations else POD_GROUP_MATCH_POLICY
    text = annotations.get(key)
    if text is None or text in MATCH_POLICIES:
        return text or ""
    problems.append(
        f'{key}: must be only-waiting, waiting-and-running or once-satisfied, got "{text}"; the default is used'
    )
    return ""


def _total(annotations: Mapping[str, str], minimum: int | None, problems: list[str]) -> int:
    text = annotations.get(TOTAL_NUMBER)
    if text is None:
        return minimum or 0
    total = go_int(text)
    if total is None or total < (minimum or 0):
        problems.append(f'{TOTAL_NUMBER}: must be an integer of at least min-available, got "{text}"')
        return minimum or 0
    return total
