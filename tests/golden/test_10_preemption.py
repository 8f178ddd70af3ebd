"""Golden example G43 of spec 10 section 6: the text of a preemption that finds nothing."""

from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.plugins.defaultpreemption import DefaultPreemption
from tests.scheduler.preemption.beds import Crowd


def test_g43_no_preemption_possible() -> None:
    crowd = Crowd()
    crowd.node("tainted", cpu=8000, taints=[("k", "", "NoSchedule")])
    for name in ("a", "b"):
        crowd.node(name, cpu=2000)
        crowd.running(f"high-{name}", name, 100)
    pod = crowd.wanting("p", 10, cpu="2")
    diagnosis = crowd.engine.place_one(pod)
    assert isinstance(diagnosis, Diagnosis)
    assert f"{diagnosis.message} {DefaultPreemption().post_filter(pod, crowd.engine, diagnosis)}" == (
        "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu. "
        "preemption: 0/3 nodes are available: 1 Preemption is not helpful for scheduling, "
        "2 No preemption victims found for incoming pod."
    )
