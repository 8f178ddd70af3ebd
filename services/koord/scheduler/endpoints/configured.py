"""``GET /configz``: the settings and profiles that are in force, defaults filled in."""

from collections.abc import Sequence
from typing import Any

import msgspec

from koord.runtime.pages import Asked, Page, Pages, json_page
from koord.scheduler.framework.profile import Profile
from koord.scheduler.settings import SchedulerSettings


def add_configz(pages: Pages, settings: SchedulerSettings, profiles: Sequence[Profile]) -> None:
    """Put the page on the server."""
    shown = configured(settings, profiles)

    async def page(asked: Asked) -> Page:
        return json_page(shown)

    pages.add("GET", "/configz", page)


def configured(settings: SchedulerSettings, profiles: Sequence[Profile]) -> dict[str, Any]:
    """What is shown. Of third-party plugins only the names: nobody knows what their settings hold."""
    found: dict[str, Any] = msgspec.to_builtins(settings)
    found["plugins"] = {**found["plugins"], "extra": sorted(settings.plugins.extra)}
    return {"scheduler": found, "profiles": [_profile(profile) for profile in profiles]}


def _profile(profile: Profile) -> dict[str, Any]:
    points = {
        "preEnqueue": profile.pre_enqueue,
        "preFilter": profile.prefilters,
        "filter": profile.filters,
        "postFilter": profile.post_filters,
        "reserve": profile.reserving,
    }
    return {
        "schedulerName": profile.scheduler_name,
        "plugins": {
            **{point: [plugin.name for plugin in plugins] for point, plugins in points.items()},
            "score": [{"name": plugin.name, "weight": weight} for plugin, weight in profile.scores],
        },
    }
