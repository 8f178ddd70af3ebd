"""Which devices a request is about: those that pass the selectors of its class and its own. Found once per group."""

from koord.kube.dynamicresources import DeviceClass
from koord.scheduler.dra.consuming import portions
from koord.scheduler.dra.demand import Ask, DemandError, expressions
from koord.scheduler.dra.devices import Device
from koord.scheduler.dra.pools import Failure, Group
from koord.scheduler.dra.selectors import Selectors

MOST_KEPT = 64


class Matcher:
    """Classes by name, and what matches them."""

    def __init__(self) -> None:
        self.classes: dict[str, DeviceClass] = {}
        self._versions: dict[str, int] = {}
        self._selectors = Selectors()

    def put(self, name: str, class_: DeviceClass | None) -> None:
        """A class came, changed or (None) went."""
        self._versions[name] = self._versions.get(name, 0) + 1
        if class_ is None:
            self.classes.pop(name, None)
        else:
            self.classes[name] = class_

    def matching(self, group: Group, ask: Ask) -> tuple[Device, ...] | Failure:
        """The devices of the group that the request is about, free or not."""
        key = (ask.device_class, self._versions.get(ask.device_class, 0), ask.selectors, ask.capacity)
        found = group.matches.get(key)
        if found is None:
            if len(group.matches) >= MOST_KEPT:
                group.matches.clear()
            found = group.matches[key] = self._match(group, ask)
        return found

    def _match(self, group: Group, ask: Ask) -> tuple[Device, ...] | Failure:
        class_ = self.classes.get(ask.device_class)
        if class_ is None:
            return Failure(f"request {ask.name}: device class {ask.device_class} does not exist", False)
        where = f"class {ask.device_class}"
        try:
            texts = expressions(class_.spec.selectors, where)
        except DemandError as error:
            return Failure(str(error), True)
        left = [device for device in group.devices if not device.conditional]
        for of_class, selectors in ((True, texts), (False, ask.selectors)):
            for index, text in enumerate(selectors):
                kept: list[Device] = []
                at = f"{where if of_class else f'request {ask.name}'}: selector #{index}"
                try:
                    selector = self._selectors.of(text)
                    for device in left:
                        at_device = f"{at} on device {'/'.join(device.id)}"
                        if selector.matches(device):
                            kept.append(device)
                except DemandError as error:
                    shown = at_device if "runtime" in str(error) else at
                    return Failure(f"{shown}: {error}", of_class)
                left = kept
        if ask.capacity:
            left = [each for each in left if portions(ask.capacity, each.driver, each.limits) is not None]
        return tuple(left)
