"""The shape of a pod: the part of its spec that decides its placement, shared by every pod that has it.

The parts of the spec are kept as the bytes the API server sent: pods made from one template have equal bytes, which
makes the key of their class a lookup and not a walk. Equal specs written differently only become two classes.
"""

from collections.abc import Hashable
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from koord.kube.meta import decode
from koord.kube.pods import PodSpec

_FIELDS = (
    b"nodeSelector",
    b"affinity",
    b"tolerations",
    b"overhead",
    b"resources",
    b"topologySpreadConstraints",
    b"resourceClaims",
)
_LISTS = (b"containers", b"initContainers", b"volumes")
Parts = tuple[bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes, str]
"""Values of the fields above as JSON, items of the lists, and what the pod's ``replace-resources`` annotation says."""


_NAME = "metadata.name"


def split_name(affinity: bytes) -> tuple[bytes, str]:
    """Affinity without its one node, and that node's name: what the controller of a DaemonSet writes into each pod.

    It does so as a field of every required term. Taken out, the pods of a DaemonSet are of one shape; the rest of the
    affinity is empty if there was nothing else. Whatever is written in another way stays as it is, with no name.
    """
    if _NAME.encode() not in affinity:
        return affinity, ""
    try:
        whole = msgspec.json.decode(affinity)
        of_node = whole["nodeAffinity"]
        required = of_node["requiredDuringSchedulingIgnoredDuringExecution"]
        terms = required["nodeSelectorTerms"]
        [name] = {_only(term["matchFields"]) for term in terms}
        rest = [{key: value for key, value in term.items() if key != "matchFields"} for term in terms]
        free = not all(term.get("matchExpressions") for term in rest)
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError):
        return affinity, ""
    if free:
        # A term that asks for nothing else: on its node there is nothing left to ask.
        del of_node["requiredDuringSchedulingIgnoredDuringExecution"]
        if not of_node:
            del whole["nodeAffinity"]
    else:
        required["nodeSelectorTerms"] = rest
    return (msgspec.json.encode(whole) if whole else b""), name


def with_name(affinity: bytes, node: str) -> bytes:
    """The affinity that ``split_name`` took ``node`` from, as every required term has it."""
    whole = msgspec.json.decode(affinity) if affinity else {}
    of_node = whole.setdefault("nodeAffinity", {})
    required = of_node.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {"nodeSelectorTerms": [{}]})
    field = {"key": _NAME, "operator": "In", "values": [node]}
    required["nodeSelectorTerms"] = [{**term, "matchFields": [field]} for term in required["nodeSelectorTerms"]]
    return msgspec.json.encode(whole)


def _only(fields: Any) -> str:
    """The one name that the fields of a term allow. ValueError or TypeError: it is not one name."""
    [field] = fields
    [name] = field["values"]
    if field["key"] != _NAME or field["operator"] != "In" or not isinstance(name, str) or not name:
        raise ValueError(name)
    return name


class PodShapeError(ValueError):
    """A pod spec that cannot be scheduled as written; names the field and the rule."""


class PodShape:
    """The scheduling-relevant part of a spec. Images, priority and what is only of one pod are not in it."""

    __slots__ = ("__weakref__", "_failure", "_spec", "claims", "parts")

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.claims = bool(parts[6])
        """Whether its pods have claims on devices."""
        self._spec: PodSpec | None = None
        self._failure: str | None = None

    @property
    def spec(self) -> PodSpec:
        """The typed spec; PodShapeError names what is wrong with it."""
        if self._failure is not None:
            raise PodShapeError(self._failure)
        if self._spec is None:
            try:
                self._spec = decode(PodSpec, _assemble(self.parts))
            except msgspec.ValidationError as error:
                self._failure = f"spec: {error}"
                raise PodShapeError(self._failure) from error
        return self._spec

    @property
    def outline(self) -> Hashable:
        """Equal for shapes that are alike but for what their pods ask for; None where containers say more than that, or
        pods have claims on devices, which containers name among their resources."""
        selector, affinity, tolerations, _, _, spread, claims, containers, init_containers, volumes, _ = self.parts
        if claims or b'"ports"' in containers or b'"ports"' in init_containers:
            return None
        return selector, affinity, tolerations, spread, volumes

    @property
    def replace(self) -> str:
        """The pod's ``replace-resources`` annotation."""
        return self.parts[10]

    def on(self, node: str) -> "PodShape":
        """The shape of pods whose affinity names ``node``, which was taken out of this one's."""
        return shape_of((self.parts[0], with_name(self.parts[1], node), *self.parts[2:]))


_shapes: WeakValueDictionary[Hashable, PodShape] = WeakValueDictionary()


def shape_of(parts: Parts) -> PodShape:
    """The one shape of these parts."""
    shape = _shapes.get(parts)
    if shape is None:
        shape = _shapes[parts] = PodShape(parts)
    return shape


def _assemble(parts: Parts) -> bytes:
    """One JSON object out of the parts that are there."""
    values: tuple[bytes, ...] = parts[:10]
    fields = [b'"%s":%s' % (name, part) for name, part in zip(_FIELDS, values, strict=False) if part]
    fields += [b'"%s":[%s]' % (name, items) for name, items in zip(_LISTS, values[len(_FIELDS) :], strict=True)]
    return b"{%s}" % b",".join(fields)
