"""Custom objects by their definition's schema: read (pruned, defaulted), and checked.

The quick way is one msgspec pass per section that has changed; an object that passes it needs nothing more than its
defaults.
"""

from typing import TYPE_CHECKING, Any

import msgspec

from koord.localcluster.api.errors import Cause, bad_request, invalid_patch
from koord.localcluster.api.schemas import decoding
from koord.localcluster.api.schemas.builtin import object_metadata
from koord.localcluster.api.schemas.fasttypes import fast_type, fast_types
from koord.localcluster.api.schemas.model import Schema
from koord.localcluster.api.schemas.pruning import drop_nulls, fill, prune
from koord.localcluster.api.schemas.reading import read
from koord.localcluster.api.schemas.strict import IGNORE, Report
from koord.localcluster.api.schemas.validating import check_lists, validate
from koord.localcluster.clusterapi import Object

if TYPE_CHECKING:
    from koord.localcluster.api.schemas.rulebook import Rulebook

_TEXT = Schema("string")
_NOTHING: Object = {}
_BLOCKING = frozenset(f"FieldValue{kind}" for kind in ("NotSupported", "Required", "TooLong", "TooMany", "TypeInvalid"))
_UNCHECKED = Cause(
    "FieldValueInvalid",
    "<nil>",
    "Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing "
    "errors to complete validation",
)
_convert = msgspec.convert


def custom_schema(source: dict[str, Any] | None) -> Schema:
    """The node of one version's `openAPIV3Schema`; an open object without one. The source must be structural."""
    node = read(source or {"type": "object", "x-kubernetes-preserve-unknown-fields": True})
    _complete(node)
    node.note_below()
    return node


def _complete(node: Schema) -> None:
    """Give whole objects, at the root and where they are embedded, their type and metadata."""
    pending = [(node, True)]
    while pending:
        node, whole = pending.pop()
        if whole or node.embedded_resource:
            own = node.properties.get("metadata")
            if own is not None and own.properties:
                node.metadata_rules = own
            node.properties = {
                **node.properties,
                "apiVersion": _TEXT,
                "kind": _TEXT,
                "metadata": object_metadata(),
            }
        below = [inner for inner in node.properties.values() if inner is not _TEXT and not inner.definition]
        below += [inner for inner in (node.items, node.additional) if inner is not None]
        pending.extend((inner, False) for inner in below)


def _rulebook(schema: Schema) -> "Rulebook | None":
    if not schema.rules_below:
        return None
    # The evaluator is loaded by the first kind that has rules.
    from koord.localcluster.api.schemas.rulebook import Rulebook

    return Rulebook.of(schema, whole=True)


class CustomReader:
    """Reads and checks the objects of one version of a custom resource."""

    def __init__(self, schema: Schema, kind: str, version: str) -> None:
        self.schema = schema
        self.kind = kind
        self.version = version
        self._sections = fast_types(schema.properties, typed=False)
        self._sections["metadata"] = fast_type(object_metadata(), typed=True)
        root = schema.any_of or schema.all_of or schema.one_of or schema.not_ or schema.metadata_rules
        # What msgspec cannot express of the root, or does not see there, is always walked.
        if root or schema.min_properties is not None or schema.max_properties is not None:
            self._sections = {"metadata": self._sections["metadata"]}
        self._required = schema.required
        self._book = _rulebook(schema)

    def read(self, obj: Object, before: Object = _NOTHING, report: Report | None = None) -> bool:
        """Prune and default an object, in place; whether it is known to keep its schema's rules.

        400 for metadata that cannot be read and for what a strict client does not want (422 for a patch's result).
        What it shares with the object `before`, which was read earlier, is passed over.
        """
        fill(obj, self.schema)
        sections, passed = self._sections, True
        get = before.get
        try:
            for name, value in obj.items():
                if value is None or value is not get(name):
                    _convert(value, sections[name])
        except (msgspec.ValidationError, KeyError, TypeError):
            self._walk(obj, before, report)
            passed = False
        if report is not None and (refused := report.refused):
            raise self._refusal(obj, before, refused)
        if self._book is not None or not passed or not all(name in obj for name in self._required):
            return False
        return not check_lists(obj, self.schema)

    def _walk(self, obj: Object, before: Object, report: Report | None) -> None:
        unknown: list[str] = []
        metadata = obj.get("metadata")
        if metadata is None:
            obj.pop("metadata", None)
        else:
            try:
                self._metadata(metadata, unknown)
            except decoding.TypeMismatchError as error:
                raise self._refusal(obj, before, str(error)) from error
        paths: list[str] = []
        prune(obj, self.schema, "", paths)
        drop_nulls(obj, self.schema)
        if report is not None and report.mode != IGNORE:
            report.note(unknown)
            report.note([f'unknown field "{path}"' for path in sorted(paths)])

    @staticmethod
    def _metadata(metadata: Any, unknown: list[str]) -> None:
        if not isinstance(metadata, dict):
            shown = decoding.json_kind(metadata)
            raise decoding.TypeMismatchError(f"json: cannot unmarshal {shown} into Go value of type v1.ObjectMeta")
        decoding.read_object(metadata, object_metadata(), "metadata", unknown)

    def _refusal(self, obj: Object, before: Object, why: str) -> Exception:
        if before:
            return invalid_patch(obj, why)
        kind = obj.get("kind") if isinstance(obj.get("kind"), str) else self.kind
        return bad_request(f'{kind} in version "{self.version}" cannot be handled as a {self.kind}: {why}')

    def check(self, obj: Object, *, without_status: bool = False, only_status: bool = False) -> list[Cause]:
        """The broken rules of an object that was read; of a status sub-resource only the status counts, or all but."""
        if only_status:
            schema = self.schema.properties.get("status")
            if schema is None or "status" not in obj:
                return []
            return validate(obj["status"], schema, prefix="status") + check_lists(obj["status"], schema, "status")
        if without_status:
            obj = {name: value for name, value in obj.items() if name != "status"}
        if self._book is not None and self._keeps(obj):
            return check_lists(obj, self.schema)
        return validate(obj, self.schema) + check_lists(obj, self.schema)

    def _keeps(self, obj: Object) -> bool:
        """Whether the quick way says that an object keeps its schema's rules."""
        try:
            for name, value in obj.items():
                _convert(value, self._sections[name])
        except (msgspec.ValidationError, KeyError, TypeError):
            return False
        return all(name in obj for name in self._required)

    def check_rules(self, obj: Object, old: Object | None, causes: list[Cause]) -> list[Cause]:
        """The broken rules in CEL of an object, which its schema says `causes` of; `old` is its state before."""
        if self._book is None:
            return []
        if any(cause.reason in _BLOCKING for cause in causes):
            return [_UNCHECKED]
        return self._book.check(obj, old)

    def complete(self, obj: Object) -> None:
        """Prune and default an object that an earlier version of the schema has let in."""
        fill(obj, self.schema)
        prune(obj, self.schema, "", [])
        drop_nulls(obj, self.schema)
