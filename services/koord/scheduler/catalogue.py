"""From pods to scheduling classes and footprints, each made once and shared while somebody uses it."""

from collections.abc import Hashable, Mapping
from weakref import WeakKeyDictionary, WeakValueDictionary

from msgspec.structs import replace

from koord.accounting.requests import nonzero_request, pod_request
from koord.kube.pods import PodSpec
from koord.kube.protocol.scheduler import scheduler_name
from koord.scheduler.engine.classes import NAMED_BY, SchedulingClass
from koord.scheduler.engine.cluster import Cluster
from koord.scheduler.engine.placement import PodInfo
from koord.scheduler.engine.resources import Footprint
from koord.scheduler.framework.contract import AssignedPod, PodRef, Template
from koord.scheduler.framework.profile import Profile
from koord.scheduler.podview import PodShape, PodShapeError, PodView
from koord.scheduler.transformers.pods import NEVER, PodGates, pod_priority, preemption_policy, transform_spec

_NOTHING: Mapping[str, str] = {}


class _Prepared:
    """What a shape comes to; a failure is kept, too."""

    __slots__ = ("failure", "footprint", "spec")

    def __init__(self, shape: PodShape, cluster: Cluster, gates: PodGates) -> None:
        self.failure = ""
        try:
            self.spec = transform_spec(shape.spec, shape.replace, gates)
            self.footprint = cluster.footprint(pod_request(self.spec), nonzero_request(self.spec))
        except ValueError as error:
            self.failure = str(error)


class Catalogue:
    """The classes of one cluster: pods under the name of one of ``others`` have that profile, all others ``profile``.

    Plugins see specs as the transformers (``gates``) leave them, each transformed once.
    """

    def __init__(
        self,
        cluster: Cluster,
        profile: Profile,
        others: Mapping[str, Profile] | None = None,
        *,
        gates: PodGates | None = None,
    ) -> None:
        self._cluster = cluster
        self._profile = profile
        self._others = dict(others or {})
        self._gates = gates or PodGates()
        self._prepared: WeakKeyDictionary[PodShape, _Prepared] = WeakKeyDictionary()
        self._classes: WeakValueDictionary[Hashable, SchedulingClass] = WeakValueDictionary()
        self._plugins = tuple(dict.fromkeys(plugin for each in self.profiles for plugin in each.plugins))
        self._images = {id(each): any(plugin.reads_images for plugin in each.plugins) for each in self.profiles}
        self._naming = {id(p) for p in self.profiles if any(plugin.name == NAMED_BY for plugin in p.filters)}
        self._none = {id(each): (None,) * len(each.pod_keys) for each in self.profiles}

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """All profiles, the usual one first."""
        return tuple(dict.fromkeys((self._profile, *self._others.values())))

    def footprint(self, shape: PodShape) -> Footprint:
        """What a pod of this shape takes; PodShapeError names a bad quantity."""
        return self._of(shape).footprint

    def pod(self, view: PodView) -> PodInfo:
        """A pod ready to be placed; PodShapeError names what is wrong with its spec."""
        priority, owner = self._priority(view), view.owner
        return PodInfo(_ref(view), self._class(view, priority, owner), priority, owner)

    def renewed(self, pod: PodInfo) -> PodInfo:
        """The pod in the class it has now that more labels tell classes apart; the same if it is still the same."""
        labels = self._cluster.pod_labels.of(pod.ref.labels)
        only = pod.class_.template.only
        old = pod.class_.base or pod.class_
        assert isinstance(old.key, tuple), "made here"
        if old.key[-1] == labels:
            return pod
        template, key = old.template, (*old.key[:-1], labels)
        found = self._classes.get(key)
        if found is None:
            template = replace(template, labels={**template.labels, **dict(labels)})
            found = self._classes[key] = SchedulingClass(key, template, old.profile)
        return PodInfo(pod.ref, found.at(only) if only else found, pod.priority, pod.owner)

    def assigned(self, view: PodView, node: str) -> AssignedPod:
        """A pod as it counts on ``node``, as the API shows it; PodShapeError names what is wrong with its spec."""
        shape = view.shape
        assert shape is not None, "a decoded pod has a shape"
        prepared = self._of(shape)
        return AssignedPod(
            _ref(view),
            prepared.spec,
            prepared.footprint,
            node,
            self._priority(view),
            view.true_since("PodScheduled"),
            view.true_since("Initialized"),
            view.started,
            view.owner,
            view.metadata.deletion_timestamp is not None,
        )

    def class_of(self, view: PodView) -> SchedulingClass:
        """The class of a pod."""
        return self._class(view, self._priority(view), view.owner)

    def _class(self, view: PodView, priority: int, owner: str) -> SchedulingClass:
        shape, meta = view.shape, view.metadata
        assert shape is not None, "a decoded pod has a shape"
        prepared = self._of(shape)
        labels, annotations = meta.labels, meta.annotations
        profile = self._profile
        if self._others:
            profile = self._others.get(scheduler_name(labels, view.spec.scheduler_name), profile)
        keys = profile.pod_keys
        values: tuple[str | None, ...] = self._none[id(profile)]
        if labels or annotations:
            values = tuple([labels.get(key) or annotations.get(key) for key in keys])
        images = view.images if self._images[id(profile)] else ()
        preemption = NEVER if preemption_policy(view.spec.preemption_policy, labels, self._gates) == NEVER else ""
        selected = self._cluster.pod_labels.of(labels)
        key = (id(profile), meta.namespace, shape, priority, owner, preemption, images, values, selected)
        found = self._classes.get(key)
        if found is None:
            told = {name: labels[name] for name in keys if name in labels} if labels else {}
            template = Template(
                meta.namespace,
                _completed(prepared.spec, priority, preemption, images),
                prepared.footprint,
                {**told, **dict(selected)} if told or selected else _NOTHING,
                {name: annotations[name] for name in keys if name in annotations} if annotations else _NOTHING,
                owner,
            )
            found = self._classes[key] = SchedulingClass(key, template, profile)
        return found.at(view.only) if view.only and id(profile) in self._naming else found

    def _priority(self, view: PodView) -> int:
        return pod_priority(view.spec.priority, view.metadata.labels, self._gates)

    def _of(self, shape: PodShape) -> _Prepared:
        found = self._prepared.get(shape)
        if found is None:
            found = self._prepared[shape] = _Prepared(shape, self._cluster, self._gates)
            if not found.failure:
                for plugin in self._plugins:
                    self._cluster.pod_labels.add(plugin.label_keys(found.spec))
        if found.failure:
            raise PodShapeError(found.failure)
        return found

    def __len__(self) -> int:
        return len(self._classes)


def _ref(view: PodView) -> PodRef:
    meta = view.metadata
    gates = tuple([gate.name for gate in view.spec.scheduling_gates]) if view.spec.scheduling_gates else ()
    return PodRef(meta.uid, meta.namespace, meta.name, meta.labels, meta.annotations, gates)


def _completed(spec: PodSpec, priority: int, preemption: str, images: tuple[str, ...]) -> PodSpec:
    """The spec of a class: with what the shape leaves out because it need not be equal."""
    spec = replace(spec, priority=priority, preemption_policy=preemption)
    if not images:
        return spec
    first = len(spec.containers)
    return replace(
        spec,
        containers=[replace(c, image=image) for c, image in zip(spec.containers, images, strict=False)],
        init_containers=[
            replace(c, image=image) for c, image in zip(spec.init_containers, images[first:], strict=False)
        ],
    )
