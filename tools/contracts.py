"""Writes the bus contracts as documents: one JSON Schema per message, one AsyncAPI document for all channels.

Usage: python -m tools.contracts [--check]

Everything comes from `koord.contracts`, so the documents cannot say something else than the code; `--check` fails with
a diff when they do, which a test and `make check` run.
"""

import argparse
import difflib
import json
import re
import sys
from pathlib import Path
from typing import Any

import msgspec
import yaml

from koord.contracts.catalog import CATALOG, MessageKind
from koord.contracts.state import HEADER

ROOT = Path(__file__).parents[1] / "proto" / "bus"
DRAFT = "https://json-schema.org/draft/2020-12/schema"
REPLY = "(reply)"
TRACEPARENT = "^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$"

PARAMETERS = {
    "cluster": "The cluster's name, a DNS label: several clusters can share one NATS.",
    "token": "The resource as `<plural>_<group>`, for example `pods_core`.",
    "namespace": "The object's namespace, `_` for a cluster-scoped object.",
    "name": "The object's name, dots written as `_`; `_` in namespace `_` marks that the resource is listed.",
    "service": "The service that decides.",
    "kind": "The kind of decision: bind, create, patch, delete or evict.",
    "id": "The decision's id, dots written as `_`.",
    "event": "To claims: held, binding, observed, released or expired. To gangs: ready, satisfied or rejected.",
    "tree": "The quota tree, `_` for the default one; of the parts of a large one, after the first, `<tree>/<part>`.",
}

# Which stream keeps the messages of a channel, by the first word of its subject.
STREAMS = {
    "state": "JetStream `<cluster>-KOORD_STATE`, last message per subject.",
    "decision": "JetStream `<cluster>-KOORD_DECISIONS`, a work queue with one consumer, the gateway.",
    "live": "Core NATS: a copy of what a stream without a leader does not take yet; it comes through the stream, too.",
    "quota": "JetStream `<cluster>-KOORD_QUOTA`, last message per subject.",
    "result": "Core NATS: told once.",
    "ledger": "Core NATS: a hint nobody may rely on.",
    "gang": "Core NATS: a hint nobody may rely on.",
    "ask": "Core NATS request and reply.",
}


def documents() -> dict[str, str]:
    """Every document by its path below proto/bus."""
    made = {f"schemas/{kind.name}.json": _json(schema(kind)) for kind in CATALOG if kind.body is not None}
    made["asyncapi.yaml"] = _HEAD + yaml.safe_dump(asyncapi(), sort_keys=False, width=120, allow_unicode=True)
    return made


_HEAD = "# Made by `python -m tools.contracts` from koord.contracts; change it there.\n"


def schema(kind: MessageKind) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of one message's body.

    Bodies are MessagePack, whose data model has bytes where JSON has none: those show as base64 text here.
    """
    assert kind.body is not None
    generated = msgspec.json.schema(kind.body)
    title = kind.body.__name__
    body: dict[str, Any] = {"$schema": DRAFT, "title": title, "description": kind.summary}
    definitions = generated.pop("$defs", {})
    if generated == {"$ref": f"#/$defs/{title}"}:
        # The message itself is the document; only what it is made of stays a definition.
        own = definitions.pop(title)
        body |= {key: value for key, value in own.items() if key not in ("title", "description")}
    else:
        body |= generated
    if definitions:
        body["$defs"] = {name: definitions[name] for name in sorted(definitions)}
    return body


def asyncapi() -> dict[str, Any]:
    """The AsyncAPI 3.0 document of the whole bus."""
    channels: dict[str, Any] = {}
    operations: dict[str, Any] = {}
    messages: dict[str, Any] = {}
    replies = [kind for kind in CATALOG if kind.subject == REPLY]
    for kind in CATALOG:
        if not kind.copies:
            messages[kind.name] = _message(kind)
        if kind.subject == REPLY:
            continue
        name = _lower(kind.name)
        channels[name] = _channel(kind)
        operation: dict[str, Any] = {
            "action": "send",
            "channel": {"$ref": f"#/channels/{name}"},
            "summary": f"Sent by: {kind.sender}.",
            "messages": [{"$ref": f"#/channels/{name}/messages/{one}"} for one in kind.copies or (kind.name,)],
        }
        if kind.subject.startswith("ask."):
            channels[f"{name}Reply"] = {
                "address": None,
                "description": "The inbox that the asker names as NATS reply subject.",
                "messages": {
                    reply.name: {"$ref": f"#/components/messages/{reply.name}"}
                    for reply in replies
                    if reply.answers in ("", kind.name)
                },
            }
            operation["reply"] = {"channel": {"$ref": f"#/channels/{name}Reply"}}
        operations[f"send{kind.name}"] = operation
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "koord bus",
            "version": "1.0.0",
            "description": "Every message between koord's services. Bodies are MessagePack unless the message says "
            "otherwise; unknown fields are ignored and new fields have defaults, so services upgrade one by one.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/msgpack",
        "channels": channels,
        "operations": operations,
        "components": {"messages": messages},
    }


def _channel(kind: MessageKind) -> dict[str, Any]:
    address = f"koord.{{cluster}}.{kind.subject}"
    names = re.findall(r"\{(\w+)\}", address)
    return {
        "address": address,
        "description": STREAMS[kind.subject.partition(".")[0]],
        "messages": {one: {"$ref": f"#/components/messages/{one}"} for one in kind.copies or (kind.name,)},
        "parameters": {name: {"description": PARAMETERS[name]} for name in names},
    }


def _message(kind: MessageKind) -> dict[str, Any]:
    message: dict[str, Any] = {"name": kind.name, "title": kind.name, "summary": kind.summary}
    if kind.body is None:
        message["contentType"] = "application/json"
        message["headers"] = {
            "type": "object",
            "required": [HEADER],
            "properties": {
                HEADER: {
                    "type": "string",
                    "pattern": "^(ADDED|MODIFIED|DELETED) [^ ]+ [^ ]+$",
                    "description": "What happened, the object's resourceVersion, the epoch of the stream.",
                },
                "Nats-TTL": {"type": "string", "description": "How long a tombstone is kept; DELETED only."},
            },
        }
        message["payload"] = {"type": "object", "description": "The API object."}
    else:
        message["contentType"] = "application/msgpack"
        if not kind.exempt:
            message["headers"] = {
                "type": "object",
                "required": ["traceparent"],
                "properties": {"traceparent": {"type": "string", "pattern": TRACEPARENT}},
            }
        message["payload"] = {
            "schemaFormat": "application/schema+json;version=draft-2020-12",
            "schema": {"$ref": f"./schemas/{kind.name}.json"},
        }
    if kind.exempt:
        message["x-koord-untraced"] = kind.exempt
    return message


def _lower(name: str) -> str:
    return name[0].lower() + name[1:]


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def write(root: Path = ROOT) -> None:
    """Write every document and remove schemas of messages that are no more."""
    made = documents()
    (root / "schemas").mkdir(parents=True, exist_ok=True)
    for path, text in made.items():
        (root / path).write_text(text, encoding="utf-8")
    for file in (root / "schemas").glob("*.json"):
        if f"schemas/{file.name}" not in made:
            file.unlink()


def drift(root: Path = ROOT) -> list[str]:
    """The difference between what lies on disk and what the contracts say, as unified diffs."""
    made = documents()
    differences: list[str] = []
    stale = {f"schemas/{file.name}" for file in (root / "schemas").glob("*.json")} - set(made)
    for path in sorted(set(made) | stale):
        file = root / path
        held = file.read_text(encoding="utf-8") if file.exists() else ""
        lines = difflib.unified_diff(
            held.splitlines(keepends=True),
            made.get(path, "").splitlines(keepends=True),
            f"proto/bus/{path} (on disk)",
            f"proto/bus/{path} (koord.contracts)",
        )
        differences.extend(lines)
    return differences


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0, or 1 when ``--check`` finds a difference."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare only, write nothing")
    if not parser.parse_args(arguments).check:
        write()
        return 0
    differences = drift()
    if differences:
        sys.stderr.writelines(differences)
        sys.stderr.write("proto/bus differs from koord.contracts: run `make contracts` and commit the result\n")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
