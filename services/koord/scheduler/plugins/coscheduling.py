"""Coscheduling: pods of a gang wait until the gang is complete; planning them whole is ``koord.scheduler.gang``'s work.

Spec 20 sections 2.5, 3.1 and 3.2. The queue's unit is the gang group, so upstream's representatives are not needed.
"""

from typing import ClassVar

from koord.kube.protocol import gang as keys
from koord.scheduler.framework.contract import PodRef, PreEnqueuePlugin
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.framework.profile import ProfileError
from koord.scheduler.gang.book import GangBook, GangSettings


class Coscheduling(PreEnqueuePlugin):
    """Gates pods of gangs that are unknown, not initialised, or have too few members."""

    name: ClassVar[str] = "Coscheduling"
    events: ClassVar[frozenset[ClusterEvent]] = frozenset((ClusterEvent.GANG_CHANGE, ClusterEvent.POD_UPDATE))

    def __init__(self, settings: GangSettings | None = None) -> None:
        settings = settings or GangSettings()
        if settings.default_timeout_s < 0:
            raise ProfileError("coscheduling.default_timeout_s: coeSchedulingArgs DefaultTimeoutSeconds invalid")
        for key in ("stale_after_s", "gated_event_after_s"):
            if getattr(settings, key) < 0:
                raise ProfileError(f"coscheduling.{key}: {getattr(settings, key)} must not be negative")
        if settings.default_match_policy not in keys.MATCH_POLICIES:
            known = ", ".join(sorted(keys.MATCH_POLICIES))
            raise ProfileError(
                f"coscheduling.default_match_policy: {settings.default_match_policy!r} is not one of {known}"
            )
        self.book = GangBook(settings)

    def pre_enqueue(self, pod: PodRef) -> str | None:
        """Why the pod's gang cannot be tried."""
        return self.book.hold(pod)
