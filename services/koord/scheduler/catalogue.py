"""From pods to scheduling classes and footprints, each made once and shared while somebody uses it."""

from collections.abc import Callable, Hashable, Mapping
from weakref import WeakKeyDictionary, WeakValueDictionary

from msgspec.structs import replace

from koord.accounting.requests import nonzero_request, pod_request
from koord.kube.pods import PodSpec
from koord.kube.protocol.scheduler import scheduler_name
from koord.scheduler.engine.classes import NAMED_BY, SchedulingClass
from koord.scheduler.engine.cluster import Cluster
from koord.scheduler.engine.placement import PodInfo
from koord.scheduler.engine.resources import Footprint
from koord.scheduler.framework.contract import AssignedPod, Plugin, PluginError, PodRef, Template
from koord.scheduler.framework.profile import Profile
from koord.scheduler.podview import PodShape, PodShapeError, PodView
from koord.scheduler.transformers.pods import NEVER, PodGates, pod_priority, preemption_policy, transform_spec

_NOTHING: Mapping[str, str] = {}
_Items = tuple[tuple[str, str], ...]
_Key = tuple[int, str, PodShape, int, str, str, tuple[str, ...], _Items, _Items]
"""Profile, namespace, shape, priority, owner's kind, preemption policy, images, annotations and labels that matter."""


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


class _Reading:
    """What of pods tells their classes apart under one profile. ``labels`` are those that plugins read, and those that
    selectors name as of ``version`` of the cluster's list of them."""

    __slots__ = ("images", "keys", "labels", "named", "profile", "version", "whole")

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.keys = frozenset(profile.pod_keys)
        self.labels = self.keys
        self.version = -1
        self.images = any(plugin.reads_images for plugin in profile.plugins)
        self.named = any(plugin.name == NAMED_BY for plugin in profile.filters)
        self.whole = any(plugin.reads_name for plugin in profile.plugins)


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
        on_error: Callable[[PluginError], None] = lambda error: None,
    ) -> None:
        self._on_error = on_error
        self._cluster = cluster
        self._usual = _Reading(profile)
        self._others = {name: _Reading(other) for name, other in (others or {}).items()}
        self._gates = gates or PodGates()
        self._plain = self._gates == PodGates()
        self._prepared: WeakKeyDictionary[PodShape, _Prepared] = WeakKeyDictionary()
        self._classes: WeakValueDictionary[Hashable, SchedulingClass] = WeakValueDictionary()
        plugins = dict.fromkeys(plugin for each in self.profiles for plugin in each.plugins)
        self._selecting = tuple(plugin for plugin in plugins if type(plugin).label_keys is not Plugin.label_keys)

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """All profiles, the usual one first."""
        return tuple(dict.fromkeys(each.profile for each in (self._usual, *self._others.values())))

    def footprint(self, shape: PodShape) -> Footprint:
        """What a pod of this shape takes; PodShapeError names a bad quantity."""
        return self._of(shape).footprint

    def pod(self, view: PodView) -> PodInfo:
        """A pod ready to be placed; PodShapeError names what is wrong with its spec."""
        priority, owner = self._priority(view), view.owner
        return PodInfo(_ref(view), self._class(view, priority, owner), priority, owner)

    def renewed(self, pod: PodInfo) -> PodInfo:
        """The pod in the class it has now that more labels tell classes apart; the same if it is still the same."""
        only = pod.class_.template.only
        old = pod.class_.base or pod.class_
        assert isinstance(old.key, tuple), "made here"
        reading = next(each for each in (self._usual, *self._others.values()) if each.profile is old.profile)
        labels = self._labels(reading, pod.ref.labels)
        if old.key[-1] == labels:
            return pod
        template, key = old.template, (*old.key[:-1], labels)
        found = self._classes.get(key)
        if found is None:
            outline = template.outline
            if isinstance(outline, tuple):
                outline = (*outline[:-1], labels)
            template = replace(template, labels=dict(labels), outline=outline)
            found = self._classes[key] = SchedulingClass(key, template, old.profile)
        return PodInfo(pod.ref, found.at(only) if only else found, pod.priority, pod.owner)

    def assigned(self, view: PodView, node: str) -> AssignedPod:
        """A pod as it counts on ``node``, as the API shows it; PodShapeError names what is wrong with its spec."""
        shape = view.shape
        assert shape is not None, "a decoded pod has a shape"
        prepared = self._of(shape)
        terminating = view.metadata.deletion_timestamp is not None
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
            terminating,
            evicted=view.evicted,
            preempted=terminating and view.preempted,
        )

    def class_of(self, view: PodView) -> SchedulingClass:
        """The class of a pod."""
        return self._class(view, self._priority(view), view.owner)

    def _class(self, view: PodView, priority: int, owner: str) -> SchedulingClass:
        shape, meta = view.shape, view.metadata
        assert shape is not None, "a decoded pod has a shape"
        reading = self._usual
        if self._others:
            reading = self._others.get(scheduler_name(meta.labels, view.spec.scheduler_name), reading)
        name = view.only if reading.named else ""
        if name and reading.whole:
            shape, name = shape.on(name), ""
        key = self._key(reading, view, shape, priority, owner)
        found = self._classes.get(key)
        if found is None:
            prepared = self._of(shape)
            # The shape may be the first that selects by some labels, its own pods' among them.
            key = self._key(reading, view, shape, priority, owner)
            _, namespace, _, _, _, preemption, images, annotations, labels = key
            outline = shape.outline
            template = Template(
                namespace,
                _completed(prepared.spec, priority, preemption, images),
                prepared.footprint,
                dict(labels) if labels else _NOTHING,
                dict(annotations) if annotations else _NOTHING,
                owner,
                outline=None if outline is None else (outline, *key[1:2], *key[3:]),
            )
            found = self._classes[key] = SchedulingClass(key, template, reading.profile)
        return found.at(name) if name else found

    def _key(self, reading: _Reading, view: PodView, shape: PodShape, priority: int, owner: str) -> _Key:
        meta, policy = view.metadata, view.spec.preemption_policy
        annotations, keys = meta.annotations, reading.keys
        if not self._plain:
            policy = preemption_policy(policy, meta.labels, self._gates)
        return (
            id(reading),
            meta.namespace,
            shape,
            priority,
            owner,
            NEVER if policy == NEVER else "",
            view.images if reading.images else (),
            tuple([item for item in annotations.items() if item[0] in keys]) if annotations else (),
            self._labels(reading, meta.labels),
        )

    def _labels(self, reading: _Reading, labels: Mapping[str, str]) -> _Items:
        """The labels that matter, in the order of ``labels``: pods of one template have one order."""
        if not labels:
            return ()
        selected = self._cluster.pod_labels
        if reading.version != selected.version:
            reading.version, reading.labels = selected.version, reading.keys | selected.keys
        wanted = reading.labels
        return tuple([item for item in labels.items() if item[0] in wanted])

    def _priority(self, view: PodView) -> int:
        if self._plain:
            return view.spec.priority or 0
        return pod_priority(view.spec.priority, view.metadata.labels, self._gates)

    def _of(self, shape: PodShape) -> _Prepared:
        found = self._prepared.get(shape)
        if found is None:
            found = self._prepared[shape] = _Prepared(shape, self._cluster, self._gates)
            if not found.failure:
                for plugin in self._selecting:
                    try:
                        self._cluster.pod_labels.add(plugin.label_keys(found.spec))
                    except Exception as error:
                        self._on_error(PluginError(plugin.name, "label_keys", error))
        if found.failure:
            raise PodShapeError(found.failure)
        return found

    def __len__(self) -> int:
        return len(self._classes)


def _ref(view: PodView) -> PodRef:
    meta = view.metadata
    gates = tuple([gate.name for gate in view.spec.scheduling_gates]) if view.spec.scheduling_gates else ()
    shape = view.shape
    claims = tuple(shape.spec.resource_claims) if shape is not None and shape.claims else ()
    return PodRef(meta.uid, meta.namespace, meta.name, meta.labels, meta.annotations, gates, claims)


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
