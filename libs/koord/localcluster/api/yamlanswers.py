"""Answers as YAML, for clients that ask for it: people with curl. What is slow here hurts nobody else."""

import yaml

from koord.localcluster.api.errors import not_acceptable
from koord.localcluster.api.requests import Request, Response, accepted, decode_json

_TYPE = b"application/yaml"


def prefers_yaml(request: Request) -> bool:
    """Whether of all that can be written the client likes YAML best; 406 for a watch, which has no such form."""
    for media, parameters in accepted(request.accept.decode("latin-1")):
        if media in ("application/json", "*/*"):
            return False
        if media == "application/yaml" and "as" not in parameters:
            if request.query.flag("watch"):
                raise not_acceptable()
            return True
    return False


async def as_yaml(answer: Response) -> Response:
    """The same answer as YAML, its names sorted."""
    if not answer.content_type.startswith(b"application/json"):
        return answer
    body = answer.body if isinstance(answer.body, bytes) else b"".join([part async for part in answer.body])
    text = yaml.dump(decode_json(body), Dumper=_Dumper, default_flow_style=False, sort_keys=True, allow_unicode=True)
    return answer._replace(body=text.encode(), content_type=_TYPE)


# The one in C, where there is one, is ten times as fast.
_Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
