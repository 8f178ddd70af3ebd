"""Reading fields of a decoded job: absent and null are the default, anything of a wrong type is a JobError."""

from typing import Any, Final

import msgspec

from koord.kube.jobs.kind import Job, JobError

INT32_MAX: Final = 2**31 - 1


def shown(value: Any) -> str:
    """A value as JSON for an error message, shortened."""
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def mapping(parent: dict[str, Any], key: str, path: str) -> dict[str, Any]:
    """An object; absent is empty."""
    value = parent.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise JobError(_join(path, key), f"must be an object, got {shown(value)}")
    return value


def array(parent: dict[str, Any], key: str, path: str) -> list[Any]:
    """A list; absent is empty."""
    value = parent.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise JobError(_join(path, key), f"must be a list, got {shown(value)}")
    return value


def objects(parent: dict[str, Any], key: str, path: str) -> list[dict[str, Any]]:
    """A list of objects; absent is empty."""
    values = array(parent, key, path)
    for index, value in enumerate(values):
        if not isinstance(value, dict):
            raise JobError(f"{_join(path, key)}[{index}]", f"must be an object, got {shown(value)}")
    return values


def count(parent: dict[str, Any], key: str, path: str) -> int | None:
    """A number of things: a 32-bit integer of at least 0; None when absent."""
    value = parent.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise JobError(_join(path, key), f"must be an integer >= 0, got {shown(value)}")
    if value > INT32_MAX:
        raise JobError(_join(path, key), f"must be at most {INT32_MAX}, got {shown(value)}")
    return value


def integer(parent: dict[str, Any], key: str, path: str) -> int | None:
    """A 32-bit integer; None when absent."""
    value = parent.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not -INT32_MAX - 1 <= value <= INT32_MAX:
        raise JobError(_join(path, key), f"must be a 32-bit integer, got {shown(value)}")
    return value


def text(parent: dict[str, Any], key: str, path: str) -> str:
    """A string; absent is empty."""
    value = parent.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise JobError(_join(path, key), f"must be a string, got {shown(value)}")
    return value


def boolean(parent: dict[str, Any], key: str, path: str) -> bool:
    """A boolean; absent is false."""
    value = parent.get(key)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise JobError(_join(path, key), f"must be true or false, got {shown(value)}")
    return value


def strings(parent: dict[str, Any], key: str, path: str) -> dict[str, str]:
    """An object of strings (labels, annotations); absent is empty."""
    found = mapping(parent, key, path)
    for name, value in found.items():
        if not isinstance(value, str):
            raise JobError(f"{_join(path, key)}[{name}]", f"must be a string, got {shown(value)}")
    return found


def spec(job: Job) -> dict[str, Any]:
    """The job's spec."""
    return mapping(job, "spec", "")


def status(job: Job) -> dict[str, Any]:
    """The job's status."""
    return mapping(job, "status", "")


def metadata(job: Job) -> dict[str, Any]:
    """The job's metadata."""
    return mapping(job, "metadata", "")


def labels(job: Job) -> dict[str, str]:
    """The job's labels."""
    return strings(metadata(job), "labels", "metadata")


def annotations(job: Job) -> dict[str, str]:
    """The job's annotations."""
    return strings(metadata(job), "annotations", "metadata")


def conditions(job: Job) -> dict[str, dict[str, Any]]:
    """The conditions of the job's status by type; an operator's odd entries are skipped, not judged."""
    found: dict[str, dict[str, Any]] = {}
    listed = status(job).get("conditions")
    for condition in listed if isinstance(listed, list) else []:
        if isinstance(condition, dict) and isinstance(condition.get("type"), str):
            found[condition["type"]] = condition
    return found


def condition_true(found: dict[str, dict[str, Any]], type_: str) -> bool:
    """Whether the condition is there and True."""
    condition = found.get(type_)
    return condition is not None and condition.get("status") == "True"


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
