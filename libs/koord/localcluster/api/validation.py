"""The checks of the API server that do not need other objects: names, labels, quantities, required and fixed fields."""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from koord.kube.quantity import QuantityError, parse
from koord.localcluster.api.errors import Cause, duplicate, invalid_value, not_supported, required
from koord.localcluster.api.finalizers import added_causes, finalizer_causes
from koord.localcluster.api.names import (
    LABEL_RULE,
    NAME_RULE,
    SUBDOMAIN_RULE,
    VALUE_RULE,
    is_label,
    is_label_value,
    is_name_part,
    is_subdomain,
)
from koord.localcluster.api.resources import Resource
from koord.localcluster.clusterapi import Object

_ANNOTATION_BYTES = 256 * 1024
_LABEL_NAMES = {"namespaces", "services"}
_PATH_NAMES = {
    "clusterroles.rbac.authorization.k8s.io",
    "clusterrolebindings.rbac.authorization.k8s.io",
    "roles.rbac.authorization.k8s.io",
    "rolebindings.rbac.authorization.k8s.io",
}
_known_keys: dict[str, bool] = {}
_known_values: dict[str, bool] = {}
_known_amounts: dict[str, str | None] = {}
_known_forms: dict[str, str] = {}
_CACHED = 8_192


def name_problem(resource: Resource, name: str) -> str | None:
    """Why a name is not allowed, or None."""
    if resource.key in _PATH_NAMES:
        bad = name in (".", "..") or "/" in name or "%" in name
        return "may not be '.' or '..' and may not contain '/' or '%'" if bad else None
    if resource.key in _LABEL_NAMES:
        if len(name) > 63:
            return "must be no more than 63 characters"
        return None if is_label(name) else LABEL_RULE
    if len(name) > 253:
        return "must be no more than 253 characters"
    return None if is_subdomain(name) else SUBDOMAIN_RULE


def _key_ok(key: str) -> bool:
    ok = _known_keys.get(key)
    if ok is None:
        prefix, slash, name = key.rpartition("/")
        ok = bool(name) and len(name) <= 63 and is_name_part(name) is not None
        if slash:
            ok = ok and len(prefix) <= 253 and is_subdomain(prefix) is not None
        if len(_known_keys) > _CACHED:
            _known_keys.clear()
        _known_keys[key] = ok
    return ok


def qualified_name_problem(name: str) -> str | None:
    """Why a qualified name (`domain/name`) is not allowed, or None."""
    return None if _key_ok(name) else NAME_RULE


def _value_ok(value: str) -> bool:
    ok = _known_values.get(value)
    if ok is None:
        ok = len(value) <= 63 and is_label_value(value) is not None
        if len(_known_values) > _CACHED:
            _known_values.clear()
        _known_values[value] = ok
    return ok


def label_value_causes(value: str, path: str) -> Iterator[Cause]:
    """What is wrong with a label's value."""
    if not _value_ok(value):
        yield invalid_value(path, value, VALUE_RULE)


def validate_labels(labels: Object, path: str) -> Iterable[Cause]:
    """Keys are qualified names, values label values."""
    for key, value in labels.items():
        if not _known_keys.get(key) or not _known_values.get(value):
            return _label_causes(labels, path)
    return ()


def _label_causes(labels: Object, path: str) -> Iterator[Cause]:
    for key, value in labels.items():
        if not _key_ok(key):
            yield invalid_value(path, key, NAME_RULE)
        if not _value_ok(value):
            yield invalid_value(path, value, VALUE_RULE)


def validate_metadata(resource: Resource, metadata: Object) -> list[Cause]:
    """Name, namespace, labels, annotations, finalizers."""
    causes: list[Cause] = []
    name = metadata.get("name")
    if not name:
        causes.append(required("metadata.name", "name or generateName is required"))
    elif problem := name_problem(resource, name):
        causes.append(invalid_value("metadata.name", name, problem))
    if labels := metadata.get("labels"):
        causes.extend(validate_labels(labels, "metadata.labels"))
    if annotations := metadata.get("annotations"):
        causes.extend(_annotation_causes(annotations))
    if finalizers := metadata.get("finalizers"):
        causes.extend(validate_finalizers(resource, finalizers))
    if owners := metadata.get("ownerReferences"):
        causes.extend(_owner_causes(owners))
    return causes


def _annotation_causes(annotations: Object) -> Iterable[Cause]:
    """Keys are qualified names, and all together have a bounded size."""
    causes: list[Cause] = []
    size = 0
    for key, value in annotations.items():
        size += len(key) + len(value)
        if not _key_ok(key) and not _key_ok(key.lower()):
            causes.append(invalid_value("metadata.annotations", key, NAME_RULE))
    if size > _ANNOTATION_BYTES:
        words = f"Too long: may not be more than {_ANNOTATION_BYTES} bytes"
        causes.append(Cause("FieldValueTooLong", "metadata.annotations", words))
    return causes


def _owner_causes(owners: list[Object]) -> list[Cause]:
    """Owners are named in full, and one at most is the controller."""
    causes: list[Cause] = []
    for i, owner in enumerate(owners):
        get = owner.get
        version: str = get("apiVersion") or ""
        if version.count("/") > 1 or version.endswith("/"):
            causes.append(
                invalid_value(
                    f"metadata.ownerReferences[{i}].apiVersion", version, "must be <group>/<version> or <version>"
                )
            )
        if get("kind") == "Event" and version == "v1":
            shown = json.dumps(owner, separators=(",", ":"))
            words = f"Invalid value: {shown}: /v1, Kind=Event is disallowed from being an owner"
            causes.append(Cause("FieldValueInvalid", f"metadata.ownerReferences[{i}]", words))
        if not (version and get("kind") and get("name") and get("uid")):
            causes.extend(
                required(f"metadata.ownerReferences[{i}].{field}", "must not be empty")
                for field in ("apiVersion", "kind", "name", "uid")
                if not get(field)
            )
    if len(owners) > 1:
        controllers = [str(owner.get("name")) for owner in owners if owner.get("controller")]
        if len(controllers) > 1:
            shown = json.dumps(owners, separators=(",", ":"))
            words = (
                f"Invalid value: {shown}: Only one reference can have Controller set to true."
                f' Found "true" in references for {controllers[0]} and {controllers[1]}'
            )
            causes.append(Cause("FieldValueInvalid", "metadata.ownerReferences", words))
    return causes


def validate_metadata_change(resource: Resource, new: Object, old: Object) -> list[Cause]:
    """Labels, annotations and owners as on create, if they changed; nothing else of metadata can change."""
    causes: list[Cause] = []
    labels = new.get("labels")
    if labels and labels != old.get("labels"):
        causes.extend(validate_labels(labels, "metadata.labels"))
    annotations = new.get("annotations")
    if annotations and annotations != old.get("annotations"):
        causes.extend(_annotation_causes(annotations))
    owners = new.get("ownerReferences")
    if owners and owners != old.get("ownerReferences"):
        causes.extend(_owner_causes(owners))
    finalizers, before = new.get("finalizers") or [], old.get("finalizers") or []
    if finalizers != before:
        causes.extend(validate_finalizers(resource, finalizers))
        if "deletionTimestamp" in old:
            causes.extend(added_causes(finalizers, before))
    return causes


def validate_finalizers(resource: Resource, finalizers: list[str]) -> Iterable[Cause]:
    """Qualified names, and what `finalizers` says about them."""
    for finalizer in finalizers:
        if not _key_ok(finalizer):
            yield invalid_value("metadata.finalizers", finalizer, NAME_RULE)
    yield from finalizer_causes(resource, finalizers)


def amount_problem(amount: Any) -> str | None:
    """Why a resource amount is not allowed, or None. Answers are remembered: amounts repeat."""
    text = str(amount)
    try:
        return _known_amounts[text]
    except KeyError:
        pass
    problem: str | None = None
    try:
        if parse(amount).milli() < 0:
            problem = "must be greater than or equal to 0"
    except QuantityError as error:
        problem = str(error)
    if len(_known_amounts) > _CACHED:
        _known_amounts.clear()
    _known_amounts[text] = problem
    return problem


def canonical_amounts(amounts: Object, names: Iterable[str] | None = None) -> None:
    """Write amounts (all, or these) as the real server does: `1000m` is `1`, `1024Mi` is `1Gi`, a number is a text.

    In place, and only where something changes.
    """
    for name in amounts if names is None else names:
        amount: Any = amounts.get(name)
        known = _known_forms.get(amount) if type(amount) is str else None
        if known == amount:
            continue
        if known is None:
            try:
                known = parse(amount).canonical()
            except QuantityError:
                continue
            if len(_known_forms) > _CACHED:
                _known_forms.clear()
            _known_forms[str(amount)] = known
        if known != amount:
            amounts[name] = known


def validate_amounts(amounts: Object, path: str) -> Iterable[Cause]:
    """Every amount is a quantity, not negative."""
    for name, amount in amounts.items():
        if not _known_keys.get(name) or type(amount) is not str or _known_amounts.get(amount, "new") is not None:
            return _amount_causes(amounts, path)
    return ()


def _amount_causes(amounts: Object, path: str) -> Iterator[Cause]:
    for name, amount in amounts.items():
        if not _key_ok(name):
            yield invalid_value(path, name, NAME_RULE)
        elif problem := amount_problem(amount):
            yield invalid_value(f"{path}[{name}]", str(amount), problem)


def validate_node(node: Object) -> list[Cause]:
    """Taints and amounts."""
    causes: list[Cause] = []
    seen: set[tuple[Any, Any]] = set()
    for i, taint in enumerate((node.get("spec") or {}).get("taints") or ()):
        path = f"spec.taints[{i}]"
        key, effect = taint.get("key"), taint.get("effect")
        if not key:
            causes.append(required(f"{path}.key"))
        elif not _key_ok(key):
            causes.append(invalid_value(f"{path}.key", key, NAME_RULE))
        if effect not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
            causes.append(not_supported(f"{path}.effect", effect, ("NoExecute", "NoSchedule", "PreferNoSchedule")))
        if (key, effect) in seen:
            causes.append(duplicate(path, f"{key}:{effect}"))
        seen.add((key, effect))
    status = node.get("status") or {}
    for section in ("capacity", "allocatable"):
        causes.extend(validate_amounts(status.get(section) or {}, f"status.{section}"))
    return causes


Validator = Callable[[Object], list[Cause]]
ChangeValidator = Callable[[Object, Object], list[Cause]]
