"""Evictions and the disruption budgets that judge them.

A pod here is Running because the test says so: there is no kubelet, so whoever is evicted from a node stays, marked,
until the test plays the kubelet's part.
"""

import asyncio
import time
from typing import Any

import pytest

from tests.conformance.client import Answer, Client, until
from tests.conformance.rig import pod, unique

REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."
LABELS = {"app": "web"}


class Pods:
    """Pods, budgets and evictions of one namespace."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self.pods = f"/api/v1/namespaces/{namespace}/pods"
        self.budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"

    async def make(
        self,
        name: str,
        *,
        ready: bool = True,
        phase: str = "Running",
        node: str = "",
        owner: dict[str, Any] | None = None,
        labels: dict[str, str] | None = None,
    ) -> None:
        """A pod with a status as a kubelet would have written it."""
        body = pod(name, labels=LABELS if labels is None else labels)
        if owner is not None:
            body["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
        made = await self.client.post(self.pods, body)
        assert made.status == 201, made.body
        if node:
            target = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"name": node}}
            assert (await self.client.post(f"{self.pods}/{name}/binding", target)).status == 201
        condition = {"type": "Ready", "status": "True" if ready else "False"}
        status = {"status": {"phase": phase, "conditions": [condition]}}
        assert (await self.client.patch(f"{self.pods}/{name}/status", status)).status == 200

    async def budget(self, name: str, wanted: dict[str, Any], **spec: Any) -> dict[str, Any]:
        """A budget over the pods of the test, once its status has these values."""
        body = {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": LABELS}, **spec}}
        made = await self.client.post(self.budgets, body)
        assert made.status == 201, made.body
        return await self.counted(name, **wanted)

    async def counted(self, name: str, **wanted: Any) -> dict[str, Any]:
        """The status of a budget once it has these values, for the spec as it is now."""

        async def so() -> Any:
            budget = (await self.client.get(f"{self.budgets}/{name}")).body
            status = budget.get("status") or {}
            fresh = status.get("observedGeneration") == budget["metadata"]["generation"]
            return status if fresh and {key: status.get(key) for key in wanted} == wanted else None

        status: dict[str, Any] = await until(so)
        return status

    async def evict(self, name: str, options: dict[str, Any] | None = None, **params: Any) -> Answer:
        body: dict[str, Any] = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": self.namespace},
        }
        if options is not None:
            body["deleteOptions"] = options
        return await self.client.post(f"{self.pods}/{name}/eviction", body, **params)

    async def is_there(self, name: str) -> bool:
        return (await self.client.get(f"{self.pods}/{name}")).status == 200


@pytest.fixture
def pods(client: Client, namespace: str) -> Pods:
    return Pods(client, namespace)


def refused(answer: Answer, cause: str) -> bool:
    """Whether a budget has refused, for this reason."""
    assert (answer.status, answer.reason, answer.message) == (429, "TooManyRequests", REFUSED), answer.body
    details = answer.body["details"]
    assert details == {"causes": [{"reason": "DisruptionBudget", "message": cause}]}
    assert "Retry-After" not in answer.headers
    return True


# --- the sub-resource


async def test_without_a_budget_an_eviction_is_a_deletion(pods: Pods, node: str) -> None:
    await pods.make("a")
    answer = await pods.evict("a")
    assert answer.status == 201
    assert answer.body == {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
    assert not await pods.is_there("a")
    missing = await pods.evict("a")
    assert (missing.status, missing.message) == (404, 'pods "a" not found')
    await pods.make("b", node=node)
    assert (await pods.evict("b")).status == 201
    evicted = (await pods.client.get(f"{pods.pods}/b")).body
    assert evicted["metadata"]["deletionGracePeriodSeconds"] == 30
    again = await pods.evict("b", {"gracePeriodSeconds": 0})
    assert again.status == 201 and not await pods.is_there("b")


@pytest.mark.since("1.26", "the condition DisruptionTarget")
async def test_an_evicted_pod_says_so(pods: Pods, node: str) -> None:
    await pods.make("b", node=node)
    assert (await pods.evict("b")).status == 201
    evicted = (await pods.client.get(f"{pods.pods}/b")).body
    conditions = {item["type"]: item for item in evicted["status"]["conditions"]}
    target = conditions["DisruptionTarget"]
    del target["lastTransitionTime"]
    assert target == {
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": None,
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }


@pytest.mark.since("1.34", "words: values as JSON")
async def test_what_an_eviction_says_is_checked(pods: Pods) -> None:
    await pods.make("a")
    path = f"{pods.pods}/a/eviction"
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "b"}}
    wrong: dict[str, Any]
    for wrong in (body, {"metadata": {}}):
        answer = await pods.client.post(path, wrong)
        assert (answer.status, answer.message) == (400, "name in URL does not match name in Eviction object")
    assert (await pods.client.post(path, pod("a"))).status == 400
    assert (await pods.client.get(path)).status == 405
    dry = await pods.evict("a", dryRun="Some")
    assert (dry.status, dry.message) == (
        422,
        'CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["Some"]: supported values: "All"',
    )
    policy = await pods.evict("a", {"propagationPolicy": "Sometimes"})
    assert policy.status == 422
    refused_ = await pods.evict("a", {"preconditions": {"uid": "wrong"}})
    uid = (await pods.client.get(f"{pods.pods}/a")).body["metadata"]["uid"]
    assert (refused_.status, refused_.reason) == (409, "Conflict")
    assert refused_.message == (
        'Operation cannot be fulfilled on Pod "a": the UID in the precondition (wrong) does not match the UID in'
        f" record ({uid}). The object might have been deleted and then recreated"
    )
    assert (await pods.evict("a", {"preconditions": {"uid": uid}})).status == 201


async def test_dry_runs_change_nothing(pods: Pods) -> None:
    for name in ("a", "b"):
        await pods.make(name)
    await pods.budget("one", {"disruptionsAllowed": 1}, minAvailable=1)
    for answer in (await pods.evict("a", dryRun="All"), await pods.evict("a", {"dryRun": ["All"]})):
        assert answer.status == 201
    assert (await pods.counted("one", disruptionsAllowed=1)).get("disruptedPods") is None
    condition = (await pods.client.get(f"{pods.pods}/a")).body["status"]["conditions"]
    assert [item["type"] for item in condition] == ["Ready"]


# --- budgets


async def test_a_budget_refuses_what_it_cannot_spare(pods: Pods) -> None:
    for name in ("a", "b", "c"):
        await pods.make(name)
    status = await pods.budget("two", {"disruptionsAllowed": 1}, minAvailable=2)
    assert (status["currentHealthy"], status["desiredHealthy"], status["expectedPods"]) == (3, 2, 3)
    condition = status["conditions"][0]
    del condition["lastTransitionTime"]
    assert condition == {
        "type": "DisruptionAllowed",
        "status": "True",
        "observedGeneration": 1,
        "reason": "SufficientPods",
        "message": "",
    }
    assert (await pods.evict("a")).status == 201
    status = await pods.counted("two", currentHealthy=2, expectedPods=2, disruptionsAllowed=0)
    assert status["conditions"][0]["reason"] == "InsufficientPods" and "disruptedPods" not in status
    cause = "The disruption budget two needs 2 healthy pods and has 2 currently"
    assert refused(await pods.evict("b"), cause)
    assert refused(await pods.evict("b", dryRun="All"), cause)
    assert await pods.is_there("b")
    # The budget judges evictions; a deletion asks nobody.
    assert (await pods.client.delete(f"{pods.pods}/b")).status == 200


async def test_an_evicted_pod_counts_no_more_while_it_goes(pods: Pods, node: str) -> None:
    for name in ("a", "b"):
        await pods.make(name, node=node)
    await pods.budget("one", {"disruptionsAllowed": 1}, minAvailable=1)
    assert (await pods.evict("a")).status == 201
    # It may be counted already, or the eviction itself has taken the one disruption.
    second = await pods.evict("b")
    assert (second.status, second.message) == (429, REFUSED)
    status = await pods.counted("one", currentHealthy=1, disruptionsAllowed=0)
    assert "disruptedPods" not in status and status["expectedPods"] == 2
    # What is going already is not refused.
    assert (await pods.evict("a", {"gracePeriodSeconds": 0})).status == 201
    await pods.client.delete(f"{pods.pods}/b", {"gracePeriodSeconds": 0})


async def test_evictions_at_once_do_not_rest_on_one_number(pods: Pods) -> None:
    for i in range(6):
        await pods.make(f"p{i}")
    await pods.budget("four", {"disruptionsAllowed": 2}, minAvailable=4)
    answers = await asyncio.gather(*(pods.evict(f"p{i}") for i in range(6)))
    assert sorted(answer.status for answer in answers) == [201, 201, 429, 429, 429, 429]
    await pods.counted("four", currentHealthy=4, disruptionsAllowed=0)


async def test_a_pod_under_two_budgets_cannot_be_evicted(pods: Pods) -> None:
    await pods.make("a")
    for name in ("one", "two"):
        await pods.budget(name, {"expectedPods": 1}, minAvailable=0)
    answer = await pods.evict("a")
    assert answer.status == 500
    assert answer.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        "code": 500,
    }


async def test_a_pod_under_two_budgets_is_told_of(pods: Pods) -> None:
    await pods.budget("a", {}, minAvailable=1)
    await pods.budget("b", {}, minAvailable=1)
    await pods.make("p")
    path = f"/api/v1/namespaces/{pods.namespace}/events"

    async def told() -> Any:
        # The controller may have seen the pod before the budgets, and looks again when the pod changes.
        await pods.client.patch(f"{pods.pods}/p", {"metadata": {"annotations": {"looked": str(time.monotonic())}}})
        found = (await pods.client.get(path, fieldSelector="reason=MultiplePodDisruptionBudgets")).body["items"]
        return found and found[0]

    event = await until(told)
    assert (event["type"], event["involvedObject"]["kind"], event["involvedObject"]["name"]) == ("Warning", "Pod", "p")
    assert f'Pod "{pods.namespace}"/"p" matches multiple PodDisruptionBudgets.  Chose ' in event["message"]


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
async def test_pods_that_do_not_run_pass_every_budget(pods: Pods, phase: str) -> None:
    await pods.make("a", phase=phase, ready=False)
    await pods.budget("all", {"disruptionsAllowed": 0}, maxUnavailable=0)
    assert (await pods.evict("a")).status == 201
    assert not await pods.is_there("a")


async def test_pods_that_are_not_ready(pods: Pods) -> None:
    await pods.make("good")
    for name in ("bad", "worse"):
        await pods.make(name, ready=False)
    await pods.budget("one", {"currentHealthy": 1, "disruptionsAllowed": 0}, minAvailable=1)
    assert refused(await pods.evict("good"), "The disruption budget one needs 1 healthy pods and has 1 currently")
    assert (await pods.evict("bad")).status == 201, "the healthy ones suffice"
    path = f"{pods.budgets}/one"
    assert (await pods.client.patch(path, {"spec": {"minAvailable": 3}})).status == 200
    await pods.counted("one", desiredHealthy=3, disruptionsAllowed=0)
    assert refused(await pods.evict("worse"), "The disruption budget one needs 3 healthy pods and has 1 currently")


@pytest.mark.since("1.27", "unhealthyPodEvictionPolicy")
async def test_pods_that_are_not_ready_may_be_let_go(pods: Pods) -> None:
    await pods.make("bad", ready=False)
    await pods.budget("one", {"currentHealthy": 0, "disruptionsAllowed": 0}, minAvailable=3)
    assert refused(await pods.evict("bad"), "The disruption budget one needs 3 healthy pods and has 0 currently")
    policy = {"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}}
    assert (await pods.client.patch(f"{pods.budgets}/one", policy)).status == 200
    await pods.counted("one", desiredHealthy=3)
    assert (await pods.evict("bad")).status == 201


async def scaled(pods: Pods, replicas: int) -> dict[str, Any]:
    """A custom resource with a scale that nothing works on; answers a reference to it."""
    group = f"{unique('g')}.example.com"
    integer = {"type": "object", "properties": {"replicas": {"type": "integer"}}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": integer, "status": integer}}},
        "subresources": {"scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
    }
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"fleets.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "fleets", "kind": "Fleet"},
            "versions": [version],
        },
    }
    made = await pods.client.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    assert made.status == 201, made.body
    fleet = {"apiVersion": f"{group}/v1", "kind": "Fleet", "metadata": {"name": "a"}, "spec": {"replicas": replicas}}
    path = f"/apis/{group}/v1/namespaces/{pods.namespace}/fleets"

    async def created() -> Any:
        answer = await pods.client.post(path, fleet)
        return answer.body if answer.status == 201 else None

    body = await until(created)
    return {"apiVersion": f"{group}/v1", "kind": "Fleet", "name": "a", "uid": body["metadata"]["uid"]}


async def test_percentages_are_of_what_the_controllers_want(pods: Pods) -> None:
    fleet = await scaled(pods, 7)
    for i in range(7):
        await pods.make(f"p{i}", owner=fleet)
    # A real controller learns of a new kind within seconds; until then it cannot count, and looks again with a pod.
    body = {"metadata": {"name": "half"}, "spec": {"selector": {"matchLabels": LABELS}, "minAvailable": "50%"}}
    assert (await pods.client.post(pods.budgets, body)).status == 201
    turn = 0

    async def counted() -> Any:
        nonlocal turn
        turn += 1
        await pods.client.patch(f"{pods.pods}/p0", {"metadata": {"annotations": {"turn": str(turn)}}})
        await asyncio.sleep(0.1)
        status = (await pods.client.get(f"{pods.budgets}/half")).body["status"]
        return status if status["expectedPods"] == 7 else None

    status = await until(counted, 120)
    assert (status["desiredHealthy"], status["disruptionsAllowed"]) == (4, 3), "rounded up"
    await pods.client.delete(f"{pods.budgets}/half")
    status = await pods.budget("some", {"expectedPods": 7, "currentHealthy": 7}, maxUnavailable="30%")
    assert (status["desiredHealthy"], status["disruptionsAllowed"]) == (4, 3), "rounded up as well"
    await pods.client.delete(f"{pods.budgets}/some")
    status = await pods.budget("two", {"expectedPods": 7, "currentHealthy": 7}, maxUnavailable=2)
    assert (status["desiredHealthy"], status["disruptionsAllowed"]) == (5, 2)
    group = fleet["apiVersion"].partition("/")[0]
    await pods.client.delete(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/fleets.{group}")


@pytest.mark.since("1.35", "words")
async def test_pods_of_nobody_and_of_who_has_no_scale(pods: Pods) -> None:
    await pods.make("a")
    status = await pods.budget("most", {"currentHealthy": 1}, maxUnavailable=1)
    assert (status["expectedPods"], status["desiredHealthy"], status["disruptionsAllowed"]) == (0, 0, 0)
    assert refused(await pods.evict("a"), "The disruption budget most does not allow evicting pods currently")
    await pods.client.delete(f"{pods.budgets}/most")
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]}}
    job = {"metadata": {"name": "job"}, "spec": {"managedBy": "example.com/nobody", "template": template}}
    made = await pods.client.post(f"/apis/batch/v1/namespaces/{pods.namespace}/jobs", job)
    uid = made.body["metadata"]["uid"]
    await pods.make("b", owner={"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": uid})
    body = {"metadata": {"name": "share"}, "spec": {"selector": {"matchLabels": LABELS}, "minAvailable": "50%"}}
    assert (await pods.client.post(pods.budgets, body)).status == 201

    async def failed() -> Any:
        status = (await pods.client.get(f"{pods.budgets}/share")).body.get("status") or {}
        return next((item for item in status.get("conditions") or () if item["reason"] == "SyncFailed"), None)

    condition = await until(failed)
    assert (condition["status"], condition["message"]) == (
        "False",
        "jobs.batch does not implement the scale subresource",
    )
    # The budget's generation was never taken in: an eviction may come again, and is told when.
    later = await pods.evict("b")
    assert (later.status, later.message) == (429, REFUSED)
    assert later.body["details"] == {
        "retryAfterSeconds": 10,
        "causes": [
            {
                "reason": "DisruptionBudget",
                "message": "The disruption budget share is still being processed by the server.",
            }
        ],
    }
    assert later.headers["Retry-After"] == "10"


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (
            {"minAvailable": "50"},
            'spec.minAvailable: Invalid value: "50": a valid percent string must be a numeric string followed by an'
            " ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')",
        ),
        ({"minAvailable": "150%"}, 'spec.minAvailable: Invalid value: "150%": must not be greater than 100%'),
        ({"maxUnavailable": -1}, "spec.maxUnavailable: Invalid value: -1: must be greater than or equal to 0"),
        (
            {"minAvailable": 1, "unhealthyPodEvictionPolicy": "Sometimes"},
            'spec.unhealthyPodEvictionPolicy: Unsupported value: "Sometimes": supported values: "AlwaysAllow",'
            ' "IfHealthyBudget"',
        ),
    ],
)
@pytest.mark.since("1.34", "words: values as JSON", only=("spec0", "spec1"))
@pytest.mark.since("1.27", "unhealthyPodEvictionPolicy", only=("spec3",))
async def test_budgets_are_checked(pods: Pods, spec: dict[str, Any], text: str) -> None:
    answer = await pods.client.post(pods.budgets, {"metadata": {"name": "a"}, "spec": spec})
    assert (answer.status, answer.message) == (422, f'PodDisruptionBudget.policy "a" is invalid: {text}')
