"""VolumeBinding's PreBind at the plugin contract: what is written, what is waited for, and what ends the waiting."""

import copy
import json
from typing import Any

from koord.scheduler.framework.contract import PodRef, PreBind, Write
from koord.scheduler.plugins.volumebinding import VolumeBinding
from tests.scheduler.volumes.objects import HOST, Object, VolumeBed, claim, local, storage_class, using, volume

NODE = "volume.kubernetes.io/selected-node"


class Api:
    """Objects with versions, and the work of the volume controller."""

    def __init__(self) -> None:
        self.world = VolumeBed()
        self.world.nodes("a", "b")
        self.tell("class", storage_class())
        self.tell("class", storage_class("made", provisioner="x.io"))
        self.version = 10

    @property
    def plugin(self) -> VolumeBinding:
        return next(plugin for plugin in self.world.profile.plugins if isinstance(plugin, VolumeBinding))

    def tell(self, kind: str, body: Object) -> Object:
        self.version = getattr(self, "version", 10) + 1
        body = copy.deepcopy(body)
        body["metadata"] |= {"resourceVersion": str(self.version)}
        body["metadata"].setdefault("uid", f"uid-{kind}-{body['metadata']['name']}")
        self.world.tell(kind, body)
        return body

    def place(self, name: str, spec: Object) -> tuple[PodRef, str]:
        pod = self.world.pod(name, spec)
        node = self.world.place(pod)
        assert node in ("a", "b"), node
        return pod.ref, node

    def start(self, ref: PodRef, node: str) -> tuple[Write, ...]:
        wanted = self.plugin.prebind(ref, node)
        assert isinstance(wanted, PreBind), wanted
        assert wanted.timeout_s == 600.0
        return wanted.writes

    def bind(self, data: Object, name: str) -> None:
        """As the volume controller does."""
        self.tell("volume", {**local(name, "a"), **local(name, "a", given=data)})
        done = copy.deepcopy(data)
        done["spec"]["volumeName"] = name
        done["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = "yes"
        self.tell("claim", done)


def test_a_volume_is_given_to_its_claim() -> None:
    api = Api()
    data = api.tell("claim", claim("data"))
    held = api.tell("volume", local("pv", "a"))
    ref, node = api.place("p", using("data"))
    [write] = api.start(ref, node)
    assert (write.resource.plural, write.name, write.uid) == ("persistentvolumes", "pv", held["metadata"]["uid"])
    assert write.resource_version == held["metadata"]["resourceVersion"]
    body: Any = json.loads(write.body)
    assert body["metadata"]["annotations"] == {"pv.kubernetes.io/bound-by-controller": "yes"}
    assert body["spec"]["claimRef"] == {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": "default",
        "name": "data",
        "uid": "uid-data",
        "resourceVersion": data["metadata"]["resourceVersion"],
    }
    assert api.plugin.prebound(ref.uid) is False
    api.tell("volume", local("pv", "a", given=data))
    assert api.plugin.prebound(ref.uid) is False
    api.bind(data, "pv")
    assert api.plugin.prebound(ref.uid) is True


def test_a_claim_is_told_the_node() -> None:
    api = Api()
    data = api.tell("claim", claim("data", class_="made"))
    ref, node = api.place("p", using("data"))
    [write] = api.start(ref, node)
    assert (write.resource.plural, write.namespace, write.name) == ("persistentvolumeclaims", "default", "data")
    assert (write.uid, write.resource_version) == ("uid-data", data["metadata"]["resourceVersion"])
    assert json.loads(write.body) == {"metadata": {"annotations": {NODE: node}}}
    assert api.plugin.prebound(ref.uid) is False
    api.tell("claim", claim("data", class_="made", selected=node))
    assert api.plugin.prebound(ref.uid) is False
    # The claim may be told before its volume.
    done = claim("data", class_="made", selected=node, volume="made-1", bound=True)
    api.tell("claim", done)
    assert api.plugin.prebound(ref.uid) is False
    api.tell("volume", volume("made-1", class_="made", on={HOST: [node]}, given=done))
    assert api.plugin.prebound(ref.uid) is True


def test_what_ends_the_waiting() -> None:
    def begun(class_: str) -> tuple[Api, PodRef, str]:
        api = Api()
        api.tell("claim", claim("data", class_=class_))
        api.tell("volume", local("pv", "a"))
        ref, node = api.place("p", using("data"))
        api.start(ref, node)
        return api, ref, node

    api, ref, node = begun("made")
    api.tell("claim", claim("data", class_="made", selected=node))
    api.tell("claim", claim("data", class_="made"))
    assert api.plugin.prebound(ref.uid) == 'provisioning failed for PVC "data"'

    api, ref, node = begun("made")
    done = claim("data", class_="made", selected=node, volume="far", bound=True)
    api.tell("claim", done)
    api.tell("volume", volume("far", class_="made", on={HOST: ["z"]}, given=done))
    assert api.plugin.prebound(ref.uid) == f'pv "far" node affinity doesn\'t match node "{node}"'

    api, ref, node = begun("local")
    api.tell("volume", local("pv", "a", labels={"touched": "yes"}))
    assert api.plugin.prebound(ref.uid) == 'ClaimRef got reset for pv "pv"'
    api.world.gone("volume", "pv")
    assert api.plugin.prebound(ref.uid) == 'persistentvolume "pv" not found'
    api.world.gone("claim", "default/data")
    assert api.plugin.prebound(ref.uid) == 'persistentvolumeclaim "data" not found'

    api, ref, node = begun("local")
    data = claim("data")
    api.bind(data, "pv")
    api.world.engine.remove_node("a")
    assert api.plugin.prebound(ref.uid) == 'node "a" not found'


def test_a_second_pod_of_a_claim_writes_nothing_but_waits() -> None:
    api = Api()
    data = api.tell("claim", claim("data"))
    api.tell("volume", local("pv", "a"))
    (first, node), (second, same) = api.place("p1", using("data")), api.place("p2", using("data"))
    assert node == same
    assert len(api.start(first, node)) == 1
    api.tell("volume", local("pv", "a", given=data))
    third, _ = api.place("p3", using("data"))
    assert api.start(second, node) == () and api.start(third, node) == ()
    assert api.plugin.prebound(second.uid) is False
    api.bind(data, "pv")
    assert [api.plugin.prebound(ref.uid) for ref in (first, second, third)] == [True, True, True]
    # From now on the claim is bound and its pods wait for nothing.
    fourth, _ = api.place("p4", using("data"))
    assert api.plugin.prebind(fourth, "a") is None


def test_a_pod_that_is_given_up_leaves_nothing() -> None:
    api = Api()
    api.tell("claim", claim("data"))
    api.tell("volume", local("pv", "a"))
    ref, node = api.place("p", using("data"))
    api.start(ref, node)
    assert api.world.engine.forget(ref.uid)
    assert api.world.book.promised == ({}, {})
    assert api.plugin.prebound(ref.uid) is True
    assert api.plugin.prebind(ref, node) is None
