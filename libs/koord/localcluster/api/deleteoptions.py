"""The options of a DELETE request, from its body or its query, and the rules they follow."""

from typing import Any

import msgspec

from koord.localcluster.api.errors import Cause, bad_request, not_supported
from koord.localcluster.api.requests import Query, Request, decode_object
from koord.localcluster.clusterapi import ApiError, Object

POLICIES = ("Foreground", "Background", "Orphan")


class Preconditions(msgspec.Struct, rename="camel"):
    """What the object must still be; an empty text is a value that no object has."""

    uid: str | None = None
    resource_version: str | None = None


class DeleteOptions(msgspec.Struct, rename="camel"):
    """The parts of a DeleteOptions body that matter here."""

    kind: str | None = None
    grace_period_seconds: int | None = None
    preconditions: Preconditions | None = None
    propagation_policy: str | None = None
    orphan_dependents: bool | None = None
    dry_run: list[str] | None = None

    @property
    def tries_only(self) -> bool:
        """Whether nothing may change."""
        return bool(self.dry_run)


def read_options(body: Any) -> DeleteOptions:
    """The options in a decoded body; 400 when they cannot be read, 422 when they break a rule."""
    options = convert_options(body)
    check_options(options)
    return options


def convert_options(body: Any) -> DeleteOptions:
    """The options in a decoded body, their rules not checked yet; 400 when they cannot be read."""
    try:
        options = msgspec.convert(body, DeleteOptions)
    except msgspec.ValidationError as error:
        raise bad_request(f"DeleteOptions in the request cannot be handled: {error}") from error
    if options.kind not in (None, "", "DeleteOptions"):
        raise bad_request(f'no kind "{options.kind}" is registered for deletion: expected DeleteOptions')
    return options


def check_options(options: DeleteOptions) -> None:
    """422 with all rules that the options break."""
    causes: list[Cause] = []
    policy = options.propagation_policy
    if policy is not None and options.orphan_dependents is not None:
        why = "orphanDependents and deletionPropagation cannot be both set"
        causes.append(Cause("FieldValueInvalid", "propagationPolicy", f'Invalid value: "{policy}": {why}'))
    if policy is not None and policy not in POLICIES:
        causes.append(not_supported("propagationPolicy", policy, (*POLICIES, "nil")))
    causes.extend(dry_run_causes(options.dry_run))
    if causes:
        raise invalid_options("DeleteOptions", causes)


def given_options(options: DeleteOptions) -> Object:
    """What was given, as it is written."""
    given = {
        name: value for name, value in msgspec.to_builtins(options).items() if value is not None and name != "kind"
    }
    if "preconditions" in given:
        given["preconditions"] = {name: value for name, value in given["preconditions"].items() if value is not None}
    return given


def dry_run_causes(values: list[str] | None) -> list[Cause]:
    """The one dry run there is."""
    if not values or values == ["All"]:
        return []
    shown = "[" + ",".join(f'"{value}"' for value in values) + "]"
    return [Cause("FieldValueNotSupported", "dryRun", f'Unsupported value: {shown}: supported values: "All"')]


def invalid_options(kind: str, causes: list[Cause]) -> ApiError:
    """422 about the options of a request."""
    words = [f"{cause.field}: {cause.message}" for cause in causes]
    text = words[0] if len(words) == 1 else "[" + ", ".join(words) + "]"
    details: Object = {
        "group": "meta.k8s.io",
        "kind": kind,
        "causes": [{"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in causes],
    }
    return ApiError(422, "Invalid", f'{kind}.meta.k8s.io "" is invalid: {text}', details)


def options_of(request: Request) -> DeleteOptions:
    """The options of a request: its body if there is one, else its query (never a mixture, as in Kubernetes)."""
    if request.body:
        return read_options(decode_object(request))
    return _from_query(request.query)


def _from_query(query: Query) -> DeleteOptions:
    options = DeleteOptions()
    if seconds := query.text("gracePeriodSeconds"):
        try:
            options.grace_period_seconds = int(seconds)
        except ValueError as error:
            raise bad_request(f'strconv.ParseInt: parsing "{seconds}": invalid syntax') from error
    if policy := query.text("propagationPolicy"):
        options.propagation_policy = policy
    if orphan := query.text("orphanDependents"):
        options.orphan_dependents = orphan.lower() not in ("false", "0")
    if dry_run := query.text("dryRun"):
        options.dry_run = [dry_run]
    check_options(options)
    return options
