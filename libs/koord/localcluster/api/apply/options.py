"""What a write says of itself: its field manager, and whether an apply may take what others own."""

from koord.localcluster.api.errors import Cause, forbidden_value, invalid_value, required
from koord.localcluster.api.requests import Query
from koord.localcluster.clusterapi import ApiError, Object

OWN_AGENTS = b"koord-"
"""How koord's own clients name themselves; they drop managedFields, so nothing derives them for these."""
MOST_BYTES = 128
_TRUE = ("1", "t", "T", "true", "True", "TRUE")
_agents: dict[bytes, str] = {}


def manager_of(query: Query, user_agent: bytes, verb: str) -> str:
    """The manager of a write that is no apply: the one it names, or its program.

    verb: `Create`, `Update` or `Patch`. 422 for a name that is too long or cannot be printed, and for `force`.
    """
    name = query.text("fieldManager")
    if verb == "Patch" and query.text("force"):
        raise invalid_options(verb, [forbidden_value("force", "may not be specified for non-apply patch")])
    if not name:
        return program(user_agent)
    if causes := name_causes(name):
        raise invalid_options(verb, causes)
    return name


def applier_of(query: Query) -> tuple[str, bool]:
    """The manager of an apply, and whether it takes over what others own; 422 without a manager."""
    name = query.text("fieldManager")
    causes = name_causes(name) if name else [required("fieldManager", "is required for apply patch")]
    if causes:
        raise invalid_options("Patch", causes)
    # Whatever is no boolean counts as false, as on a real server.
    return name, query.text("force") in _TRUE


def program(user_agent: bytes) -> str:
    """The name in a User-Agent, up to its version."""
    name = _agents.get(user_agent)
    if name is None:
        if len(_agents) > 256:
            _agents.clear()
        name = ""
        for character in user_agent.decode("utf-8", "replace").partition("/")[0]:
            if not character.isprintable():
                continue
            if len((name + character).encode()) > MOST_BYTES:
                break
            name += character
        _agents[user_agent] = name
    return name


def name_causes(name: str, field: str = "fieldManager") -> list[Cause]:
    """What is wrong with a manager's name."""
    if len(name.encode()) > MOST_BYTES:
        return [too_long(field, MOST_BYTES)]
    return [
        invalid_value(field, _quoted(name), f"invalid character U+{ord(character):04X} (at position {position})")
        for position, character in enumerate(name)
        if not character.isprintable()
    ]


def too_long(field: str, most: int) -> Cause:
    """A text that is over its limit, in bytes."""
    return Cause("FieldValueTooLong", field, f"Too long: may not be more than {most} bytes")


def _quoted(name: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


def invalid_options(verb: str, causes: list[Cause]) -> ApiError:
    """422: parameters that break rules."""
    kind = f"{verb}Options"
    details: Object = {
        "group": "meta.k8s.io",
        "kind": kind,
        "causes": [{"reason": c.reason, "message": c.message, "field": c.field} for c in causes],
    }
    words = [f"{cause.field}: {cause.message}" for cause in causes]
    text = words[0] if len(words) == 1 else "[" + ", ".join(words) + "]"
    return ApiError(422, "Invalid", f'{kind}.meta.k8s.io "" is invalid: {text}', details)
