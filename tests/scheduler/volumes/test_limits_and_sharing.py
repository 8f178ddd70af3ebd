"""NodeVolumeLimits, VolumeRestrictions and VolumeZone at the plugin contract."""

from typing import Any

from koord.scheduler.framework.events import ClusterEvent
from tests.scheduler.volumes.objects import (
    HOST,
    ZONE,
    Object,
    VolumeBed,
    attachment,
    claim,
    csi_node,
    storage_class,
    using,
    volume,
)

DRIVER = "ebs.csi.aws.com"
FULL = "0/2 nodes are available: 2 node(s) exceed max volume count."
ONCE = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"


def bed(limits: dict[str, int | None], *, names: tuple[str, ...] = ("a", "b")) -> VolumeBed:
    made = VolumeBed()
    made.nodes(*names)
    for name, limit in limits.items():
        made.tell("csi_node", csi_node(name, {DRIVER: limit}))
    return made


def bound(world: VolumeBed, name: str, **more: Any) -> None:
    """A claim with a volume of the driver."""
    data = claim(name, volume=f"pv-{name}", bound=True)
    world.tell("claim", data)
    world.tell("volume", volume(f"pv-{name}", given=data, csi=(DRIVER, f"vol-{name}"), **more))


def test_a_node_takes_as_many_volumes_as_its_driver_says() -> None:
    world = bed({"a": 1, "b": 2})
    for number in range(4):
        bound(world, f"c{number}")
    pods = [world.pod(f"p{number}", using(f"c{number}")) for number in range(4)]
    assert sorted(world.place(pod) for pod in pods[:3]) == ["a", "b", "b"]
    assert world.place(pods[3]) == FULL
    assert world.refusal(pods[3]).resolvable
    world.engine.forget(pods[0].uid)
    assert world.place(pods[3]) in ("a", "b")


def test_a_shared_volume_counts_once() -> None:
    world = bed({"a": 1, "b": 0})
    bound(world, "shared")
    pods = [world.pod(f"p{number}", using("shared")) for number in range(12)]
    assert {world.place(pod) for pod in pods} == {"a"}
    bound(world, "more")
    other = world.pod("other", using("more"))
    assert world.place(other) == FULL
    for pod in pods[1:]:
        world.engine.forget(pod.uid)
    assert world.place(other) == FULL
    world.engine.forget(pods[0].uid)
    assert world.place(other) == "a"


def test_a_run_of_pods_that_share_a_volume() -> None:
    world = bed({"a": 0, "b": 1})
    bound(world, "shared")
    pods = [world.pod(f"p{number}", using("shared")) for number in range(10)]
    outcomes: list[Any] = []
    assert world.engine.place(pods, outcomes) == 10
    assert {getattr(outcome, "node", None) for outcome in outcomes} == {"b"}


def test_claims_to_come_count_by_their_class() -> None:
    world = bed({"a": 1, "b": 0})
    world.tell("class", storage_class("made", provisioner=DRIVER))
    world.tell("claim", claim("data", class_="made"))
    world.tell("claim", claim("more", class_="made"))
    pod = world.pod("p", using("data"))
    assert world.place(pod) == "a"
    assert world.place(world.pod("p2", using("more"))) == FULL
    # The volume is made: it is the same one, under its handle.
    bound(world, "data")
    assert world.place(world.pod("p2", using("more"))) == FULL
    bound(world, "twin")
    same = volume("pv-twin", given=claim("twin"), csi=(DRIVER, "vol-data"))
    world.tell("volume", same)
    assert world.place(world.pod("p3", using("twin"))) == "a"


def test_a_node_without_limit_takes_all() -> None:
    world = bed({"a": None})
    world.tell("csi_node", csi_node("b", {"other.driver": 1}))
    for number in range(8):
        bound(world, f"c{number}")
        assert world.place(world.pod(f"p{number}", using(f"c{number}"))) in ("a", "b")


def test_attachments_without_a_pod_count() -> None:
    world = bed({"a": 1, "b": 1})
    bound(world, "old")
    bound(world, "new")
    for node in ("a", "b"):
        world.tell("attachment", attachment(f"at-{node}", DRIVER, node, "pv-old"))
    pod = world.pod("p", using("new"))
    assert world.place(pod) == FULL
    same = world.pod("same", using("old"))
    assert world.place(same) in ("a", "b")
    world.engine.forget(same.uid)
    assert world.gone("attachment", "at-a") == {ClusterEvent.VOLUME_ATTACHMENT_DELETE}
    assert world.place(pod) == "a"


def test_volumes_of_before_csi_count_as_their_drivers() -> None:
    world = bed({"a": 1, "b": 1})
    old = claim("old", volume="pv-old", bound=True)
    world.tell("claim", old)
    world.tell("volume", volume("pv-old", given=old, awsElasticBlockStore={"volumeID": "aws://z1/vol-old"}))
    assert world.place(world.pod("p", using("old"))) in ("a", "b")
    # The same disk under its new name is there already.
    twin = claim("twin", volume="pv-twin", bound=True)
    world.tell("claim", twin)
    world.tell("volume", volume("pv-twin", given=twin, csi=(DRIVER, "vol-old")))
    pods = [world.pod(f"p{number}", using("twin")) for number in range(3)]
    assert len({world.place(pod) for pod in pods}) == 2
    world.tell("class", storage_class("gp2", provisioner="kubernetes.io/aws-ebs"))
    world.tell("claim", claim("new", class_="gp2"))
    assert world.place(world.pod("q", using("new"))) == FULL
    inline = world.pod("r", using(disks=[{"awsElasticBlockStore": {"volumeID": "vol-7"}}]))
    assert world.place(inline) == FULL
    for name in ("a", "b"):
        world.tell("csi_node", csi_node(name, {DRIVER: 2}))
    assert world.place(inline) in ("a", "b")


def test_objects_in_any_order() -> None:
    """Pods before their nodes, nodes before their drivers, attachments before their volumes."""
    world = VolumeBed()
    world.tell("attachment", attachment("at", DRIVER, "a", "pv-old"))
    bound(world, "old")
    bound(world, "new")
    world.tell("csi_node", csi_node("a", {DRIVER: 1}))
    world.nodes("a")
    pod = world.pod("p", using("new"))
    assert "exceed max volume count" in world.place(pod)
    world.tell("csi_node", csi_node("a", {DRIVER: 2}))
    assert world.place(pod) == "a"
    bound(world, "third")
    third = world.pod("third", using("third"))
    assert "exceed max volume count" in world.place(third)
    world.engine.remove_node("a")
    world.nodes("a")
    assert "exceed max volume count" in world.place(third)
    world.engine.forget(pod.uid)
    assert world.place(third) == "a"


# VolumeRestrictions ---------------------------------------------------------------------------------------------------


def test_a_claim_for_one_pod_at_a_time() -> None:
    world = bed({})
    data = claim("data", modes=("ReadWriteOncePod",), volume="pv", bound=True)
    world.tell("claim", data)
    world.tell("volume", volume("pv", modes=("ReadWriteOncePod",), given=data))
    first, second = world.pod("p1", using("data")), world.pod("p2", using("data"))
    assert world.place(first) in ("a", "b")
    refused = world.refusal(second)
    assert refused.message == f"0/2 nodes are available: 2 {ONCE}."
    assert refused.resolvable
    world.engine.forget(first.uid)
    assert world.place(second) in ("a", "b")


def disk(kind: str, **fields: Any) -> Object:
    return {kind: fields}


def test_disks_that_may_not_be_shared_on_a_node() -> None:
    gce = disk("gcePersistentDisk", pdName="d")
    gce_read = disk("gcePersistentDisk", pdName="d", readOnly=True)
    ebs = disk("awsElasticBlockStore", volumeID="v", readOnly=True)
    iscsi, iscsi_read = disk("iscsi", iqn="q"), disk("iscsi", iqn="q", readOnly=True)
    rbd = disk("rbd", monitors=["m1", "m2"], image="i")
    rbd_far = disk("rbd", monitors=["m3"], image="i")
    rbd_near = disk("rbd", monitors=["m2", "m3"], image="i")
    clashing = [(gce, gce), (gce, gce_read), (ebs, ebs), (iscsi, iscsi_read), (rbd, rbd), (rbd, rbd_near)]
    sharing = [(gce_read, gce_read), (iscsi_read, iscsi_read), (rbd, rbd_far), (gce, iscsi)]
    for one, other in clashing + sharing:
        world = bed({}, names=("a",))
        first, second = world.pod("p1", using(disks=[one])), world.pod("p2", using(disks=[other]))
        assert world.place(first) == "a"
        if (one, other) in clashing:
            assert world.place(second) == "0/1 nodes are available: 1 node(s) had no available disk."
            world.nodes("b")
            assert world.place(second) == "b"
            world.engine.forget(second.uid)
            world.engine.remove_node("b")
            world.engine.forget(first.uid)
        assert world.place(second) == "a"


# VolumeZone -----------------------------------------------------------------------------------------------------------


def test_volumes_of_a_zone() -> None:
    world = VolumeBed()
    world.nodes("a", "b", zones={"a": "z1", "b": "z2"})
    bound(world, "data", labels={ZONE: "z2__z3"})
    bound(world, "far", labels={ZONE: "z9"})
    bound(world, "old", labels={"failure-domain.beta.kubernetes.io/zone": "z1"})
    assert world.place(world.pod("p", using("data"))) == "b"
    assert world.place(world.pod("p2", using("old"))) == "a"
    far = world.pod("p3", using("far"))
    refused = world.refusal(far)
    assert refused.message == "0/2 nodes are available: 2 node(s) had no available volume zone."
    assert not refused.resolvable
    world.nodes("c")  # in no zone: takes all
    assert world.place(far) == "c"


def test_a_bound_claim_whose_volume_is_gone() -> None:
    world = bed({})
    bound(world, "data")
    pod = world.pod("p", using("data"))
    world.gone("volume", "pv-data")
    assert world.place(pod) == '0/2 nodes are available: persistentvolume "pv-data" not found.'
    bound(world, "data")
    assert world.place(pod) in ("a", "b")


def test_ordinary_claims_leave_pods_as_they_are() -> None:
    """A volume that all nodes reach costs nothing: its pods are placed in runs."""
    world = bed({})
    data = claim("data", volume="pv", bound=True)
    world.tell("claim", data)
    world.tell("volume", volume("pv", given=data))
    pod = world.pod("p", using("data"))
    program = world.engine.evaluation(pod.class_).program
    names = {plugin.name for plugin, _ in program.steps}
    assert not names & {"VolumeBinding", "VolumeZone", "VolumeRestrictions", "NodeVolumeLimits"}
    assert program.row_local and not program.reserves


def test_hints() -> None:
    world = bed({})
    world.tell("class", storage_class())
    world.tell("claim", claim("data"))
    template = world.pod("p", using("data")).class_.template
    plugins = {plugin.name: plugin for plugin in world.profile.plugins}
    binding = plugins["VolumeBinding"]
    objects = world.book
    world.tell("claim", claim("other"))
    world.tell("volume", volume("fits"))
    world.tell("volume", volume("unfit", class_="remote"))
    assert binding.helps(template, ClusterEvent.PVC_UPDATE, objects.claims["default/data"])
    assert not binding.helps(template, ClusterEvent.PVC_UPDATE, objects.claims["default/other"])
    assert binding.helps(template, ClusterEvent.PV_ADD, objects.volumes["fits"])
    assert not binding.helps(template, ClusterEvent.PV_ADD, objects.volumes["unfit"])
    assert binding.helps(template, ClusterEvent.PV_ADD, None)


def test_hints_of_nodes_and_pods() -> None:
    world = bed({"a": 1, "b": 1})
    world.tell("class", storage_class())
    world.tell("claim", claim("local"))
    bound(world, "c0")
    bound(world, "c1")
    bound(world, "c2")
    binding, limits = (
        next(plugin for plugin in world.profile.plugins if plugin.name == name)
        for name in ("VolumeBinding", "NodeVolumeLimits")
    )
    local_pod = world.pod("local", using("local")).class_.template
    missing = world.pod("missing", using("missing")).class_.template
    nodes = {node.name: node for node in world.cluster.nodes if node is not None}
    assert not binding.helps(local_pod, ClusterEvent.NODE_LABEL, nodes["a"])
    world.tell("volume", volume("pv-a", on={HOST: ["a"]}))
    assert binding.helps(local_pod, ClusterEvent.NODE_LABEL, nodes["a"])
    assert not binding.helps(local_pod, ClusterEvent.NODE_LABEL, nodes["b"])
    assert not binding.helps(missing, ClusterEvent.NODE_ADD, nodes["a"])
    first, second = world.pod("p0", using("c0")), world.pod("p1", using("c1"))
    assert {world.place(first), world.place(second)} == {"a", "b"}
    third = world.pod("p2", using("c2")).class_.template
    went = world.engine.counted(first.uid)
    assert went is not None
    assert not limits.helps(third, ClusterEvent.POD_DELETE, went)
    world.engine.forget(first.uid)
    assert limits.helps(third, ClusterEvent.POD_DELETE, went)
