"""Settings: precedence, types, and errors that name path, source and rule."""

from pathlib import Path
from typing import Literal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koord.runtime.service import ServiceSpec
from koord.runtime.settings import CommonSettings, SettingsError, load, load_service
from koord.telemetry.logs import without_password


class Inner(msgspec.Struct, frozen=True, kw_only=True):
    weight: int = 1
    kind: Literal["most", "least"] = "least"


class Own(msgspec.Struct, frozen=True, kw_only=True):
    batch: int = 5
    ratio: float = 0.5
    on: bool = False
    name: str = "a"
    names: list[str] = []
    weights: dict[str, int] = {}
    inner: Inner = Inner()
    maybe: Inner | None = None

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise ValueError("batch must be at least 1")


class Required(msgspec.Struct, frozen=True, kw_only=True):
    token: str


SPEC = ServiceSpec("scheduler", "", Own, lambda host, settings: None)  # type: ignore[arg-type,return-value]


def own(**sources: object) -> Own:
    return load(Own, section="scheduler", **sources)  # type: ignore[arg-type]


def test_flags_beat_environment_beats_file_beats_defaults(tmp_path: Path) -> None:
    file = tmp_path / "koord.yaml"
    file.write_text("scheduler:\n  batch: 2\n  ratio: 0.2\n  name: file\n  inner: {weight: 2}\n")
    settings = own(
        file=file,
        env={"KOORD_SCHEDULER__RATIO": "0.3", "KOORD_SCHEDULER__NAME": "env", "HOME": "/"},
        flags={"name": "flag", "on": None},
    )
    assert settings == Own(batch=2, ratio=0.3, name="flag", inner=Inner(weight=2))


def test_text_of_variables_and_flags_becomes_the_fields_type() -> None:
    env = {
        "KOORD_SCHEDULER__BATCH": "7",
        "KOORD_SCHEDULER__ON": "true",
        "KOORD_SCHEDULER__NAME": "0123",
        "KOORD_SCHEDULER__NAMES": "a, b,c",
        "KOORD_SCHEDULER__WEIGHTS": "{x: 1}",
        "KOORD_SCHEDULER__INNER__KIND": "most",
        "KOORD_SCHEDULER__MAYBE__WEIGHT": "4",
    }
    settings = own(env=env)
    assert settings == Own(
        batch=7,
        on=True,
        name="0123",
        names=["a", "b", "c"],
        weights={"x": 1},
        inner=Inner(kind="most"),
        maybe=Inner(weight=4),
    )
    assert own(flags={"batch": "8", "names": "[d]", "inner.weight": 9}) == Own(
        batch=8, names=["d"], inner=Inner(weight=9)
    )


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ({"file": {"scheduler": {"fooo": 1}}}, r"scheduler\.fooo \(file\): unknown setting; known: batch, inner"),
        ({"file": {"scheduler": {"batch": "7"}}}, r"scheduler\.batch \(file\): Expected `int`, got `str`"),
        ({"file": {"scheduler": {"inner": 3}}}, r"scheduler\.inner \(file\): must be a mapping, is a int"),
        ({"file": {"scheduler": {"inner": {"kind": "x"}}}}, r"scheduler\.inner\.kind \(file\): Invalid enum value 'x'"),
        ({"file": {"scheduler": [1]}}, r"scheduler \(file\): must be a mapping, is a list"),
        ({"file": {"scheduler": {"weights": {"a": "b"}}}}, r"scheduler\.weights \(file\): Expected `int`"),
        ({"env": {"KOORD_SCHEDULER__BATCH": "many"}}, r"scheduler\.batch \(KOORD_SCHEDULER__BATCH\): Expected `int`"),
        ({"env": {"KOORD_SCHEDULER__INNER__X": "1"}}, r"scheduler\.inner\.x \(KOORD_SCHEDULER__INNER__X\): unknown"),
        (
            {"env": {"KOORD_SCHEDULER__BATCH__X": "1"}},
            r"scheduler\.batch \(KOORD_SCHEDULER__BATCH__X\): has no settings",
        ),
        ({"flags": {"inner.urll": 1}}, r"scheduler\.inner\.urll \(flag\): unknown setting; known: kind, weight"),
        ({"flags": {"ratio": "half"}}, r"scheduler\.ratio \(flag\): Expected `float`"),
        ({"flags": {"batch": 0}}, r"scheduler.*: batch must be at least 1"),
    ],
)
def test_errors_name_path_source_and_rule(sources: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        own(**sources)


def test_a_missing_required_setting_is_named() -> None:
    with pytest.raises(SettingsError, match="token"):
        load(Required, section="x")


@pytest.mark.parametrize(
    ("content", "message"),
    [("a: [", "not YAML"), ("- 1", "must be a mapping"), (b"\xff\xfe\x00", "not YAML"), (None, "No such file")],
)
def test_an_unreadable_file_is_named(tmp_path: Path, content: str | bytes | None, message: str) -> None:
    file = tmp_path / "koord.yaml"
    if content is not None:
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(SettingsError, match=message) as caught:
        load(CommonSettings, file=file)
    assert str(file) in str(caught.value)


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "koord.yaml"
    file.write_text("# nothing\n")
    assert load(CommonSettings, file=file) == CommonSettings()
    file.write_text("scheduler:\nnats:\n  url: nats://x\n")
    common, settings = load_service(SPEC, file=file, env={})
    assert (common.nats.url, settings) == ("nats://x", Own())


def test_one_file_serves_all_services_and_still_rejects_strangers() -> None:
    file = {"nats": {"url": "nats://x"}, "scheduler": {"batch": 3}, "queue": {"whatever": 1}, "local": {"redis": "r"}}
    common, settings = load_service(SPEC, file=file, env={"KOORD_QUEUE__X": "1", "KOORD_CLUSTER": "east"})
    assert (common.cluster, common.nats.url, settings) == ("east", "nats://x", Own(batch=3))
    with pytest.raises(SettingsError, match=r"natz \(file\): unknown setting; known: .*nats"):
        load_service(SPEC, file={"natz": {}}, env={})
    with pytest.raises(SettingsError, match=r"nat \(KOORD_NAT__URL\): unknown setting"):
        load_service(SPEC, env={"KOORD_NAT__URL": "x"})


def test_flags_of_a_service_and_shared_ones() -> None:
    common, settings = load_service(SPEC, env={}, flags={"log.level": "debug", "scheduler.batch": "4"})
    assert common.log.level == "debug"
    assert settings == Own(batch=4)


def test_the_clis_cluster_file_is_no_cluster_name() -> None:
    assert load(CommonSettings, env={"KOORD_CLUSTER": "/run/koord/cluster.json"}).cluster == "local"


@settings(deadline=None)
@given(
    st.dictionaries(st.text(max_size=12), st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=4))
)
def test_any_mapping_is_either_taken_or_refused_with_a_path(content: dict[str, object]) -> None:
    try:
        own(file={"scheduler": content})
    except SettingsError as error:
        assert str(error).startswith("scheduler")


@settings(deadline=None)
@given(st.text(max_size=30).filter(lambda text: "\x00" not in text))
def test_any_text_of_a_variable_is_taken_or_refused(text: str) -> None:
    for key in ("BATCH", "NAMES", "WEIGHTS", "ON"):
        try:
            own(env={f"KOORD_SCHEDULER__{key}": text})
        except SettingsError as error:
            assert key in str(error) or "batch must be" in str(error)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"cluster": "A B"}, "cluster.*DNS label"),
        ({"drain_s": -1}, "drain_s"),
        ({"nats.url": ""}, r"url: '' is no address like nats://host:port"),
        ({"nats.url": "nats://a:1,,"}, r"url: '' is no address"),
        ({"nats.url": "http://a:1"}, r"url: 'http://a:1' is no address"),
        ({"nats.url": "nats://a:x"}, r"url: 'nats://a:x' is no address"),
        ({"nats.url": "nats://[::1"}, r"url: 'nats://\[::1' is no address"),
        ({"redis.url": "localhost:6379"}, r"url: 'localhost:6379' is no address like redis://host:port"),
        ({"redis.url": "redis://:secret@a:x"}, r"url: 'redis://\*\*\*@a:x' is no address"),
    ],
)
def test_rules_of_the_shared_settings(flags: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        load(CommonSettings, flags=flags)


@pytest.mark.parametrize(
    "flags",
    [
        {"nats.url": "a"},
        {"nats.url": "nats://u:p@a:4222, tls://b"},
        {"redis.url": "unix:///run/redis.sock"},
        {"redis.url": "rediss://:secret@a/3"},
    ],
)
def test_addresses(flags: dict[str, object]) -> None:
    load(CommonSettings, flags=flags)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("nats://a:4222, tls://b", "nats://a:4222, tls://b"),
        ("nats://u:secret@a:4222,nats://u:secret@b", "nats://***@a:4222,nats://***@b"),
        ("u:secret@a", "***@a"),
        ("rediss://:se/cr@et,@a/3", "rediss://***@a/3"),
        ("", ""),
    ],
)
def test_no_message_shows_a_password(url: str, shown: str) -> None:
    assert without_password(url) == shown
