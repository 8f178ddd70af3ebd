"""Random sequences of writes to one object, the same on every server: applies, replacements, patches; several managers.

A sequence is made from a seed alone. What depends on the object (a replacement is a change of what was read) is made
from the step's own seed and the object, so that servers that agree so far get the same request.
"""

import copy
import random
from collections.abc import Callable
from typing import Any, NamedTuple

Object = dict[str, Any]

GROUP = "apply.koord.test"
APPLIERS = ("ann", "ben", "kubectl")
WRITERS = ("ann", "tool", "other")


class Kind(NamedTuple):
    """A kind of object: where it is, what a configuration of it may say, and its sub-resources."""

    api_version: str
    kind: str
    prefix: str
    plural: str
    configuration: Callable[[random.Random], Object]
    status: Callable[[random.Random], Object] | None
    strategic: bool


class Step(NamedTuple):
    """One write; `seed` decides all that is not said here."""

    verb: str
    manager: str
    force: bool
    status: bool
    seed: int


def steps(rng: random.Random, kind: Kind, count: int) -> list[Step]:
    """A sequence that begins with something that creates the object."""
    verbs = ["apply"] * 5 + ["put"] * 2 + ["merge"] * 2 + ["json"]
    result = [Step(rng.choice(["apply", "create"]), rng.choice(APPLIERS), False, False, rng.getrandbits(32))]
    while len(result) < count:
        verb = rng.choice(verbs)
        manager = rng.choice(APPLIERS if verb == "apply" else WRITERS)
        status = kind.status is not None and verb in ("apply", "merge") and rng.random() < 0.25
        result.append(Step(verb, manager, rng.random() < 0.6, status, rng.getrandbits(32)))
    return result


def _some(rng: random.Random, choices: list[Any], most: int | None = None) -> list[Any]:
    """Some of the choices, in any order."""
    count = rng.randint(0, min(len(choices), most or len(choices)))
    return rng.sample(choices, count)


def _texts(rng: random.Random, keys: str = "abcd") -> Object:
    return {key: rng.choice(("1", "2", "3")) for key in _some(rng, list(keys), 3)}


def _maybe(rng: random.Random, into: Object, key: str, value: Any, chance: float = 0.6) -> None:
    if rng.random() < chance:
        into[key] = value


def _metadata(rng: random.Random) -> Object:
    metadata: Object = {}
    _maybe(rng, metadata, "labels", _texts(rng, "lm") or {"l": "1"}, 0.5)
    _maybe(rng, metadata, "annotations", _texts(rng, "no") or {"n": "1"}, 0.3)
    _maybe(rng, metadata, "finalizers", _some(rng, ["x.test/a", "x.test/b"]) or ["x.test/c"], 0.2)
    return metadata


def _config_map(rng: random.Random) -> Object:
    result: Object = {"metadata": _metadata(rng)}
    _maybe(rng, result, "data", _texts(rng) or {"a": "1"}, 0.9)
    _maybe(rng, result, "binaryData", {"z": "AA=="}, 0.2)
    return result


def _container(rng: random.Random, name: str) -> Object:
    container: Object = {"name": name, "image": f"img:{rng.randint(1, 3)}"}
    ports = [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}, {"containerPort": 81, "name": "web"}]
    _maybe(rng, container, "ports", _some(rng, ports) or [{"containerPort": 82}], 0.5)
    env = [{"name": "E1", "value": rng.choice("xy")}, {"name": "E2", "value": "z"}, {"name": "E3"}]
    _maybe(rng, container, "env", _some(rng, env) or env[:1], 0.5)
    _maybe(rng, container, "args", _some(rng, ["p", "q"]) or ["r"], 0.3)
    _maybe(rng, container, "resources", {"requests": {rng.choice(("cpu", "memory")): "1"}}, 0.3)
    mounts = [{"name": "v1", "mountPath": "/a"}, {"name": "v1", "mountPath": "/b"}]
    _maybe(rng, container, "volumeMounts", _some(rng, mounts) or mounts[:1], 0.2)
    return container


def _pod_template(rng: random.Random) -> Object:
    names = _some(rng, ["one", "two"]) or ["one"]
    spec: Object = {
        "containers": [_container(rng, name) for name in names],
        "volumes": [{"name": "v1", "emptyDir": {}}],
    }
    _maybe(rng, spec, "nodeSelector", _texts(rng, "rs") or {"r": "1"}, 0.4)
    _maybe(rng, spec, "tolerations", [{"key": rng.choice("gh"), "operator": "Exists"}], 0.3)
    _maybe(rng, spec, "terminationGracePeriodSeconds", rng.choice((5, 6)), 0.4)
    _maybe(rng, spec, "imagePullSecrets", [{"name": name} for name in _some(rng, ["i", "j"])] or [{"name": "k"}], 0.3)
    template: Object = {"spec": spec}
    _maybe(rng, template, "metadata", {"labels": _texts(rng, "tu") or {"t": "1"}}, 0.4)
    return {"metadata": _metadata(rng), "template": template}


def _pod(rng: random.Random) -> Object:
    container: Object = {"name": "main", "image": f"img:{rng.randint(1, 3)}"}
    # The rest of a pod's specification cannot change, and its readiness gates would decide about its conditions.
    metadata = _metadata(rng)
    metadata.pop("finalizers", None)
    return {"metadata": metadata, "spec": {"automountServiceAccountToken": False, "containers": [container]}}


def _pod_status(rng: random.Random) -> Object:
    kinds = _some(rng, ["Ready", "Initialized", "x.test/C"]) or ["Ready"]
    conditions = [
        {
            "type": kind,
            "status": rng.choice(("True", "False")),
            "lastProbeTime": "2026-01-01T00:00:00Z",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        for kind in kinds
    ]
    status: Object = {"conditions": conditions}
    _maybe(rng, status, "message", rng.choice("ab"), 0.5)
    _maybe(rng, status, "reason", rng.choice("ab"), 0.3)
    return status


def _widget(rng: random.Random) -> Object:
    spec: Object = {}
    _maybe(rng, spec, "size", rng.randint(1, 3))
    _maybe(rng, spec, "text", rng.choice("xy"), 0.4)
    _maybe(rng, spec, "flag", rng.random() < 0.5, 0.3)
    _maybe(rng, spec, "granular", _texts(rng, "abc"))
    _maybe(rng, spec, "atomic", _texts(rng, "ab"), 0.4)
    _maybe(rng, spec, "names", _some(rng, ["n1", "n2", "n3"]))
    _maybe(rng, spec, "numbers", _some(rng, [1, 2, 30]), 0.3)
    _maybe(rng, spec, "words", _some(rng, ["w1", "w2"]), 0.4)
    items = [{"name": name, "value": rng.randint(1, 3)} for name in _some(rng, ["i1", "i2", "i3"])]
    items += [{"name": "i1", "proto": "UDP"}] if rng.random() < 0.3 else []
    _maybe(rng, spec, "items", items)
    _maybe(rng, spec, "nested", {"inner": {"deep": rng.choice("pq")}} if rng.random() < 0.7 else {}, 0.5)
    _maybe(rng, spec, "anything", {"k": rng.choice([1, "t", [1], {"d": 1}, {}])}, 0.4)
    result: Object = {"metadata": _metadata(rng)}
    _maybe(rng, result, "spec", spec, 0.95)
    return result


def _widget_status(rng: random.Random) -> Object:
    status: Object = {}
    kinds = _some(rng, ["A", "B"]) or ["A"]
    _maybe(rng, status, "conditions", [{"type": kind, "status": rng.choice(("True", "False"))} for kind in kinds], 0.8)
    _maybe(rng, status, "phase", rng.choice("xy"), 0.6)
    return status


def _loose(rng: random.Random) -> Object:
    """Anything at all: nothing is known of such an object but its metadata."""

    def value(depth: int) -> Any:
        kinds = ["text", "number", "flag"] if depth > 2 else ["text", "number", "flag", "map", "map", "list", "none"]
        match rng.choice(kinds):
            case "text":
                return rng.choice("xyz")
            case "number":
                return rng.randint(1, 2)
            case "flag":
                return rng.random() < 0.5
            case "list":
                return [value(depth + 1) for _ in range(rng.randint(0, 2))]
            case "none":
                return None if rng.random() < 0.2 else {}
        return {key: value(depth + 1) for key in _some(rng, ["p", "q", "r"])}

    return {"metadata": _metadata(rng), **{key: value(1) for key in _some(rng, ["spec", "more"])}}


def definitions() -> list[Object]:
    """The CustomResourceDefinitions: of the widgets, and of what is loose, whose schema says nothing."""
    anything = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": anything}
    return [_widgets(), _definition("loose", "Loose", [version])]


def _definition(plural: str, kind: str, versions: list[Object]) -> Object:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind},
            "versions": versions,
        },
    }


def _widgets() -> Object:
    text = {"type": "string"}
    item = {
        "type": "object",
        "required": ["name"],
        "properties": {"name": text, "proto": {**text, "default": "TCP"}, "value": {"type": "integer"}},
    }
    condition = {"type": "object", "required": ["type"], "properties": {"type": text, "status": text}}
    spec = {
        "type": "object",
        "properties": {
            "size": {"type": "integer"},
            "text": text,
            "flag": {"type": "boolean"},
            "granular": {"type": "object", "additionalProperties": text},
            "atomic": {"type": "object", "additionalProperties": text, "x-kubernetes-map-type": "atomic"},
            "names": {"type": "array", "items": text, "x-kubernetes-list-type": "set"},
            "numbers": {"type": "array", "items": {"type": "integer"}, "x-kubernetes-list-type": "set"},
            "words": {"type": "array", "items": text},
            "items": {
                "type": "array",
                "items": item,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name", "proto"],
            },
            "nested": {
                "type": "object",
                "properties": {"inner": {"type": "object", "properties": {"deep": text}}},
            },
            "anything": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    status = {
        "type": "object",
        "properties": {
            "phase": text,
            "conditions": {
                "type": "array",
                "items": condition,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
            },
        },
    }
    schema = {"type": "object", "properties": {"spec": spec, "status": status}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    return _definition("widgets", "Widget", [version])


KINDS = {
    "ConfigMap": Kind("v1", "ConfigMap", "/api/v1", "configmaps", _config_map, None, True),
    "PodTemplate": Kind("v1", "PodTemplate", "/api/v1", "podtemplates", _pod_template, None, True),
    "Pod": Kind("v1", "Pod", "/api/v1", "pods", _pod, _pod_status, True),
    "Widget": Kind(f"{GROUP}/v1", "Widget", f"/apis/{GROUP}/v1", "widgets", _widget, _widget_status, False),
    "Loose": Kind(f"{GROUP}/v1", "Loose", f"/apis/{GROUP}/v1", "loose", _loose, None, False),
}


def configuration(kind: Kind, step: Step, name: str) -> Object:
    """What a step applies or creates."""
    rng = random.Random(step.seed)
    body = kind.configuration(rng)
    if step.status:
        assert kind.status is not None
        body = {"status": kind.status(rng)}
    metadata = body.get("metadata", {})
    return {"apiVersion": kind.api_version, "kind": kind.kind, **body, "metadata": {**metadata, "name": name}}


def merge_patch(kind: Kind, step: Step) -> Object:
    """A merge patch that sets a little and removes a little."""
    rng = random.Random(step.seed)
    if step.status:
        assert kind.status is not None
        return {"status": kind.status(rng)}
    body = kind.configuration(rng)
    if kind.kind == "Pod":
        return {"metadata": body["metadata"]}
    content = body.get("spec") or body.get("data") or {}
    for key in _some(rng, sorted(content) if isinstance(content, dict) else [], 2):
        content[key] = None
    return body


def replacement(kind: Kind, step: Step, current: Object) -> Object:
    """The current object with one part from elsewhere, as a client that reads and writes back."""
    rng = random.Random(step.seed)
    other = kind.configuration(rng)
    new = copy.deepcopy(current)
    if rng.random() < 0.5:
        new["metadata"].pop("managedFields", None)
    part = rng.choice(("metadata", "content"))
    if part == "metadata" or kind.kind == "Pod":
        for key in ("labels", "annotations"):
            new["metadata"].pop(key, None)
            if key in other["metadata"]:
                new["metadata"][key] = other["metadata"][key]
        return new
    for key in ("spec", "data", "template", "more"):
        if key in other:
            new[key] = other[key]
        elif rng.random() < 0.3:
            new.pop(key, None)
    return new


def json_patch(kind: Kind, step: Step, current: Object) -> list[Object]:
    """A JSON patch of the labels, or of what the object has."""
    rng = random.Random(step.seed)
    labels = current["metadata"].get("labels")
    if not labels:
        return [{"op": "add", "path": "/metadata/labels", "value": _texts(rng, "lm") or {"l": "9"}}]
    key = rng.choice(sorted(labels))
    if rng.random() < 0.5:
        return [{"op": "remove", "path": f"/metadata/labels/{key}"}]
    return [{"op": "replace", "path": f"/metadata/labels/{key}", "value": rng.choice(("1", "7"))}]
