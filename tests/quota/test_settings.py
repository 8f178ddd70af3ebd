"""Settings that cannot be are refused before the service starts, by a message that names the key and the rule."""

from fractions import Fraction
from typing import Any

import msgspec
import pytest

from koord.quota.settings import QuotaSettings


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"oversell_rate": "two"}, "quota.oversell_rate: must be a number above 0, got 'two'"),
        ({"oversell_rate": 0}, "quota.oversell_rate"),
        ({"queue_limit": "min"}, "Invalid enum value 'min'"),
        ({"delay_evict_s": -1}, "quota.delay_evict_s: must not be negative, got -1"),
        ({"hold_idle_s": -0.5}, "quota.hold_idle_s"),
        ({"revoke_interval_s": 0}, "quota.revoke_interval_s: must be above 0"),
        (
            {"default_quota_group_max": {"cpu": "-1"}},
            r"quota.default_quota_group_max\[cpu\]: quantity \"-1\": must not be negative \(each should be a pos",
        ),
        ({"system_quota_group_max": {"memory": "much"}}, r"quota.system_quota_group_max\[memory\]: quantity \"much\""),
        ({"namespace": ""}, "quota.namespace: must be the name of a namespace"),
        ({"status_metrics": -1}, "quota.status_metrics: must not be negative, got -1"),
        ({"freeze_interval_s": 0}, "quota.freeze_interval_s: must be above 0"),
    ],
)
def test_impossible_settings(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=words):
        msgspec.convert(settings, QuotaSettings)


@pytest.mark.parametrize(
    ("settings", "ceiling"),
    [
        ({}, "1"),
        ({"oversell_rate": "1.5"}, "1"),
        ({"oversell_rate": "0.5"}, "1/2"),
        ({"oversell_rate": "1.5", "queue_limit": "max"}, "3/2"),
        ({"oversell_rate": "1.5", "enable_runtime_quota": False}, "3/2"),
    ],
)
def test_more_than_max_is_admitted_only_where_max_is_the_limit(settings: dict[str, Any], ceiling: str) -> None:
    assert msgspec.convert(settings, QuotaSettings).rules().limits.ceiling == Fraction(ceiling)
