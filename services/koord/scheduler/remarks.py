"""What plugins have to say of pods that are written in vain: worked out once for a class, told to each of its pods."""

from collections.abc import Callable

from koord.scheduler.engine.classes import SchedulingClass
from koord.scheduler.framework.contract import PluginError


class Remarks:
    """Texts by class. ``on_error`` is told of plugins that fail; they have nothing to say then."""

    def __init__(self, on_error: Callable[[PluginError], None]) -> None:
        self._on_error = on_error

    def of(self, class_: SchedulingClass) -> tuple[str, ...]:
        """What is passed over of pods of the class."""
        class_ = class_.base or class_  # on which node they may run changes nothing
        texts = class_.remarks
        if texts is None:
            found: list[str] = []
            for plugin in class_.profile.remarking:
                try:
                    found += plugin.remarks(class_.template)
                except Exception as error:
                    self._on_error(PluginError(plugin.name, "remarks", error))
            texts = class_.remarks = tuple(found)
        return texts
