"""Server-side apply of pods and sub-resources, and by kubectl."""

from tests.conformance.client import APPLY, MERGE, Client
from tests.conformance.rig import Kubectl, pod, unique
from tests.conformance.test_apply import Object, owners

# --- pods, sub-resources


async def test_a_pod_belongs_to_its_maker_but_for_what_the_server_adds(client: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    dry = await client.post(path, pod("p"), fieldManager="maker", dryRun="All")
    made = await client.post(path, pod("p"), fieldManager="maker")
    assert owners(dry.body) == owners(made.body)
    spec = {
        "f:automountServiceAccountToken",
        "f:containers",
        "f:dnsPolicy",
        "f:enableServiceLinks",
        "f:restartPolicy",
        "f:schedulerName",
        "f:securityContext",
        "f:terminationGracePeriodSeconds",
    }
    assert set(owners(made.body)["maker", "Update", ""]["f:spec"]) == spec
    answer = await client.patch(f"{path}/p/status", {"status": {"message": "m"}}, MERGE, fieldManager="kubelet")
    assert owners(answer.body)["kubelet", "Update", "status"] == {"f:status": {"f:message": {}}}
    assert set(owners(answer.body)["maker", "Update", ""]["f:spec"]) == spec
    config = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    containers = [{"name": "main", "image": "other"}]
    refused = await client.patch(f"{path}/p", {**config, "spec": {"containers": containers}}, APPLY, fieldManager="m")
    assert refused.status == 409
    assert refused.message.endswith('conflict with "maker" using v1: .spec.containers[name="main"].image')


async def test_ports_are_told_apart_by_number_and_protocol(client: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods/p"

    def config(*ports: Object) -> Object:
        spec = pod("p")["spec"]
        spec["containers"][0]["ports"] = list(ports)
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}

    tcp, udp = {"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}
    twice = await client.patch(path, config(tcp, {**tcp, "protocol": "TCP"}), APPLY, fieldManager="m")
    assert twice.status == 500
    assert twice.message == (
        "failed to create typed patch object (/p; /v1, Kind=Pod):"
        ' .spec.containers[name="main"].ports: duplicate entries for key [containerPort=80,protocol="TCP"]'
    )
    made = await client.patch(path, config(tcp, udp), APPLY, fieldManager="m")
    assert made.status == 201
    assert made.body["spec"]["containers"][0]["ports"] == [{**tcp, "protocol": "TCP"}, udp]
    containers = owners(made.body)["m", "Apply", ""]["f:spec"]["f:containers"]
    assert containers['k:{"name":"main"}']["f:ports"] == {
        'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}},
        'k:{"containerPort":80,"protocol":"UDP"}': {".": {}, "f:containerPort": {}, "f:protocol": {}},
    }


async def test_status_is_applied_apart(client: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    await client.post(path, pod("p"), fieldManager="maker")
    config = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    both = {**config, "spec": {"nodeName": "n"}, "status": {"message": "hi"}}
    answer = await client.patch(f"{path}/p/status", both, APPLY, fieldManager="m")
    assert answer.status == 200
    assert answer.body["status"]["message"] == "hi"
    assert "nodeName" not in answer.body["spec"]
    assert owners(answer.body)["m", "Apply", "status"] == {"f:status": {"f:message": {}}}
    gone = await client.patch(f"{path}/p/status", {**config, "status": {}}, APPLY, fieldManager="m")
    assert "message" not in gone.body["status"]


async def test_scale_is_a_manager_of_its_own(client: Client, namespace: str) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/replicasets"
    labels = {"a": unique()}
    template = {"metadata": {"labels": labels}, "spec": pod("p")["spec"]}
    body = {
        "metadata": {"name": "r"},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
    }
    made = await client.post(path, body, fieldManager="maker")
    assert made.status == 201, made.body
    await client.patch(f"{path}/r/scale", {"spec": {"replicas": 1}}, MERGE, fieldManager="scaler")
    obj = (await client.get(f"{path}/r")).body
    assert owners(obj)["scaler", "Update", "scale"] == {"f:spec": {"f:replicas": {}}}
    assert "f:replicas" not in owners(obj)["maker", "Update", ""]["f:spec"]
    config = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "r"}, "spec": {"replicas": 0}}
    refused = await client.patch(f"{path}/r/scale", config, APPLY, fieldManager="m")
    assert refused.status == 409
    assert refused.body["details"]["causes"] == [
        {
            "reason": "FieldManagerConflict",
            "message": 'conflict with "scaler" with subresource "scale" using autoscaling/v1',
            "field": ".spec.replicas",
        }
    ]
    forced = await client.patch(f"{path}/r/scale", config, APPLY, fieldManager="m", force="true")
    assert (forced.status, forced.body["kind"], forced.body["spec"]) == (200, "Scale", {})
    obj = (await client.get(f"{path}/r")).body
    assert owners(obj)["m", "Apply", "scale"] == {"f:spec": {"f:replicas": {}}}


# --- kubectl

MANIFEST = """
apiVersion: v1
kind: ConfigMap
metadata: {name: c}
data: {x: "1"}
"""


def test_kubectl_apply_server_side(kubectl: Kubectl) -> None:
    assert kubectl("apply", "--server-side", "-f", "-", stdin=MANIFEST).stdout == "configmap/c serverside-applied\n"
    kubectl("label", "configmap", "c", "l=1")
    changed = MANIFEST.replace('"1"', '"2"')
    other = ("apply", "--server-side", "--field-manager=other", "-f", "-")
    refused = kubectl(*other, stdin=changed, check=False)
    assert refused.returncode == 1
    assert 'conflict with "kubectl": .data.x' in refused.stderr
    kubectl(*other, "--force-conflicts", stdin=changed)
    assert kubectl("get", "configmap", "c", "-o", "jsonpath={.data.x} {.metadata.labels.l}").stdout == "2 1"
    shown = kubectl(
        "get", "configmap", "c", "--show-managed-fields", "-o", "jsonpath={.metadata.managedFields[*].manager}"
    )
    assert shown.stdout.split() == ["other", "kubectl-label"]


def test_kubectl_goes_over_from_client_side_apply(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=MANIFEST)
    both = MANIFEST.replace('{x: "1"}', '{x: "2", w: "1"}')
    kubectl("apply", "--server-side", "-f", "-", stdin=both)
    managers = "jsonpath={range .metadata.managedFields[*]}{.manager}/{.operation} {end}"
    shown = kubectl("get", "configmap", "c", "--show-managed-fields", "-o", managers).stdout.split()
    assert sorted(shown) == ["kubectl-last-applied/Apply", "kubectl/Apply"]
    last = kubectl("apply", "view-last-applied", "configmap/c", "-o", "json").stdout
    assert '"x": "2"' in last
    # What is left out now goes, as it is kubectl's alone.
    kubectl("apply", "--server-side", "-f", "-", stdin=MANIFEST.replace('{x: "1"}', '{w: "1"}'))
    assert kubectl("get", "configmap", "c", "-o", "jsonpath={.data}").stdout == '{"w":"1"}'


def test_kubectl_diff(kubectl: Kubectl) -> None:
    kubectl("apply", "--server-side", "-f", "-", stdin=MANIFEST)
    same = kubectl("diff", "--server-side", "-f", "-", stdin=MANIFEST)
    assert same.stdout == ""
    changed = kubectl("diff", "--server-side", "-f", "-", stdin=MANIFEST.replace('"1"', '"2"'), check=False)
    assert changed.returncode == 1
    assert '-  x: "1"\n+  x: "2"' in changed.stdout
