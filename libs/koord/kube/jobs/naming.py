"""Names the queue makes: QueueUnits (spec 70 section 3.2) and pod sets (section 4)."""

import hashlib
import re
from collections.abc import Container
from typing import Final

MAX_NAME: Final = 253
MAX_LABEL: Final = 63

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_OTHER = re.compile(r"[^-a-z0-9]")


def unit_name(job_name: str, suffix: str, salt: str = "") -> str:
    """The name of a job's QueueUnit: job name and suffix; beyond 253 characters cut and ended with an 8-digit hash.

    ``salt``, the job's uid, forces the hashed form: for a job whose plain name another job's unit already has.
    """
    name = job_name + suffix
    if len(name) <= MAX_NAME and not salt:
        return name
    return f"{name[: MAX_NAME - 9].rstrip('-.')}-{short_hash(name + salt)}"


def pod_set_name(raw: str, taken: Container[str] = ()) -> str:
    """The name of a pod set: ``raw`` in lower case if that is a DNS label and not ``taken``, else a hashed form.

    Hashed: other characters become ``-``, cut to 54, then ``-`` and 8 hex digits of the raw name.
    """
    lowered = raw.lower()
    if _LABEL.fullmatch(lowered) and lowered not in taken:
        return lowered
    base = _OTHER.sub("-", lowered)[:54].strip("-") or "set"
    return f"{base}-{short_hash(raw)}"


def short_hash(text: str) -> str:
    """Eight hex digits that depend on nothing but ``text``."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]
