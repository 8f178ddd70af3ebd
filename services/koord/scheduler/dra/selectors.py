"""Selectors of devices: CEL expressions about ``device``, compiled once, answered once for devices alike to them.

``device.driver``, ``device.attributes[domain].name``, ``device.capacity[domain].name`` (quantities) and
``device.allowMultipleAllocations``, with Kubernetes' functions. A domain that a device has nothing of is an empty map
to an expression, as with Kubernetes; a name that it does not have is an error.

The evaluator is Google's and costs 16 MiB; it is loaded with the first selector. It has no meter, and whoever may make
a claim may write an expression: what one may cost at most is worked out before it is run (``koord.cel.metering``).
"""

import re
from collections import OrderedDict
from collections.abc import Hashable
from functools import cache
from typing import Any

from koord.cel.failures import COST_EXCEEDED
from koord.cel.tree import Tree, read
from koord.scheduler.dra.demand import DemandError
from koord.scheduler.dra.devices import Device

Read = tuple[str, str, str]
"""``attributes`` or ``capacity``, domain and name; or the driver: see ``koord.scheduler.dra.reading``."""

MOST_EXPRESSIONS = 1024
MOST_ANSWERS = 65_536
LONGEST = 10 * 1024
MOST_COST = 200_000
"""Units of 50 ns that an expression may cost for one device; a slice of up to 128 is looked at without a rest."""
_EXTENSIONS = """extensions:
  - name: strings
    version: 2
  - name: sets
  - name: lists
    version: 2
  - name: optional
  - name: two-var-comprehensions
  - name: bindings
"""
_NO_KEY = re.compile(r'Key not found in map : "([^"]*)"|no such key: ([^\s]+)')


class Selector:
    """One expression and what it said of devices. DemandError: what is wrong with it, or why it cannot be answered."""

    def __init__(self, text: str) -> None:
        self._answers: OrderedDict[Hashable, bool | str] = OrderedDict()
        self._expression, self._reads, self._dear = _compile(text)

    def matches(self, device: Device) -> bool:
        """Whether the expression is true of the device."""
        answers, key = self._answers, self._key(device)
        found = answers.get(key)
        if found is None:
            try:
                found = self._evaluate(device)
            except DemandError as error:
                found = str(error)
            answers[key] = found
            if len(answers) > MOST_ANSWERS:
                answers.popitem(last=False)
        if isinstance(found, str):
            raise DemandError(found)
        return found

    def _key(self, device: Device) -> Hashable:
        """Equal for devices of which the expression must say the same."""
        if self._reads is None:
            return device.substance
        return (
            device.driver,
            device.multiple,
            *[
                (device.capacity if part == "capacity" else device.attributes).get((domain, name))
                for part, domain, name in self._reads
            ],
        )

    def _evaluate(self, device: Device) -> bool:
        from cel_expr_python import cel

        shown = _shown(device, self._reads)
        if self._dear is not None:
            from koord.cel.metering import metered

            if metered(self._dear, {"device": shown}) > MOST_COST:
                raise DemandError(f"CEL runtime error: {COST_EXCEEDED}")
        while True:
            try:
                answer = self._expression.eval(data={"device": shown})
            except (RuntimeError, ValueError, OverflowError, MemoryError, LookupError, TypeError) as error:
                raise DemandError(f"CEL runtime error: {error}") from None
            if answer.type() != cel.Type.ERROR:
                break
            text = str(answer.value())
            missing = _NO_KEY.search(text)
            domain = (missing[1] or missing[2]) if missing is not None else ""
            if not domain or domain in shown["attributes"]:
                raise DemandError(f"CEL runtime error: {_plain(text)}")
            # A domain that the device has nothing of. Where it is only asked whether it is there, it is not.
            shown["attributes"].setdefault(domain, {})
            shown["capacity"].setdefault(domain, {})
        value = answer.plain_value()
        if not isinstance(value, bool):
            raise DemandError(f"CEL runtime error: expression returned {type(value).__name__}, expected bool")
        return value


class Selectors:
    """Selectors by their text, those used last."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Selector | str] = OrderedDict()

    def of(self, text: str) -> Selector:
        """The selector of an expression; DemandError: it does not compile."""
        known = self._known
        found = known.get(text)
        if found is None:
            try:
                found = Selector(text)
            except DemandError as error:
                found = str(error)
            known[text] = found
            if len(known) > MOST_EXPRESSIONS:
                known.popitem(last=False)
        else:
            known.move_to_end(text)
        if isinstance(found, str):
            raise DemandError(found)
        return found


def _plain(text: str) -> str:
    """An evaluator's error in the words that users of Kubernetes know."""
    missing = _NO_KEY.search(text)
    return f"no such key: {missing[1] or missing[2]}" if missing is not None else text


@cache
def _environments() -> tuple[Any, Any]:
    """To check by, and to evaluate in: see ``koord.cel.library`` on why these are two."""
    from cel_expr_python import cel

    from koord.cel import library
    from koord.cel.declared import Declared, Types
    from koord.cel.opaque import shared_pool

    config = cel.NewEnvConfigFromYaml(_EXTENSIONS)
    device = Declared("object")
    device.fields["driver"] = Declared("string")
    device.fields["allowMultipleAllocations"] = Declared("bool")
    for name in ("attributes", "capacity"):
        outer, inner = Declared("map"), Declared("map")
        inner.inner = Declared("dyn")
        outer.inner = inner
        device.fields[name] = outer
    types = Types({"device": device})
    exact = cel.NewEnv(descriptor_pool=types.pool, config=config, variables=types.types, extensions=[library.exact()])
    working = cel.NewEnv(
        descriptor_pool=shared_pool(),
        config=config,
        variables={"device": cel.Type.DYN},
        extensions=[library.working()],
    )
    return exact, working


def _compile(text: str) -> tuple[Any, tuple[Read, ...] | None, Tree | None]:
    """The expression, all that it reads of a device (None: who knows), and what its cost is worked out from (None: it
    is sure to be small)."""
    from koord.cel.metering import is_quick
    from koord.cel.wording import bare, in_kubernetes_words
    from koord.scheduler.dra.reading import reads

    if len(text) > LONGEST:
        raise DemandError(f"CEL compile error: must have at most {LONGEST} characters")
    exact, working = _environments()
    try:
        checked = exact.compile(text)
        result = checked.return_type().name().lower()
        if result not in ("bool", "dyn", "any"):
            raise DemandError(f"CEL compile error: must evaluate to bool or the unknown type, not {result}")
        tree = read(checked.serialize())
        found = reads(tree.root)
        return (
            working.compile(text, disable_check=True),
            None if found is None else tuple(sorted(found)),
            None if is_quick(tree) else tree,
        )
    except (RuntimeError, UnicodeEncodeError, TypeError) as error:
        words = in_kubernetes_words(bare(str(error)), text, 0)
        raise DemandError(f"CEL compile error: compilation failed: {words}") from None


def _shown(device: Device, reads: tuple[Read, ...] | None) -> dict[str, Any]:
    """The device as expressions see it, as far as they look. Values of the evaluator are made anew for each: it owns
    them."""
    from koord.cel import values

    attributes: dict[str, dict[str, Any]] = {}
    for (domain, name), (kind, value) in device.attributes.items():
        if reads is not None and ("attributes", domain, name) not in reads:
            continue
        shown: Any = value
        if kind == "version":
            try:
                shown = values.semver(str(value))
            except ValueError as error:
                raise DemandError(f"attribute {domain}/{name}: {error}") from None
        attributes.setdefault(domain, {})[name] = shown
    capacity: dict[str, dict[str, Any]] = {}
    for (domain, name), amount in device.capacity.items():
        if reads is not None and ("capacity", domain, name) not in reads:
            continue
        try:
            capacity.setdefault(domain, {})[name] = values.quantity(amount)
        except ValueError as error:
            raise DemandError(f"capacity {domain}/{name}: {error}") from None
    return {
        "driver": device.driver,
        "allowMultipleAllocations": device.multiple,
        "attributes": attributes,
        "capacity": capacity,
    }
