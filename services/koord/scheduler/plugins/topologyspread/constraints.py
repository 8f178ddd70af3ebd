"""Spread constraints of a pod, compiled; and those that pods without any get by default. Spec 10 section 3.15.

Pure; errors name the field below ``spec`` and the rule.
"""

import msgspec

from koord.kube.pods import PodSpec, TopologySpreadConstraint
from koord.kube.selectors import Selector, SelectorError
from koord.scheduler.config.upstreamargs import PodTopologySpreadArgs, SpreadDefault
from koord.scheduler.engine.podselectors import Labels, compiled, selector_keys

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
HARD, SOFT = "DoNotSchedule", "ScheduleAnyway"
SYSTEM = (
    SpreadDefault(max_skew=3, topology_key=HOSTNAME, when_unsatisfiable=SOFT),
    SpreadDefault(max_skew=5, topology_key=ZONE, when_unsatisfiable=SOFT),
)
"""The built-in default constraints."""


class Constraint(msgspec.Struct, frozen=True):
    """One constraint. ``selector`` None matches no pod. ``honor_affinity``, ``honor_taints``: nodes that the pod's own
    node affinity, or its lack of tolerations, keeps it off do not count."""

    key: str
    max_skew: int
    selector: Selector | None
    min_domains: int = 1
    honor_affinity: bool = True
    honor_taints: bool = False

    @property
    def counts(self) -> bool:
        """Whether any pod can count. A selector without tests counts none, although it matches the pod itself."""
        return self.selector is not None and bool(self.selector.requirements)

    def itself(self, labels: Labels) -> int:
        """1 if the pod would count for its own constraint."""
        return int(self.selector is not None and self.selector.matches(labels))


class Constraints(msgspec.Struct, frozen=True):
    """The constraints of a pod. ``every_key``: nodes that lack the key of any of them are out, of the score too."""

    hard: tuple[Constraint, ...] = ()
    soft: tuple[Constraint, ...] = ()
    every_key: bool = True


NOTHING = Constraints()


def spread_keys(spec: PodSpec) -> list[str]:
    """The labels of pods that the constraints name."""
    keys: list[str] = []
    for constraint in spec.topology_spread_constraints:
        keys += selector_keys(constraint.label_selector)
        keys += constraint.match_label_keys
    return keys


def own_constraints(spec: PodSpec, labels: Labels) -> Constraints:
    """The constraints of the spec; SelectorError names the field and the rule."""
    made: dict[str, list[Constraint]] = {HARD: [], SOFT: []}
    for index, constraint in enumerate(spec.topology_spread_constraints):
        path = f"topologySpreadConstraints[{index}]"
        side = made.get(constraint.when_unsatisfiable)
        if side is None:
            raise SelectorError(
                f'{path}.whenUnsatisfiable: must be {HARD} or {SOFT}, got "{constraint.when_unsatisfiable}"'
            )
        side.append(_compile(constraint, labels, path))
    return Constraints(tuple(made[HARD]), tuple(made[SOFT]))


def default_constraints(args: PodTopologySpreadArgs, selector: Selector) -> Constraints:
    """What a pod without constraints gets, over the pods that ``selector`` matches; nothing for one without tests."""
    if not selector.requirements:
        return NOTHING
    system = args.defaulting_type != "List"
    made: dict[str, list[Constraint]] = {HARD: [], SOFT: []}
    for default in SYSTEM if system else args.default_constraints:
        made[default.when_unsatisfiable].append(
            Constraint(
                default.topology_key,
                default.max_skew,
                selector,
                default.min_domains or 1,
                default.node_affinity_policy != "Ignore",
                default.node_taints_policy == "Honor",
            )
        )
    return Constraints(tuple(made[HARD]), tuple(made[SOFT]), every_key=not system)


def _compile(constraint: TopologySpreadConstraint, labels: Labels, path: str) -> Constraint:
    if not constraint.topology_key:
        raise SelectorError(f"{path}.topologyKey: must not be empty")
    if constraint.max_skew < 1:
        raise SelectorError(f"{path}.maxSkew: must be greater than zero, got {constraint.max_skew}")
    if constraint.min_domains is not None and constraint.min_domains < 1:
        raise SelectorError(f"{path}.minDomains: must be greater than zero, got {constraint.min_domains}")
    for field, value in (
        ("nodeAffinityPolicy", constraint.node_affinity_policy),
        ("nodeTaintsPolicy", constraint.node_taints_policy),
    ):
        if value not in ("", "Honor", "Ignore"):
            raise SelectorError(f'{path}.{field}: must be Honor or Ignore, got "{value}"')
    return Constraint(
        constraint.topology_key,
        constraint.max_skew,
        compiled(constraint.label_selector, labels, path, constraint.match_label_keys),
        constraint.min_domains or 1,
        constraint.node_affinity_policy != "Ignore",
        constraint.node_taints_policy == "Honor",
    )
