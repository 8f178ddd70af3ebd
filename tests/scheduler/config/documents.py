"""Configurations made of mappings, for tests."""

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from koord.scheduler.config.errors import ConfigError
from koord.scheduler.config.model import Point, ProfileConfig, SchedulerConfiguration
from koord.scheduler.config.reading import read

HEAD = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}


def configuration(
    content: Mapping[str, Any], plugins: Mapping[str, frozenset[Point]] | None = None
) -> SchedulerConfiguration:
    """The configuration with these fields."""
    return read(yaml.safe_dump({**HEAD, **content}), plugins)


def profile(content: Mapping[str, Any], plugins: Mapping[str, frozenset[Point]] | None = None) -> ProfileConfig:
    """The one profile with these fields."""
    [found] = configuration({"profiles": [dict(content)]}, plugins).profiles
    return found


def problems(content: Mapping[str, Any]) -> list[str]:
    """Everything that is wrong with a configuration."""
    with pytest.raises(ConfigError) as error:
        configuration(content)
    return [str(problem) for problem in error.value.problems]


def warnings(content: Mapping[str, Any]) -> list[str]:
    """What a configuration warns of."""
    return list(configuration(content).warnings)


def arguments(plugin: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration whose only profile uses ``plugin``, if it is a score plugin, with these arguments."""
    return {"profiles": [{"pluginConfig": [{"name": plugin, "args": dict(args)}]}]}
