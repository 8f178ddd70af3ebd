"""One HTTP request, as far as the API cares: where it points, what it asks for, in what form it wants the answer."""

import re
from collections.abc import AsyncIterator
from enum import Enum
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import msgspec

from koord.localcluster.api.errors import (
    Cause,
    bad_request,
    invalid_options,
    not_acceptable,
    unsupported_media_type,
)
from koord.localcluster.api.protobuf import decode_protobuf
from koord.localcluster.api.yamlbodies import YamlError, read_yaml

JSON = b"application/json"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"


def _number(text: str) -> int | float:
    """A number with a fraction or an exponent; what has no fraction is whole, as Go would write it again."""
    number = float(text)
    return int(number) if number.is_integer() and abs(number) < _MOST_WHOLE else number


_MOST_WHOLE = 1e21
_decode = msgspec.json.Decoder(float_hook=_number).decode
_WHOLE = re.compile(r"[+-]?[0-9]+")
_MOST_DIGITS = 19


_OPTIONS = {"POST": "CreateOptions", "PATCH": "PatchOptions", "DELETE": "DeleteOptions"}


class View(Enum):
    """The forms of an answer."""

    OBJECT = "object"
    TABLE = "table"
    PARTIAL = "partial"
    PARTIAL_LIST = "partial list"


class Query:
    """The query of a request. Names are the API's (`labelSelector`); of a repeated name the first value counts."""

    __slots__ = ("_method", "_values")

    def __init__(self, text: bytes, method: str = "") -> None:
        self._method = method
        self._values: dict[str, str] = {}
        if text:
            for name, value in parse_qsl(text.decode("latin-1"), keep_blank_values=True):
                self._values.setdefault(name, value)

    def text(self, name: str) -> str:
        """A value, "" when absent."""
        return self._values.get(name, "")

    def flag(self, name: str) -> bool | None:
        """A boolean as Kubernetes reads it: all is true but `0` and `false`. None when absent."""
        value = self._values.get(name)
        if value is None:
            return None
        return value != "0" and value.lower() != "false"

    def number(self, name: str) -> int | None:
        """A whole number, None when absent."""
        value = self._values.get(name)
        if value is None:
            return None
        if not _WHOLE.fullmatch(value) or len(value) > _MOST_DIGITS:
            raise bad_request(f'strconv.ParseInt: parsing "{value}": invalid syntax')
        return int(value)

    @property
    def dry_run(self) -> bool:
        """Whether the write must change nothing."""
        value = self._values.get("dryRun")
        if value in (None, ""):
            return False
        if value != "All":
            cause = Cause(
                "FieldValueNotSupported", "dryRun", f'Unsupported value: ["{value}"]: supported values: "All"'
            )
            raise invalid_options(_OPTIONS.get(self._method, "UpdateOptions"), [cause])
        return True


class Request(NamedTuple):
    """A request after authentication; `path` is split at slashes, without the leading empty part.

    `warnings` is for whoever handles the request to add to: the answer, a refusal too, carries them as headers.
    `repeated` becomes a sentence for every key that a YAML body says again, when it is decoded.
    """

    method: str
    path: list[str]
    query: Query
    accept: bytes
    content_type: bytes
    body: bytes
    warnings: list[str]
    user_agent: bytes
    repeated: list[str]


class Response(NamedTuple):
    """An answer: a whole body, or chunks that are made while they are sent."""

    status: int
    body: bytes | AsyncIterator[bytes]
    content_type: bytes = JSON


_views: dict[bytes, View | None] = {}


def wanted_view(accept: bytes) -> View:
    """The form the client likes best among those the server writes; 406 when there is none."""
    view = _views.get(accept)
    if view is None:
        if accept not in _views:
            if len(_views) > 256:
                _views.clear()
            _views[accept] = view = _negotiate(accept.decode("latin-1"))
        if view is None:
            raise not_acceptable()
    return view


def accepted(accept: str) -> list[tuple[str, dict[str, str]]]:
    """The media types of an Accept header with their parameters, the dearest first."""
    choices: list[tuple[float, str, dict[str, str]]] = []
    for choice in accept.split(","):
        media, *parts = (part.strip() for part in choice.split(";"))
        parameters = dict(part.split("=", 1) for part in parts if "=" in part)
        try:
            quality = float(parameters.pop("q", "1"))
        except ValueError:
            quality = 1.0
        choices.append((quality, media, parameters))
    return [(media, parameters) for _, media, parameters in sorted(choices, key=lambda choice: -choice[0])]


def _negotiate(accept: str) -> View | None:
    if not accept.strip():
        return View.OBJECT
    for media, parameters in accepted(accept):
        if media not in ("application/json", "*/*"):
            continue
        what = parameters.get("as")
        if what is None:
            return View.OBJECT
        if parameters.get("g") == "meta.k8s.io" and parameters.get("v") == "v1":
            if what == "Table":
                return View.TABLE
            if what == "PartialObjectMetadata":
                return View.PARTIAL
            if what == "PartialObjectMetadataList":
                return View.PARTIAL_LIST
    return None


def media_type(content_type: bytes) -> str:
    """The bare media type of a Content-Type header."""
    return content_type.decode("latin-1").partition(";")[0].strip().lower()


def decode_json(body: bytes) -> Any:
    """A JSON body; 400 when it is none."""
    try:
        return _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"the body of the request is not valid JSON: {error}") from error


def decode_patch(body: bytes) -> Any:
    """The body of a JSON or merge patch; 400 when it is no JSON."""
    try:
        return _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request("invalid JSON patch") from error


def decode_object(request: Request) -> dict[str, Any]:
    """The object in a body of JSON, YAML or, for a few kinds, protobuf; 415 for everything else."""
    media = media_type(request.content_type)
    if media in ("application/yaml", "text/yaml"):
        try:
            text, repeated = read_yaml(request.body)
            request.repeated[:] = repeated
            value = decode_json(text)
        except YamlError as error:
            raise bad_request(f"the body of the request is not valid YAML: {error}") from error
    elif media in ("", "application/json", "*/*"):
        value = decode_json(request.body)
    elif media == PROTOBUF:
        value = decode_protobuf(request.body)
    else:
        raise unsupported_media_type(f"application/json, application/yaml, {PROTOBUF}")
    if not isinstance(value, dict):
        raise bad_request("the body of the request must be an object")
    return value
