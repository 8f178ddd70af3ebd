"""A pod's resources as a whole: its Kubernetes QoS class; renaming, erasing and translating what it asks for.

Everything is pure and answers the object it was given when there is nothing to do, so that specs stay shared.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from koord.kube.meta import ResourceList
from koord.kube.pods import Container, PodSpec, ResourceRequirements
from koord.kube.protocol import qos
from koord.kube.quantity import milli, nano

CPU: Final = "cpu"
MEMORY: Final = "memory"

TRANSLATED: Final[Mapping[str, Mapping[str, str]]] = {
    qos.MID: {CPU: qos.MID_CPU, MEMORY: qos.MID_MEMORY},
    qos.BATCH: {CPU: qos.BATCH_CPU, MEMORY: qos.BATCH_MEMORY},
}
"""Priority class to the names under which its pods ask for cpu and memory (spec 10 section 2.9)."""


def translated_name(priority_class: str, resource: str) -> str:
    """Under which name a pod of this priority class asks for ``resource``; ``""`` for koord-free, which has none."""
    if priority_class == qos.FREE:
        return ""
    return TRANSLATED.get(priority_class, {}).get(resource, resource)


def kubernetes_qos(spec: PodSpec) -> str:
    """Kubernetes' own class of a pod: Guaranteed, Burstable or BestEffort. Only cpu and memory count.

    A limit stands in for a missing request, as API servers write it. QuantityError names a bad amount.
    """
    requests: dict[str, int] = {}
    limits: dict[str, int] = {}
    guaranteed = True
    for resources in _judged(spec):
        limited = 0
        for name in (CPU, MEMORY):
            limit = nano(resources.limits.get(name, 0))
            request = nano(resources.requests.get(name, resources.limits.get(name, 0)))
            if request > 0:
                requests[name] = requests.get(name, 0) + request
            if limit > 0:
                limits[name] = limits.get(name, 0) + limit
                limited += 1
        guaranteed = guaranteed and limited == 2
    if not requests and not limits:
        return "BestEffort"
    return "Guaranteed" if guaranteed and requests == limits else "Burstable"


def _judged(spec: PodSpec) -> Iterable[ResourceRequirements]:
    """What the class is judged by: the pod's own resources if it has some of cpu or memory, else its containers'."""
    own = spec.resources
    if own is not None and not {CPU, MEMORY}.isdisjoint(own.requests.keys() | own.limits.keys()):
        return (own,)
    return [container.resources for container in (*spec.containers, *spec.init_containers)]


def rename_resources(spec: PodSpec, names: Mapping[str, str]) -> PodSpec:
    """``names`` maps old to new, in containers, init containers and overhead (spec 10 section 3.1).

    A resource whose new name is there already stays as it is. What is renamed from ``cpu`` counts in milli-cores from
    then on. QuantityError names a bad cpu amount.
    """
    return _each(spec, lambda resources: renamed(resources, names))


def erase_resources(spec: PodSpec, names: Iterable[str]) -> PodSpec:
    """Take resources out of containers, init containers and overhead."""
    gone = frozenset(names)
    return _each(spec, lambda resources: _erased(resources, gone))


def translate_resources(spec: PodSpec, priority_class: str) -> PodSpec:
    """What a colocation profile makes of a pod of class mid or batch (spec 10 section 2.9, "Translation").

    cpu and memory become the class's own resources, cpu in milli-cores; a limit without a request becomes the request,
    too. Any other class: nothing changes. QuantityError names a bad cpu amount.
    """
    names = TRANSLATED.get(priority_class)
    if names is None:
        return spec
    renamed_spec = rename_resources(spec, names)
    own = frozenset(names.values())
    containers = [_with_requests(container, own) for container in renamed_spec.containers]
    init_containers = [_with_requests(container, own) for container in renamed_spec.init_containers]
    if _same(containers, renamed_spec.containers) and _same(init_containers, renamed_spec.init_containers):
        return renamed_spec
    return msgspec.structs.replace(renamed_spec, containers=containers, init_containers=init_containers)


def renamed(resources: ResourceList, names: Mapping[str, str]) -> ResourceList:
    """One list with other names, by the rules of :func:`rename_resources`."""
    if names.keys().isdisjoint(resources):
        return resources
    made = dict(resources)
    for old, new in names.items():
        if old in made and new not in made:
            amount = made.pop(old)
            made[new] = str(milli(amount)) if old == CPU else amount
    return made


def _erased(resources: ResourceList, gone: frozenset[str]) -> ResourceList:
    if gone.isdisjoint(resources):
        return resources
    return {name: amount for name, amount in resources.items() if name not in gone}


def _with_requests(container: Container, names: frozenset[str]) -> Container:
    limits, requests = container.resources.limits, container.resources.requests
    missing = {name: limits[name] for name in limits if name in names and name not in requests}
    if not missing:
        return container
    resources = ResourceRequirements(requests={**requests, **missing}, limits=limits)
    return msgspec.structs.replace(container, resources=resources)


def _each(spec: PodSpec, change: Callable[[ResourceList], ResourceList]) -> PodSpec:
    containers = [_container(container, change) for container in spec.containers]
    init_containers = [_container(container, change) for container in spec.init_containers]
    overhead = change(spec.overhead)
    if (
        overhead is spec.overhead
        and _same(containers, spec.containers)
        and _same(init_containers, spec.init_containers)
    ):
        return spec
    return msgspec.structs.replace(spec, containers=containers, init_containers=init_containers, overhead=overhead)


def _container(container: Container, change: Callable[[ResourceList], ResourceList]) -> Container:
    old = container.resources
    requests, limits = change(old.requests), change(old.limits)
    if requests is old.requests and limits is old.limits:
        return container
    return msgspec.structs.replace(container, resources=ResourceRequirements(requests=requests, limits=limits))


def _same(new: list[Container], old: list[Container]) -> bool:
    return all(one is other for one, other in zip(new, old, strict=True))
