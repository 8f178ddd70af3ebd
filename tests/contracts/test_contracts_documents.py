"""proto/bus: what lies there is what koord.contracts says, it is valid, and real messages satisfy it."""

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import yaml

from koord.contracts.catalog import CATALOG
from tests.contracts.samples import FULL, MINIMAL, TRACE
from tools import contracts

NAMES = sorted(kind.name for kind in CATALOG if kind.body is not None)


def _schema(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((contracts.ROOT / "schemas" / f"{name}.json").read_text())
    return loaded


@pytest.fixture(scope="module")
def asyncapi() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((contracts.ROOT / "asyncapi.yaml").read_text())
    return loaded


def test_no_drift() -> None:
    assert contracts.drift() == []


def test_documents_are_the_same_each_time() -> None:
    assert contracts.documents() == contracts.documents()


def test_drift_is_found_and_healed(tmp_path: Path) -> None:
    root = tmp_path / "bus"
    shutil.copytree(contracts.ROOT, root)
    schema = root / "schemas" / "Bind.json"
    schema.write_text(schema.read_text().replace('"claim"', '"claims"'))
    (root / "schemas" / "Invented.json").write_text("{}\n")
    (root / "asyncapi.yaml").unlink()
    diff = "".join(contracts.drift(root))
    assert '-    "claims"' in diff and '+    "claim"' in diff
    assert "proto/bus/schemas/Invented.json" in diff and "+asyncapi: 3.0.0" in diff
    contracts.write(root)
    assert contracts.drift(root) == []
    assert not (root / "schemas" / "Invented.json").exists()


def test_check_exits_1_on_drift(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    assert contracts.main(["--check"]) == 0
    monkeypatch.setattr(contracts, "drift", lambda: ["-old\n", "+new\n"])
    assert contracts.main(["--check"]) == 1
    assert "make contracts" in capsys.readouterr().err


@pytest.mark.parametrize("name", NAMES)
def test_real_messages_satisfy_their_schema(name: str) -> None:
    schema = _schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for message in (FULL[name], MINIMAL[name]):
        plain = msgspec.to_builtins(message, enc_hook=lambda value: base64.b64encode(value).decode())
        validator.validate(plain)
        for field in schema.get("required", []):
            lacking = {key: value for key, value in plain.items() if key != field}
            assert not validator.is_valid(lacking), f"{name} without {field} passes"
    assert validator.is_valid({**msgspec.to_builtins(FULL[name]), "invented": 1})
    assert not validator.is_valid([])


def test_asyncapi_holds_every_message_and_every_reference_resolves(asyncapi: dict[str, Any]) -> None:
    assert asyncapi["asyncapi"] == "3.0.0"
    assert set(asyncapi["components"]["messages"]) == {kind.name for kind in CATALOG if not kind.copies}

    def resolve(reference: str) -> object:
        if reference.startswith("./"):
            return json.loads((contracts.ROOT / reference).read_text())
        node: Any = asyncapi
        for part in reference.removeprefix("#/").split("/"):
            node = node[part]
        return node

    def references(node: object) -> list[str]:
        if isinstance(node, dict):
            own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
            return own + [found for value in node.values() for found in references(value)]
        return [found for item in node for found in references(item)] if isinstance(node, list) else []

    found = references(asyncapi)
    assert len(found) > 40
    for reference in found:
        assert resolve(reference)


def test_every_channel_names_its_parameters_and_is_sent_by_someone(asyncapi: dict[str, Any]) -> None:
    sent = {operation["channel"]["$ref"].rpartition("/")[2] for operation in asyncapi["operations"].values()}
    replied = {
        operation["reply"]["channel"]["$ref"].rpartition("/")[2]
        for operation in asyncapi["operations"].values()
        if "reply" in operation
    }
    assert sent | replied == set(asyncapi["channels"])
    for name, channel in asyncapi["channels"].items():
        if name in replied:
            assert channel["address"] is None
            continue
        assert channel["address"].startswith("koord.{cluster}.")
        assert {part[1:-1] for part in channel["address"].split(".") if part.startswith("{")} == set(
            channel["parameters"]
        )
        assert all(parameter["description"] for parameter in channel["parameters"].values())


def test_headers_say_who_must_carry_a_trace(asyncapi: dict[str, Any]) -> None:
    for kind in CATALOG:
        if kind.copies:  # each is that message, headers and all
            assert set(asyncapi["channels"][f"{kind.name[0].lower()}{kind.name[1:]}"]["messages"]) == set(kind.copies)
            continue
        message = asyncapi["components"]["messages"][kind.name]
        if kind.exempt:
            assert message["x-koord-untraced"] == kind.exempt
            assert "traceparent" not in json.dumps(message.get("headers", {}))
        else:
            jsonschema.Draft202012Validator(message["headers"]).validate({"traceparent": TRACE})
            assert not jsonschema.Draft202012Validator(message["headers"]).is_valid({})
            assert not jsonschema.Draft202012Validator(message["headers"]).is_valid({"traceparent": "00-x"})
