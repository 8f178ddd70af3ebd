"""``koord check scheduler-config``: what a file comes to, and what is wrong with it by the path of its field."""

import json
import sys
from pathlib import Path

import pytest
import yaml

from koord.cli.main import main
from koord.scheduler.config.registry import UPSTREAM
from koord.scheduler.config.shipped import shipped_text
from koord.scheduler.plugins.factories import BUILT

MISSING = [{"name": name} for name in UPSTREAM if name not in BUILT]


def checked(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str, str]:
    """Exit code, output and errors of the command about a file."""
    return said(capsys, "scheduler-config", str(path), *options)


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a command."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["koord", "check", *words])
        with pytest.raises(SystemExit) as ended:
            main()
    told = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, told.out, told.err


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "scheduler.yaml"
    content = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "parallelism": 8,
        "profiles": [
            {
                "plugins": {
                    "multiPoint": {"disabled": MISSING},
                    "filter": {"enabled": [{"name": "BatchResourceFit"}]},
                    "score": {"enabled": [{"name": "NodeAffinity", "weight": 7}]},
                }
            }
        ],
    }
    path.write_text(yaml.safe_dump(content))
    return path


def test_what_a_file_comes_to(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = checked(config, capsys)
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "default-scheduler"
    assert "  queueSort  PrioritySort" in lines
    assert "  permit     -" in lines
    assert next(line for line in lines if line.startswith("  score ")).split()[1:3] == ["NodeAffinity", "7,"]
    assert "no effect: parallelism" in lines
    assert "needs the setting scheduler_names: [default-scheduler]" in lines
    assert lines[-1].startswith("warning: profiles[0].plugins.filter.enabled[0]: BatchResourceFit has no effect")


def test_as_json(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = checked(config, capsys, "--json")
    assert code == 0
    found = json.loads(out)
    [profile] = found["profiles"]
    assert profile["schedulerName"] == "default-scheduler"
    assert profile["plugins"]["score"][0] == {"name": "NodeAffinity", "weight": 7}
    assert profile["plugins"]["bind"] == [{"name": "DefaultBinder"}]
    assert found["settings"] == {"scheduler_names": ["default-scheduler"]}
    assert found["ignored"] == ["parallelism"]
    assert len(found["warnings"]) == 1


def test_what_is_wrong_is_named_by_path(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = yaml.safe_load(config.read_text())
    content["parallelism"] = 0
    content["profiles"][0]["plugin"] = {}
    config.write_text(yaml.safe_dump(content))
    code, out, err = checked(config, capsys)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {config}: profiles[0].plugin: unknown field; known: ")
    assert "; parallelism: Invalid value: 0: should be an integer value greater than zero" in err
    del content["profiles"][0]["plugin"]
    config.write_text(yaml.safe_dump(content))
    code, _, err = checked(config, capsys)
    assert code == 2
    assert err == f"error: {config}: parallelism: Invalid value: 0: should be an integer value greater than zero\n"


@pytest.mark.skipif(not MISSING, reason="everything of upstream's default profile is built")
def test_what_is_not_built_is_named(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = yaml.safe_load(config.read_text())
    multi = content["profiles"][0]["plugins"].pop("multiPoint")
    config.write_text(yaml.safe_dump(content))
    code, out, _ = checked(config, capsys)
    assert code == 0
    warning = f'plugin "{MISSING[0]["name"]}" is not there yet in koord: left out'
    assert warning in " ".join(out.split())
    content["profiles"][0]["plugins"]["multiPoint"] = {**multi, "enabled": MISSING[:1]}
    config.write_text(yaml.safe_dump(content))
    code, out, _ = checked(config, capsys)
    assert (code, warning in " ".join(out.split())) == (0, True)


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = checked(tmp_path / "none.yaml", capsys)
    assert code == 2
    assert err == f"error: {tmp_path}/none.yaml: No such file or directory\n"
    (tmp_path / "none.yaml").write_bytes(b"kind: \xc9")
    code, _, err = checked(tmp_path / "none.yaml", capsys)
    assert (code, err) == (2, f"error: {tmp_path}/none.yaml: is not text in UTF-8\n")


def test_thresholds_that_differ_from_those_of_the_agents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    agents = tmp_path / "slo.yaml"
    agents.write_text(
        'kind: ConfigMap\ndata:\n  resource-threshold-config: \'{"clusterStrategy": {"enable": true}}\'\n'
    )
    shipped = tmp_path / "shipped.yaml"
    shipped.write_text(shipped_text())
    code, out, _ = checked(shipped, capsys, "--slo-config", str(agents))
    assert code == 0
    assert "LoadAwareScheduling: all nodes: agents evict best-effort pods from 70% of memory on" in out
    agents.write_text("kind: ConfigMap\ndata: {resource-threshold-config: '{'}\n")
    code, _, err = checked(shipped, capsys, "--slo-config", str(agents))
    assert code == 2
    assert "data[resource-threshold-config]" in err


def test_extenders_are_shown_and_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "scheduler.yaml"
    block = {
        "urlPrefix": "http://gpu:80/x",
        "filterVerb": "f",
        "bindVerb": "b",
        "managedResources": [{"name": "a.b/x"}],
    }
    head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    path.write_text(yaml.safe_dump({**head, "extenders": [block]}))
    code, out, _ = checked(path, capsys)
    assert code == 0
    assert "extender http://gpu:80/x: filter f, bind b for pods that ask for a.b/x" in out.splitlines()
    _, out, _ = checked(path, capsys, "--json")
    [shown] = json.loads(out)["extenders"]
    assert shown["verbs"] == {"filter": "f", "bind": "b"}
    path.write_text(yaml.safe_dump({**head, "extenders": [block, {**block, "urlPrefix": "", "prioritizeVerb": "p"}]}))
    code, _, err = checked(path, capsys)
    assert code == 2
    for text in (
        "extenders[1].urlPrefix: Required value",
        "extenders[1].weight: Invalid value: 0: must have a positive weight applied to it",
        "extenders[1].managedResources[0].name: Invalid value: ",
        "only one extender can implement bind",
    ):
        assert text in " ".join(err.split())


def test_a_command_line_comes_to_settings(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "scheduler-flags", "--", "--port=10251", "-v=4", "--debug-scores", "5")
    assert code == 0
    body, _, warnings = out.partition("warning: ")
    assert yaml.safe_load(body) == {"http": {"port": 10251}, "scheduler": {"debug": {"scores": 5}}}
    assert warnings.startswith("-v: has no effect")
    _, out, _ = said(capsys, "scheduler-flags", "--json", "--", "--async-log")
    assert json.loads(out)["settings"] == {}
    code, _, err = said(capsys, "scheduler-flags", "--", "--port=x", "--what")
    assert code == 2
    assert "--what: unknown flag" in err
