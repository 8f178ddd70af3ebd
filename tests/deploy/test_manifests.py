"""The manifests: complete, safe by the restricted standard, and with settings that the services take."""

import tomllib
from importlib.metadata import entry_points
from typing import Any
from urllib.parse import urlsplit

import kubernetes_validate  # type: ignore[import-untyped]
import pytest

from koord.kube import crds
from koord.kube.resources import WATCHED
from koord.runtime.service import ServiceSpec
from koord.runtime.settings import SettingsError, load_service
from koord.telemetry.export import endpoint_configured
from tests.deploy.manifests import (
    ROOT,
    Manifest,
    Manifests,
    base,
    container,
    dev,
    settings_file,
    variables,
)

SPECS: dict[str, ServiceSpec] = {point.name: point.load() for point in entry_points(group="koord.services")}
SERVICES = sorted(SPECS)
NAMESPACE = "koord-system"
CLUSTER_SCOPED = {"Namespace", "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding"}
BOTH = pytest.mark.parametrize("manifests", [base(), dev()], ids=["base", "dev"])
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


@BOTH
def test_every_object_is_valid_and_has_its_place(manifests: Manifests) -> None:
    for one in manifests.objects:
        kubernetes_validate.validate(one, "1.37", strict=True)
        assert one["metadata"]["labels"]["app.kubernetes.io/part-of"] == "koord"
        if one["kind"] in CLUSTER_SCOPED:
            assert "namespace" not in one["metadata"]
        else:
            assert one["metadata"]["namespace"] == NAMESPACE
        if one["kind"] != "CustomResourceDefinition":
            assert one["metadata"]["name"].startswith("koord-")


@BOTH
def test_every_service_has_all_it_needs(manifests: Manifests) -> None:
    names = {f"koord-{service}" for service in SERVICES}
    assert set(manifests.of("Deployment")) == names
    assert set(manifests.of("PodDisruptionBudget")) == names
    stores = {"koord-nats", "koord-redis"}
    assert set(manifests.of("StatefulSet")) == stores
    assert set(manifests.of("Service")) == set(manifests.of("ServiceAccount")) == names | stores
    for name, workload in manifests.workloads.items():
        labels = workload["spec"]["template"]["metadata"]["labels"]
        chosen = manifests.one("Service", name)["spec"]["selector"]
        assert workload["spec"]["selector"]["matchLabels"] == chosen == {"app.kubernetes.io/name": name}
        assert chosen.items() <= labels.items()
        if name in names:
            budget = manifests.one("PodDisruptionBudget", name)["spec"]
            assert budget == {"maxUnavailable": 1, "selector": {"matchLabels": chosen}}
            [spread] = workload["spec"]["template"]["spec"]["topologySpreadConstraints"]
            assert spread["labelSelector"]["matchLabels"] == chosen


def test_koords_own_definitions_are_installed_and_no_operators() -> None:
    """The stand-ins of the job kinds must not be put over what an operator brought."""
    operators = {"kubeflow.org", "ray.io"}
    own = {one["metadata"]["name"] for one in crds.load() if one["spec"]["group"] not in operators}
    assert set(base().of("CustomResourceDefinition")) == own
    custom = {f"{resource.plural}.{resource.group}" for resource in WATCHED if resource.group not in operators}
    assert own <= custom


@BOTH
def test_pods_are_restricted(manifests: Manifests) -> None:
    labels = manifests.one("Namespace", NAMESPACE)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    for workload in manifests.workloads.values():
        pod, one = workload["spec"]["template"]["spec"], container(workload)
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] > 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert one["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert one["resources"]["requests"].keys() == {"cpu", "memory"}
        assert "memory" in one["resources"]["limits"]
        assert one["livenessProbe"] and one["readinessProbe"]
        # Whatever is mounted is there, and only what is there to be written can be.
        volumes = {volume["name"]: volume for volume in pod.get("volumes", [])}
        volumes |= {claim["metadata"]["name"]: claim for claim in workload["spec"].get("volumeClaimTemplates", [])}
        for mount in one["volumeMounts"]:
            assert mount.get("readOnly", False) is ("configMap" in volumes[mount["name"]])


@BOTH
def test_only_the_gateway_has_credentials(manifests: Manifests) -> None:
    for name, workload in manifests.workloads.items():
        may = name == "koord-gateway"
        pod = workload["spec"]["template"]["spec"]
        assert pod["serviceAccountName"] == name
        assert pod["automountServiceAccountToken"] is may
        assert manifests.one("ServiceAccount", name)["automountServiceAccountToken"] is may
    subject = [{"kind": "ServiceAccount", "name": "koord-gateway", "namespace": NAMESPACE}]
    for kind, role in (("ClusterRoleBinding", "ClusterRole"), ("RoleBinding", "Role")):
        assert set(manifests.of(kind)) == set(manifests.of(role)) == {"koord-gateway"}
        binding = manifests.one(kind, "koord-gateway")
        assert binding["subjects"] == subject
        assert binding["roleRef"] == {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": role,
            "name": "koord-gateway",
        }


@BOTH
@pytest.mark.parametrize("service", SERVICES)
def test_settings_are_taken_and_lead_to_the_stores(
    manifests: Manifests, service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = manifests.one("Deployment", f"koord-{service}")
    one = container(workload)
    assert one["args"][:2] == ["run", service]
    environment = variables(manifests, workload)
    common, _ = load_service(SPECS[service], file=settings_file(manifests, workload), env=environment)
    for url, store in ((common.nats.url, "koord-nats"), (common.redis.url, "koord-redis")):
        address = urlsplit(url)
        assert address.hostname == store
        [port] = [port for port in manifests.one("Service", store)["spec"]["ports"] if port["port"] == address.port]
        ports = {port["name"]: port for port in container(manifests.one("StatefulSet", store))["ports"]}
        assert ports[port["targetPort"]]["containerPort"] == address.port
    assert common.log.format == "json"
    assert common.kubeconfig == ""
    # Where the probes and the Service look.
    assert (common.http.host, common.http.port) == ("0.0.0.0", one["ports"][0]["containerPort"])
    assert one["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": one["ports"][0]["name"]}
    assert one["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": one["ports"][0]["name"]}
    assert common.drain_s < workload["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    # Traces go nowhere until an overlay says where.
    for name in ("OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (environment | {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}).items():
        monkeypatch.setenv(name, value)
    assert not endpoint_configured()
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    assert endpoint_configured()


@BOTH
def test_service_links_do_not_become_settings(manifests: Manifests) -> None:
    with pytest.raises(SettingsError, match="nats_port"):
        load_service(SPECS["queue"], env={"KOORD_NATS_PORT": "tcp://10.0.0.1:4222"})
    for workload in manifests.workloads.values():
        assert workload["spec"]["template"]["spec"]["enableServiceLinks"] is False


@BOTH
def test_images(manifests: Manifests) -> None:
    tag = "dev" if manifests.one("Deployment", "koord-queue")["spec"]["replicas"] == 1 else VERSION
    for service in SERVICES:
        assert container(manifests.one("Deployment", f"koord-{service}"))["image"] == f"koord-{service}:{tag}"


def test_dev_is_the_base_with_one_of_each() -> None:
    whole, small = base(), dev()
    for kind in {one["kind"] for one in whole.objects}:
        assert whole.of(kind).keys() == small.of(kind).keys()
    for name, workload in whole.of("Deployment").items():
        assert workload["spec"]["replicas"] == 2
        assert small.one("Deployment", name)["spec"]["replicas"] == 1


def _allows(policies: dict[str, Manifest], side: str, labels: dict[str, str], other: dict[str, str], port: int) -> bool:
    """Whether a policy that selects pods with ``labels`` lets them reach (or be reached by) ``other`` pods here."""

    def matches(selector: dict[str, Any], whom: dict[str, str]) -> bool:
        return bool(selector.get("matchLabels", {}).items() <= whom.items())

    peers = "to" if side == "egress" else "from"
    for policy in policies.values():
        if not matches(policy["spec"]["podSelector"], labels):
            continue
        for rule in policy["spec"].get(side, []):
            open_ports = {one["port"] for one in rule.get("ports", [])}
            whom = rule.get(peers)
            reached = whom is None or any(
                "namespaceSelector" in one or matches(one["podSelector"], other) for one in whom
            )
            if reached and (not open_ports or port in open_ports):
                return True
    return False


def test_network_policies_let_through_what_is_needed_and_no_more() -> None:
    manifests = base()
    policies = manifests.of("NetworkPolicy")
    deny = policies["koord-default"]["spec"]
    assert deny["podSelector"] == {}
    assert set(deny["policyTypes"]) == {"Ingress", "Egress"}
    assert "ingress" not in deny
    labels = {name: one["spec"]["template"]["metadata"]["labels"] for name, one in manifests.workloads.items()}
    stranger = {"app": "other"}

    def reaches(source: str, target: str, port: int) -> bool:
        return _allows(policies, "egress", labels[source], labels[target], port) and _allows(
            policies, "ingress", labels[target], labels[source], port
        )

    for service in SERVICES:
        assert reaches(f"koord-{service}", "koord-nats", 4222)
        assert reaches(f"koord-{service}", "koord-redis", 6379)
        assert not reaches(f"koord-{service}", "koord-nats", 8222)
        assert not reaches("koord-nats", f"koord-{service}", 8080)
        assert _allows(policies, "egress", labels[f"koord-{service}"], stranger, 4318)
        assert _allows(policies, "egress", labels[f"koord-{service}"], stranger, 53)
        assert _allows(policies, "egress", labels[f"koord-{service}"], stranger, 6443) is (service == "gateway")
    for store, port in (("koord-nats", 4222), ("koord-redis", 6379)):
        assert not _allows(policies, "ingress", labels[store], stranger, port)
        assert not _allows(policies, "egress", labels[store], stranger, 443)
