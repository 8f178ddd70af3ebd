"""Reading an object into the form of its kind, so that later code may rely on its types.

What a kind is, say the schemas: of built-in kinds by their facts (`schemas.decoding`), of custom resources by their
definitions (`schemas.custom`). The compiled readers are kept with the resource.
"""

from typing import Any

from koord.localcluster.api.errors import Cause, bad_request, invalid
from koord.localcluster.api.resources import Resource
from koord.localcluster.api.schemas.custom import CustomReader
from koord.localcluster.api.schemas.decoding import Decoder
from koord.localcluster.api.schemas.lookup import storage_schema
from koord.localcluster.api.schemas.strict import Report
from koord.localcluster.clusterapi import Object

_NOTHING: Object = {}


def check_shape(
    resource: Resource,
    obj: Any,
    before: Object = _NOTHING,
    report: Report | None = None,
    subresource: str | None = None,
) -> bool:
    """Bring an object into its kind's form, in place: unknown fields and nulls go, custom objects get their defaults.

    400 when something cannot be read, or is not wanted by who asked for strict decoding (`report`); 422 when it is the
    result of a patch on `before`, whose parts that did not change are passed over. Answers whether a custom object is
    known to keep its schema's rules; those of others are told by `schema_causes`. An object in another version than the
    stored one is checked by that version's rules (422), and gets the form of the stored version.
    """
    if not isinstance(obj, dict):
        raise bad_request("the body must be a JSON object")
    if obj.get("metadata") is None:
        obj["metadata"] = {}
    version = report.version if report is not None and report.version else resource.version
    reader = resource.readers.get(version) or _reader(resource, version)
    proven: bool = reader.read(obj, before, report)
    if version == resource.version:
        return proven
    if not proven and (
        causes := schema_causes(resource, obj, before or None, subresource=subresource, version=version)
    ):
        raise invalid(resource, obj["metadata"].get("name", ""), causes)
    stored = resource.readers.get(resource.version) or _reader(resource, resource.version)
    assert isinstance(stored, CustomReader)  # only custom resources have several versions
    stored.complete(obj)
    return True


def schema_causes(
    resource: Resource, obj: Object, old: Object | None = None, *, subresource: str | None = None, version: str = ""
) -> list[Cause]:
    """The rules of its schema that a custom object breaks, but not those that it already broke as `old`."""
    reader = resource.readers.get(version or resource.version) or _reader(resource, version or resource.version)
    if not isinstance(reader, CustomReader):
        return []
    only_status = subresource == "status"
    without_status = resource.status and not only_status
    causes = reader.check(obj, without_status=without_status, only_status=only_status)
    if causes and old is not None:
        # What is broken and was not changed may stay (ratcheting): a schema may become stricter than its objects.
        before = set(reader.check(old, without_status=without_status, only_status=only_status))
        causes = [cause for cause in causes if cause not in before]
    if old is None and resource.status:
        obj = {name: value for name, value in obj.items() if name != "status"}
    return causes + reader.check_rules(obj, old, causes)


def _reader(resource: Resource, version: str) -> Decoder | CustomReader:
    reader: Decoder | CustomReader
    if resource.custom:
        schema = resource.schemas.get(version) or resource.schemas[resource.version]
        reader = CustomReader(schema, resource.kind, version)
    else:
        known = storage_schema(resource)
        if known is None:
            raise LookupError(f"no schema is known for {resource.key}")
        reader = Decoder(known, resource.kind, version)
    resource.readers[version] = reader
    return reader
