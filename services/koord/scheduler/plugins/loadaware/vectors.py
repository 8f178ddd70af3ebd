"""The resources that are looked at, in one fixed order, and amounts of them as plain lists.

Amounts are whole numbers (cpu in milli-cores, the rest in base units) kept as floats, so that they go into columns as
they are; sums of them are exact.
"""

from collections.abc import Iterable, Mapping

from koord.kube.quantity import QuantityError, milli, value
from koord.scheduler.config.koordinatorargs import LoadAwareSchedulingArgs

CPU, MEMORY = "cpu", "memory"

Vector = list[float]


def resources_of(args: LoadAwareSchedulingArgs) -> tuple[str, ...]:
    """cpu, memory and every resource that the arguments name, sorted."""
    names: set[str] = {CPU, MEMORY, *args.supported_resources}
    named: list[Iterable[str]] = [
        args.usage_thresholds,
        args.prod_usage_thresholds,
        args.resource_weights,
        args.estimated_scaling_factors,
    ]
    if args.aggregated is not None:
        named.append(args.aggregated.usage_thresholds)
    return tuple(sorted(names.union(*named)))


def vector(resources: Mapping[str, str | int | float], names: tuple[str, ...], field: str) -> Vector:
    """A ResourceList in the order of ``names``; ValueError names ``field`` and the resource."""
    found: Vector = []
    for name in names:
        text = resources.get(name)
        if text is None:
            found.append(0.0)
            continue
        plain = _plain(text, name)
        if plain is not None:
            found.append(plain)
            continue
        try:
            found.append(float(milli(text) if name == CPU else value(text)))
        except QuantityError as error:
            raise ValueError(f"{field}[{name}]: {error}") from None
    return found


def _plain(text: str | int | float, name: str) -> float | None:
    """The amount of a text as agents write it: whole units, or cpu in milli-cores. Hardly any comes twice, so what
    reads and remembers every kind of quantity would be in vain."""
    if not isinstance(text, str) or len(text) > 15 or not text.isascii():
        return None
    if name != CPU:
        return float(text) if text.isdigit() else None
    return float(text[:-1]) if text[-1:] == "m" and text[:-1].isdigit() else None
