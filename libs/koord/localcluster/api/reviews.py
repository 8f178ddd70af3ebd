"""Questions about access: they are created, answered, and kept nowhere.

The embedded server has one user, who may do everything, and no roles: to itself it says yes, about anybody else no.
"""

from typing import Any

from koord.localcluster.api.errors import method_not_allowed, no_such_path
from koord.localcluster.api.requests import Request, Response, decode_object
from koord.localcluster.api.store import encode
from koord.localcluster.clusterapi import ApiError, Object

AUTHORIZATION = "authorization.k8s.io"
AUTHENTICATION = "authentication.k8s.io"

# plural -> kind, whether it lives in a namespace
KINDS: dict[str, dict[str, tuple[str, bool]]] = {
    AUTHORIZATION: {
        "localsubjectaccessreviews": ("LocalSubjectAccessReview", True),
        "selfsubjectaccessreviews": ("SelfSubjectAccessReview", False),
        "selfsubjectrulesreviews": ("SelfSubjectRulesReview", False),
        "subjectaccessreviews": ("SubjectAccessReview", False),
    },
    AUTHENTICATION: {
        "selfsubjectreviews": ("SelfSubjectReview", False),
        "tokenreviews": ("TokenReview", False),
    },
}
_EVERYTHING: Object = {
    "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    "incomplete": False,
}


def is_review(path: list[str]) -> bool:
    """Whether a path points below one of the groups of reviews in the version that is served."""
    return len(path) > 3 and path[1] in KINDS and path[2] == "v1"


class Reviews:
    """Answers reviews for the one user with one token."""

    def __init__(self, user: str, groups: list[str], token: str, now: Any) -> None:
        self._user: Object = {"username": user, "groups": groups}
        self._token = token
        self._now = now

    def answer(self, request: Request) -> Response:
        """Answer one request below a group of reviews."""
        group, rest = request.path[1], request.path[3:]
        namespace = ""
        if rest[0] == "namespaces" and len(rest) == 3:
            namespace, rest = rest[1], rest[2:]
        kind, namespaced = KINDS[group].get(rest[0], ("", False))
        if not kind or len(rest) > 1 or (namespaced and not namespace):
            raise no_such_path()
        if request.method != "POST":
            raise method_not_allowed()
        sent = decode_object(request)
        spec = sent.get("spec")
        spec = spec if isinstance(spec, dict) else {}
        metadata: Object = {"namespace": namespace} if namespaced else {}
        body: Object = {"kind": kind, "apiVersion": f"{group}/v1", "metadata": metadata}
        if kind == "SelfSubjectReview":
            metadata["creationTimestamp"] = self._now()
            body["status"] = {"userInfo": self._user}
        else:
            body["spec"] = spec
            body["status"] = self._status(kind, spec)
        return Response(201, encode(body))

    def _status(self, kind: str, spec: Object) -> Object:
        if kind == "TokenReview":
            if spec.get("token") == self._token:
                return {"authenticated": True, "user": self._user}
            return {"user": {}, "error": "invalid bearer token"}
        if kind == "SelfSubjectRulesReview":
            return _EVERYTHING
        if ("resourceAttributes" in spec) is ("nonResourceAttributes" in spec):
            raise _one_of()
        return {"allowed": kind == "SelfSubjectAccessReview" or spec.get("user") == self._user["username"]}


def _one_of() -> ApiError:
    message = "Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified"
    causes = [{"reason": "FieldValueInvalid", "message": message, "field": "spec"}]
    details: Object = {"group": AUTHORIZATION, "causes": causes}
    return ApiError(422, "Invalid", f'.{AUTHORIZATION} "" is invalid: spec: {message}', details)
