"""VolumeBinding at the plugin contract: where pods with claims go, and what their claims are promised."""

from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.volumes.stamps import Stamps
from tests.scheduler.volumes.objects import (
    HOST,
    ZONE,
    Object,
    VolumeBed,
    capacity,
    claim,
    csi_driver,
    local,
    storage_class,
    using,
    volume,
)

NO_VOLUME = "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind."


def bed(*, zones: dict[str, str] | None = None) -> VolumeBed:
    made = VolumeBed()
    made.nodes("a", "b", zones=zones)
    made.tell("class", storage_class())
    return made


def test_a_pod_with_a_bound_claim_goes_where_its_volume_is() -> None:
    world = bed()
    data = claim("data", volume="pv", bound=True)
    world.tell("claim", data)
    world.tell("volume", local("pv", "b", given=data))
    assert world.place(world.pod("p", using("data"))) == "b"


def test_volumes_that_cannot_be_reached_from_any_node() -> None:
    world = bed()
    data = claim("data", volume="pv", bound=True)
    world.tell("claim", data)
    world.tell("volume", local("pv", "elsewhere", given=data))
    refused = world.refusal(world.pod("p", using("data")))
    assert refused.message == "0/2 nodes are available: 2 node(s) didn't match PersistentVolume's node affinity."
    assert not refused.resolvable
    world.node("elsewhere", labels={HOST: "elsewhere"})
    assert world.place(world.pod("p", using("data"))) == "elsewhere"


def test_claims_that_stop_a_pod_before_any_node_is_looked_at() -> None:
    world = bed()
    world.tell("class", storage_class("fast", mode="Immediate", provisioner="x.io"))
    texts = {
        "missing": 'persistentvolumeclaim "missing" not found',
        "dying": 'persistentvolumeclaim "dying" is being deleted',
        "lost": 'persistentvolumeclaim "lost" bound to non-existent persistentvolume "pv-9"',
        "immediate": "pod has unbound immediate PersistentVolumeClaims",
        "classless": "pod has unbound immediate PersistentVolumeClaims",
        "prebound": "pod has unbound immediate PersistentVolumeClaims",
    }
    world.tell("claim", claim("dying", deleting=True))
    world.tell("claim", claim("lost", phase="Lost", volume="pv-9", bound=True))
    world.tell("claim", claim("immediate", class_="fast"))
    world.tell("claim", claim("classless", class_=None))
    world.tell("claim", claim("prebound", volume="pv-1"))
    for name, text in texts.items():
        refused = world.refusal(world.pod(f"p-{name}", using(name)))
        assert refused.message == f"0/2 nodes are available: {text}."


def test_an_ephemeral_volume_waits_for_its_own_claim() -> None:
    world = bed()
    world.tell("class", storage_class("made", provisioner="x.io"))
    pod = world.pod("p", using(ephemeral=["scratch"]), uid="u1")
    assert world.place(pod) == (
        "0/2 nodes are available: waiting for ephemeral volume controller to create "
        'the persistentvolumeclaim "p-scratch".'
    )
    world.tell("claim", claim("p-scratch", class_="made", owner="u2"))
    assert "pod is not owner" in world.place(pod)
    world.tell("claim", claim("p-scratch", class_="made", owner="u1"))
    assert world.place(pod) in ("a", "b")


def test_a_waiting_claim_gets_the_smallest_volume_that_will_do() -> None:
    world = bed()
    world.tell("claim", claim("data", size="5Gi"))
    world.tell("volume", local("small", "a", size="1Gi"))
    world.tell("volume", local("big", "a", size="100Gi"))
    world.tell("volume", local("fits", "a", size="10Gi"))
    pod = world.pod("p", using("data"))
    assert world.place(pod) == "a"
    assert world.book.promised == ({"fits": "default/data"}, {})
    world.engine.forget(pod.uid)
    assert world.book.promised == ({}, {})


def test_what_makes_a_volume_unfit() -> None:
    wanted = claim(
        "data",
        size="2Gi",
        modes=("ReadWriteOnce", "ReadOnlyMany"),
        selector={"matchLabels": {"tier": "gold"}},
    )
    good: Object = {"size": "2Gi", "modes": ("ReadWriteOnce", "ReadOnlyMany"), "labels": {"tier": "gold"}}
    other = claim("other")
    unfit: dict[str, Object] = {
        "too small": {**good, "size": "1Gi"},
        "other class": {**good, "class_": "remote"},
        "lacks a mode": {**good, "modes": ("ReadWriteOnce",)},
        "labels": {**good, "labels": {"tier": "lead"}},
        "block": {**good, "volumeMode": "Block"},
        "attributes": {**good, "volumeAttributesClassName": "fast"},
        "somebody's": {**good, "given": other},
        "released": {**good, "phase": "Released"},
        "elsewhere": {**good, "on": {HOST: ["z"]}},
    }
    for why, fields in unfit.items():
        world = bed()
        world.tell("claim", wanted)
        world.tell("volume", volume("pv", **{"on": {HOST: ["a"]}, **fields}))
        assert world.place(world.pod("p", using("data"))) == NO_VOLUME, why
        world.tell("volume", volume("pv", **{"on": {HOST: ["a"]}, **good}))
        assert world.place(world.pod("p", using("data"))) == "a", why


def test_each_of_several_pods_gets_a_volume_of_its_own() -> None:
    world = bed()
    world.tell("volume", local("one", "a"))
    world.tell("volume", local("two", "b"))
    for name in ("c1", "c2", "c3"):
        world.tell("claim", claim(name))
    pods = [world.pod(f"p{number}", using(f"c{number}")) for number in (1, 2, 3)]
    assert {world.place(pods[0]), world.place(pods[1])} == {"a", "b"}
    assert world.place(pods[2]) == NO_VOLUME
    world.engine.forget(pods[0].uid)
    assert world.place(pods[2]) in ("a", "b")


def test_two_claims_of_a_pod_get_two_volumes_of_one_node() -> None:
    world = bed()
    world.tell("claim", claim("data", size="5Gi"))
    world.tell("claim", claim("log", size="1Gi"))
    world.tell("volume", local("a1", "a", size="10Gi"))
    world.tell("volume", local("b1", "b", size="10Gi"))
    pod = world.pod("p", using("data", "log"))
    assert world.place(pod) == NO_VOLUME
    world.tell("volume", local("b2", "b", size="10Gi"))
    assert world.place(pod) == "b"
    # The smaller claim chooses first.
    assert world.book.promised[0] == {"b1": "default/log", "b2": "default/data"}


def test_a_volume_that_names_the_claim_is_its_own() -> None:
    world = bed()
    data = claim("data", size="1Gi")
    world.tell("claim", data)
    world.tell("volume", local("free", "a", size="1Gi"))
    world.tell("volume", local("mine", "b", size="50Gi", given=data))
    pod = world.pod("p", using("data"))
    assert world.place(pod) == "b"
    assert world.book.promised == ({}, {})  # its claimRef says so already


def test_pods_that_share_a_waiting_claim_go_to_one_node() -> None:
    world = bed()
    world.tell("claim", claim("data"))
    world.tell("volume", local("one", "a"))
    first, second = world.pod("p1", using("data")), world.pod("p2", using("data"))
    assert world.place(first) == world.place(second) == "a"
    world.engine.forget(first.uid)
    assert world.book.promised[0] == {"one": "default/data"}
    world.engine.forget(second.uid)
    assert world.book.promised == ({}, {})


def test_volumes_are_made_where_the_class_allows() -> None:
    world = bed(zones={"a": "z1", "b": "z2"})
    world.tell("class", storage_class("made", provisioner="x.io", topologies=[{ZONE: ["z2"]}]))
    world.tell("claim", claim("data", class_="made"))
    pod = world.pod("p", using("data"))
    assert world.place(pod) == "b"
    assert world.book.promised == ({}, {"default/data": "b"})
    # Who shares the claim follows.
    assert world.place(world.pod("p2", using("data"))) == "b"
    world.tell("class", storage_class("nowhere", provisioner="x.io", topologies=[{ZONE: ["z3"]}]))
    world.tell("claim", claim("more", class_="nowhere"))
    assert world.place(world.pod("p3", using("more"))) == NO_VOLUME


def test_a_claim_whose_volume_is_being_made_keeps_its_node() -> None:
    world = bed()
    world.tell("class", storage_class("made", provisioner="x.io"))
    world.tell("claim", claim("data", class_="made", selected="b"))
    assert world.place(world.pod("p", using("data"))) == "b"
    world.tell("claim", claim("more", class_="made", selected="gone"))
    assert world.place(world.pod("p2", using("more"))) == NO_VOLUME
    # The provisioner gave up: the mark is gone, any node will do.
    world.tell("claim", claim("more", class_="made"))
    assert world.place(world.pod("p2", using("more"))) in ("a", "b")


def test_drivers_that_publish_their_room() -> None:
    world = bed()
    world.tell("class", storage_class("made", provisioner="x.io"))
    world.tell("claim", claim("data", class_="made", size="10Gi"))
    pod = world.pod("p", using("data"))
    text = "0/2 nodes are available: 2 node(s) did not have enough free storage."
    world.tell("csi_driver", csi_driver("x.io"))
    assert world.place(pod) == text
    world.tell("capacity", capacity("c1", "made", "9Gi", {HOST: "a"}))
    world.tell("capacity", capacity("c2", "made", "100Gi", {HOST: "b"}, largest="5Gi"))
    world.tell("capacity", capacity("c3", "made", "100Gi", None))
    world.tell("capacity", capacity("c4", "other", "100Gi", {}))
    assert world.place(pod) == text
    world.tell("capacity", capacity("c1", "made", "10Gi", {HOST: "a"}))
    assert world.place(pod) == "a"
    world.engine.forget(pod.uid)
    world.gone("capacity", "csi/c1")
    assert world.place(pod) == text
    world.tell("csi_driver", csi_driver("x.io", storage_capacity=False))
    assert world.place(pod) in ("a", "b")


def test_a_promise_ends_when_the_api_shows_it() -> None:
    world = bed()
    data = claim("data")
    world.tell("claim", data)
    world.tell("volume", local("one", "a"))
    pod = world.pod("p", using("data"))
    assert world.place(pod) == "a"
    world.tell("volume", local("one", "a", given=data))
    assert world.book.promised == ({}, {})
    assert world.place(world.pod("p2", using("data"))) == "a"
    world.engine.forget(pod.uid)
    assert world.place(world.pod("p3", using("data"))) == "a"


def test_what_controllers_note_on_objects_wakes_nobody() -> None:
    world = bed()
    data, pv = claim("data", volume="pv", bound=True), local("pv", "b", given=claim("data"))
    assert world.tell("claim", data) == {ClusterEvent.PVC_ADD}
    assert world.tell("volume", pv) == {ClusterEvent.PV_ADD}
    clock, epoch = world.book.stamps.clock, world.book.epoch
    for body in (data, pv):
        body["metadata"] |= {"resourceVersion": "7"}
        body["metadata"].setdefault("annotations", {})["of"] = "somebody"
    assert world.tell("claim", data) == world.tell("volume", pv) == set()
    assert (world.book.stamps.clock, world.book.epoch) == (clock, epoch)
    assert world.book.volumes["pv"].metadata.resource_version == "7"
    assert world.tell("volume", {**pv, "status": {"phase": "Failed"}}) == {ClusterEvent.PV_UPDATE}
    assert world.book.epoch == epoch + 1


def test_bad_objects_change_nothing() -> None:
    world = bed()
    world.tell("claim", claim("data", size="1Gi"))
    world.tell("volume", local("one", "a"))
    for kind, bad, named in (
        ("claim", claim("data", size="plenty"), "spec.resources.requests.storage"),
        ("volume", local("one", "a", size="-x"), "spec.capacity.storage"),
        ("volume", volume("one", on={"bad key!": ["a"]}), "matchExpressions[0]"),
    ):
        try:
            world.tell(kind, bad)
        except ValueError as error:
            assert named in str(error)
        else:
            raise AssertionError(f"{named}: nothing was said")
    assert world.place(world.pod("p", using("data"))) == "a"


def test_a_term_that_cannot_be_read_leaves_the_others() -> None:
    world = bed()
    world.tell("claim", claim("data", size="1Gi"))
    half = local("one", "a")
    terms = half["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    terms.insert(0, {"matchExpressions": [{"key": "rank", "operator": "Gt", "values": ["abc"]}]})
    world.tell("volume", half)
    assert world.place(world.pod("p", using("data"))) == "a"


def test_a_pod_without_claims_has_nothing_to_do_with_it() -> None:
    world = bed()
    assert world.place(world.pod("p", using())) in ("a", "b")
    assert world.book.stamps.clock == 1  # the class


def test_stamps_are_forgotten_but_never_go_back() -> None:
    stamps = Stamps(most=3)
    seen = dict.fromkeys("abcdefgh", 0)
    for round_ in range(20):
        stamps.touch("abcdefgh"[round_ % 8])
        for name in seen:
            assert stamps.of(name) >= seen[name]
            seen[name] = stamps.of(name)
        assert stamps.of("abcdefgh"[round_ % 8]) == stamps.clock
