"""From pods to scheduling classes and footprints, each made once and shared while somebody uses it."""

from collections.abc import Hashable, Mapping
from weakref import WeakKeyDictionary, WeakValueDictionary

from koord.scheduler.engine.classes import SchedulingClass
from koord.scheduler.engine.cluster import Cluster
from koord.scheduler.engine.placement import PodInfo
from koord.scheduler.engine.resources import Footprint
from koord.scheduler.framework.contract import PodRef, Template
from koord.scheduler.framework.profile import Profile
from koord.scheduler.podview import PodShape, PodView

_NOTHING: Mapping[str, str] = {}


class Catalogue:
    """The classes of one cluster under one profile."""

    def __init__(self, cluster: Cluster, profile: Profile) -> None:
        self._cluster = cluster
        self._profile = profile
        self._keys = profile.pod_keys
        self._footprints: WeakKeyDictionary[PodShape, Footprint] = WeakKeyDictionary()
        self._classes: WeakValueDictionary[Hashable, SchedulingClass] = WeakValueDictionary()
        self._none = (None,) * len(self._keys)

    def footprint(self, shape: PodShape) -> Footprint:
        """What a pod of this shape takes; PodShapeError names a bad quantity."""
        found = self._footprints.get(shape)
        if found is None:
            request, nonzero = shape.request
            found = self._footprints[shape] = self._cluster.footprint(request, nonzero)
        return found

    def pod(self, view: PodView) -> PodInfo:
        """A pod ready to be placed; PodShapeError names what is wrong with its spec."""
        meta = view.metadata
        gates = tuple([gate.name for gate in view.spec.scheduling_gates]) if view.spec.scheduling_gates else ()
        ref = PodRef(meta.uid, meta.namespace, meta.name, meta.labels, meta.annotations, gates)
        return PodInfo(ref, self.class_of(view), view.spec.priority or 0)

    def class_of(self, view: PodView) -> SchedulingClass:
        """The class of a pod."""
        shape = view.shape
        assert shape is not None, "a decoded pod has a shape"
        meta = view.metadata
        labels, annotations = meta.labels, meta.annotations
        values: tuple[str | None, ...] = self._none
        if labels or annotations:
            values = tuple([labels.get(key) or annotations.get(key) for key in self._keys])
        key = (meta.namespace, shape, values)
        found = self._classes.get(key)
        if found is None:
            template = Template(
                meta.namespace,
                shape.spec,
                self.footprint(shape),
                {name: labels[name] for name in self._keys if name in labels} if labels else _NOTHING,
                {name: annotations[name] for name in self._keys if name in annotations} if annotations else _NOTHING,
            )
            found = self._classes[key] = SchedulingClass(key, template, self._profile)
        return found

    def __len__(self) -> int:
        return len(self._classes)
