"""Settings of the quota service."""

from fractions import Fraction
from typing import Literal

import msgspec

from koord.accounting.requests import amounts
from koord.kube.quantity import QuantityError
from koord.quota.idle import HOLD_S
from koord.quota.keeper import Rules
from koord.quota.limits import LimitRules
from koord.quota.special import NAMESPACE, UNLIMITED


class QuotaSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the quota service. ``namespace``: where the special quotas are created if they do not exist;
    ``default_quota_group_max``, ``system_quota_group_max``: the max that two of them get then.

    ``enable_runtime_quota``: limits come from water filling; without it they are max. ``queue_limit``: whether the
    queue is held to the runtime (at least min), too, or to max alone as in koord-queue. ``oversell_rate``: max times
    this may be admitted by the queue. ``enable_min_quota_scale``: mins that add up to more than there is are scaled
    down. ``guarantee_usage``: what runs is kept and nothing is lent. ``hold_idle_s``: how long the first who waits for
    idle room keeps it from those behind.

    ``monitor_all_quotas``: pods of a quota that uses more than its runtime for ``delay_evict_s`` are evicted; looked
    for each ``revoke_interval_s``. ``freeze_interval_s``: nobody is evicted for two of these after the start and
    after the bus was away (rule 6 of the design). ``status_metrics``: of so many quotas, the first by name, the amounts
    are metrics, too.
    """

    namespace: str = NAMESPACE
    default_quota_group_max: dict[str, str | int | float] = msgspec.field(default_factory=lambda: dict(UNLIMITED))
    system_quota_group_max: dict[str, str | int | float] = msgspec.field(default_factory=lambda: dict(UNLIMITED))
    enable_runtime_quota: bool = True
    queue_limit: Literal["runtime", "max"] = "runtime"
    oversell_rate: str | float = 1.0
    enable_min_quota_scale: bool = True
    guarantee_usage: bool = False
    hold_idle_s: float = HOLD_S
    monitor_all_quotas: bool = False
    delay_evict_s: float = 120.0
    revoke_interval_s: float = 1.0
    freeze_interval_s: float = 60.0
    status_metrics: int = 500

    def __post_init__(self) -> None:
        self.rate()
        for name in ("default_quota_group_max", "system_quota_group_max"):
            try:
                amounts(getattr(self, name), f"quota.{name}")
            except QuantityError as error:
                raise ValueError(f"{error} (each should be a positive value)") from error
        if not self.namespace:
            raise ValueError("quota.namespace: must be the name of a namespace, got nothing")
        if self.status_metrics < 0:
            raise ValueError(f"quota.status_metrics: must not be negative, got {self.status_metrics}")
        for name in ("hold_idle_s", "delay_evict_s"):
            if getattr(self, name) < 0:
                raise ValueError(f"quota.{name}: must not be negative, got {getattr(self, name):g}")
        for name in ("revoke_interval_s", "freeze_interval_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"quota.{name}: must be above 0, got {getattr(self, name):g}")

    @property
    def revokes(self) -> bool:
        """Whether pods of overused quotas are evicted."""
        return self.monitor_all_quotas and self.enable_runtime_quota

    def rate(self) -> Fraction:
        """``oversell_rate``, exactly; ValueError if it is no number above 0."""
        try:
            rate = Fraction(str(self.oversell_rate))
        except (ValueError, ZeroDivisionError) as error:
            raise ValueError(f"quota.oversell_rate: must be a number above 0, got {self.oversell_rate!r}") from error
        if rate <= 0:
            raise ValueError(f"quota.oversell_rate: must be a number above 0, got {self.oversell_rate!r}")
        return rate

    def rules(self) -> Rules:
        """How the keeper shares out."""
        by_runtime = self.queue_limit == "runtime" and self.enable_runtime_quota
        return Rules(
            LimitRules(self.rate(), by_runtime),
            self.enable_runtime_quota,
            self.enable_min_quota_scale,
            self.guarantee_usage,
            self.hold_idle_s,
        )
