"""The component that has the API server ask about Bindings of others: its settings, its rights and its port agree."""

from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]

from koord.gateway.service import SPEC
from koord.gateway.settings import GatewaySettings
from koord.gateway.webhookserver import NAME
from koord.runtime.settings import load_service
from tests.deploy.manifests import ROOT, Manifests, container, dev, settings_file, variables
from tests.deploy.test_rights import WEBHOOKS, granted

ROLE = "koord-gateway-foreign-bindings"


def both() -> Manifests:
    """The dev overlay with this component, and after it that of NATS' users."""
    return Manifests(ROOT / "tests" / "deploy" / "with_foreign_bindings")


def test_every_object_is_valid_and_has_its_place() -> None:
    known = {(one["kind"], one["metadata"]["name"]) for one in dev().objects}
    added = [one for one in both().objects if (one["kind"], one["metadata"]["name"]) not in known]
    kinds = sorted(one["kind"] for one in added if one["kind"] != "ConfigMap")
    assert kinds == ["ClusterRole", "ClusterRoleBinding", "NetworkPolicy"]
    for one in added:
        kubernetes_validate.validate(one, "1.37", strict=True)
        assert one["metadata"]["labels"]["app.kubernetes.io/part-of"] == "koord"
        assert one["metadata"].get("namespace", "") == ("" if "Cluster" in one["kind"] else "koord-system")


def test_the_gateway_listens_at_its_pods_address_where_the_policy_lets_in() -> None:
    manifests = both()
    workload = manifests.one("Deployment", "koord-gateway")
    environment = variables(manifests, workload)
    [host] = [each for each in container(workload)["env"] if each["name"] == "KOORD_GATEWAY__WEBHOOK_HOST"]
    assert host["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    # The kubelet's work.
    environment |= {host["name"]: "10.1.2.3"}
    _, settings = load_service(SPEC, file=settings_file(manifests, workload), env=environment)
    assert isinstance(settings, GatewaySettings)
    assert (settings.foreign_bindings, settings.webhook_host) == ("claim", "10.1.2.3")
    ports = {port["name"]: port["containerPort"] for port in container(workload)["ports"]}
    assert settings.webhook_port == ports["webhook"] != ports["http"]
    policy: dict[str, Any] = manifests.one("NetworkPolicy", "koord-gateway-webhook")["spec"]
    assert policy["podSelector"] == workload["spec"]["selector"]
    assert policy["ingress"] == [{"ports": [{"protocol": "TCP", "port": settings.webhook_port}]}]


def test_neither_component_undoes_the_other() -> None:
    names = [variable["name"] for variable in container(both().one("Deployment", "koord-gateway"))["env"]]
    assert {"KOORD_GATEWAY__FOREIGN_BINDINGS", "KOORD_NATS__URL"} <= set(names)
    assert names.index("NATS_PASSWORD") < names.index("KOORD_NATS__URL"), "it is put into the other"


def test_rights_are_those_to_register() -> None:
    role = both().one("ClusterRole", ROLE)
    assert granted(role) == {WEBHOOKS: {"create", "get", "patch"}}
    assert [rule["resourceNames"] for rule in role["rules"] if rule["verbs"] != ["create"]] == [[NAME]]
    binding = both().one("ClusterRoleBinding", ROLE)
    assert binding["roleRef"]["name"] == ROLE
    assert binding["subjects"] == both().one("ClusterRoleBinding", "koord-gateway")["subjects"]
