"""What a CustomResourceDefinition must be to be stored: names, versions, schemas, columns; the real server's words.

Its parts have their types already (`schemas.decoding`); what is refused here is 422.
"""

import re
from types import NoneType
from typing import Any

from koord.cel.limits import MOST_RULES
from koord.localcluster.api.errors import Cause, bad_request, forbidden_value, invalid_value, not_supported, required
from koord.localcluster.api.jsonpath import JsonPath, JsonPathError
from koord.localcluster.api.schemas.ruledefinitions import weight_of_rules
from koord.localcluster.api.schemas.structural import check_structure
from koord.localcluster.api.schemas.validating import show
from koord.localcluster.clusterapi import Object

_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LABEL_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_PROTECTED = re.compile(r"(.+\.)?(k8s|kubernetes)\.io")
_APPROVED = "api-approved.kubernetes.io"


def validate_crd(crd: Object) -> list[Cause]:
    """The rules of a definition."""
    spec: Object = crd.get("spec") or {}
    names: Object = spec.get("names") or {}
    versions: list[Object] = spec.get("versions") or []
    for version in versions:
        _check_readable((version.get("schema") or {}).get("openAPIV3Schema"))
    causes = _check_names(crd, spec, names)
    causes += _check_versions(versions)
    schemas = [(version.get("schema") or {}).get("openAPIV3Schema") for version in versions]
    rules = sum(weight_of_rules(schema) for schema in schemas if isinstance(schema, dict))
    if rules > MOST_RULES:
        # They are compiled while nobody else is served.
        why = f"must not have more than {MOST_RULES} rules on this server (long ones count as several), has {rules}"
        return [*causes, forbidden_value("spec.versions", why)]
    for i, version in enumerate(versions):
        # A single version is spoken of as if it were the whole definition, as versions once did not exist.
        path = "spec" if len(versions) == 1 else f"spec.versions[{i}]"
        causes += _check_schema(version, i, alone=len(versions) == 1)
        causes += _check_columns(version.get("additionalPrinterColumns") or [], f"{path}.additionalPrinterColumns")
        causes += _check_scale((version.get("subresources") or {}).get("scale"), f"{path}.subresources.scale")
        causes += _check_fields(version.get("selectableFields") or [], f"{path}.selectableFields")
    causes += _check_conversion(spec["conversion"]) if spec.get("conversion") is not None else []
    if spec.get("preserveUnknownFields"):
        why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        causes.append(invalid_value("spec.preserveUnknownFields", True, why))
    return causes


def _check_readable(schema: Any) -> None:
    """400 for what is neither a schema nor a boolean where one of them must be: Go cannot read it at all."""
    pending = [schema]
    while pending:
        source = pending.pop()
        if isinstance(source, list):
            pending.extend(source)
        if not isinstance(source, dict):
            continue
        for key in ("additionalProperties", "additionalItems"):
            if not isinstance(source.get(key), dict | bool | NoneType):
                why = "boolean or JSON schema expected"
                raise bad_request(
                    'CustomResourceDefinition in version "v1" cannot be handled as a CustomResourceDefinition: ' + why
                )
        for key in ("properties", "patternProperties", "definitions"):
            if isinstance(source.get(key), dict):
                pending.extend(source[key].values())
        pending.extend(source.get(key) for key in ("items", "additionalProperties", "not", "allOf", "anyOf", "oneOf"))


def _label(path: str, value: str, prefix: str = "") -> list[Cause]:
    if not value:
        return [required(path)]
    tested = value.lower() if prefix else value
    if len(value) > 63 or not _LABEL.fullmatch(tested):
        return [invalid_value(path, value, prefix + _LABEL_RULE)]
    return []


def _check_names(crd: Object, spec: Object, names: Object) -> list[Cause]:
    causes: list[Cause] = []
    group, plural, kind = spec.get("group", ""), names.get("plural", ""), names.get("kind", "")
    name = crd["metadata"].get("name", "")
    if name != f"{plural}.{group}":
        causes.append(invalid_value("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
    if not group:
        causes.append(required("spec.group"))
    elif "." not in group:
        causes.append(invalid_value("spec.group", group, "should be a domain with at least one dot"))
    elif _PROTECTED.fullmatch(group) and not (crd["metadata"].get("annotations") or {}).get(_APPROVED):
        why = (
            f'protected groups must have approval annotation "{_APPROVED}", see '
            "https://github.com/kubernetes/enhancements/pull/1111"
        )
        causes.append(required(f"metadata.annotations[{_APPROVED}]", why))
    if spec.get("scope") not in ("Namespaced", "Cluster"):
        scope = spec.get("scope", "")
        causes.append(
            not_supported("spec.scope", scope, ("Cluster", "Namespaced")) if scope else required("spec.scope")
        )
    mixed = "may have mixed case, but should otherwise match: "
    causes += _label("spec.names.plural", plural)
    causes += _label("spec.names.singular", names.get("singular", "") or kind.lower())
    causes += _label("spec.names.kind", kind, mixed)
    list_kind = names.get("listKind", "") or (f"{kind}List" if kind else "")
    causes += _label("spec.names.listKind", list_kind, mixed)
    for field in ("shortNames", "categories"):
        for i, value in enumerate(names.get(field) or ()):
            causes += _label(f"spec.names.{field}[{i}]", value)
    if kind and kind == list_kind:
        causes.append(invalid_value("spec.names.listKind", list_kind, "kind and listKind may not be the same"))
    return causes


def _check_versions(versions: list[Object]) -> list[Cause]:
    causes: list[Cause] = []
    called = [version.get("name", "") for version in versions]
    shown = show(versions)
    for i, name in enumerate(called):
        causes += _label(f"spec.versions[{i}].name", name)
    if len(set(called)) != len(called):
        words = f"Invalid value: {shown}: must contain unique version names"
        causes.append(Cause("FieldValueInvalid", "spec.versions", words))
    if sum(bool(version.get("storage")) for version in versions) != 1:
        words = f"Invalid value: {shown}: must have exactly one version marked as storage version"
        causes.append(Cause("FieldValueInvalid", "spec.versions", words))
    if not any(version.get("storage") for version in versions):
        words = "Invalid value: null: must have at least one stored version"
        causes.append(Cause("FieldValueInvalid", "status.storedVersions", words))
    return causes


def _check_schema(version: Object, index: int, *, alone: bool) -> list[Cause]:
    schema = version.get("schema") or {}
    path = f"spec.versions[{index}].schema.openAPIV3Schema"
    if not isinstance(schema.get("openAPIV3Schema"), dict):
        return [required(path)]
    return check_structure(schema["openAPIV3Schema"], "spec.validation.openAPIV3Schema" if alone else path)


def _check_columns(columns: list[Object], path: str) -> list[Cause]:
    causes: list[Cause] = []
    for i, column in enumerate(columns):
        kind, text = column.get("type", ""), column.get("jsonPath", "")
        if not column.get("name"):
            causes.append(required(f"{path}[{i}].name"))
        if kind not in _COLUMN_TYPES:
            why = f"must be one of {','.join(_COLUMN_TYPES)}"
            causes.append(invalid_value(f"{path}[{i}].type", kind, why) if kind else required(f"{path}[{i}].type", why))
        causes += _check_path(text, f"{path}[{i}].JSONPath", read=False)
    return causes


def _check_path(text: str, path: str, *, read: bool = True) -> list[Cause]:
    """The rules of a path; a column's path need not be one that can be read (`read`), its cells are empty then."""
    if not text:
        return [required(path)]
    if not text.startswith("."):
        return [invalid_value(path, text, "must be a simple json path starting with .")]
    if not read:
        return []
    try:
        JsonPath(text)
    except JsonPathError as error:
        return [invalid_value(path, text, str(error))]
    return []


def _check_scale(scale: Any, path: str) -> list[Cause]:
    if not isinstance(scale, dict):
        return []
    causes: list[Cause] = []
    for field, start in (("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")):
        text = scale.get(field, "")
        causes += _check_path(text, f"{path}.{field}")
        if text.startswith(".") and not text.startswith(start):
            causes.append(invalid_value(f"{path}.{field}", text, f"should be a json path under {start[:-1]}"))
    selector = scale.get("labelSelectorPath")
    if selector:
        causes += _check_path(selector, f"{path}.labelSelectorPath")
    return causes


def _check_fields(fields: list[Object], path: str) -> list[Cause]:
    causes: list[Cause] = []
    for i, field in enumerate(fields):
        text = field.get("jsonPath", "")
        if not text:
            causes.append(required(f"{path}[{i}].jsonPath"))
        elif text[0] not in ".[":
            why = f"is an invalid path: expected [ or . but got: {text}"
            causes.append(invalid_value(f"{path}[{i}].jsonPath", text, why))
    return causes


def _check_conversion(conversion: Object) -> list[Cause]:
    strategy, path = conversion.get("strategy") or "", "spec.conversion"
    if strategy == "None":
        return []
    if not strategy:
        return [required(f"{path}.strategy")]
    if strategy != "Webhook":
        return [not_supported(f"{path}.strategy", strategy, ("None", "Webhook"))]
    webhook = conversion.get("webhook") or {}
    causes: list[Cause] = []
    if not webhook.get("clientConfig"):
        causes.append(required(f"{path}.webhookClientConfig", "required when strategy is set to Webhook"))
    if not webhook.get("conversionReviewVersions"):
        causes.append(required(f"{path}.conversionReviewVersions"))
    # A real server would now call the webhook; saying no is better than converting by apiVersion alone.
    return causes or [
        invalid_value(f"{path}.strategy", strategy, "conversion webhooks are not called by this server: use None")
    ]
