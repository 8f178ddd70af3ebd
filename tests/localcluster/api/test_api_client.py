"""The official asyncio client against the server: what the gateway and users' programs send."""

from typing import Any

from kubernetes_asyncio import client as kube
from kubernetes_asyncio import config, watch

from tests.localcluster.api.rig import Server, pod


async def test_the_asyncio_client_lists_watches_binds_and_patches(server: Server, namespace: str) -> None:
    configuration = kube.Configuration()
    await config.load_kube_config(server.ready["kubeconfig"], client_configuration=configuration)
    async with kube.ApiClient(configuration) as session:
        core = kube.CoreV1Api(session)
        version = (await core.list_namespaced_pod(namespace)).metadata.resource_version
        body: Any = pod("a")
        await core.create_namespaced_pod(namespace, body)
        # No metadata at all, and an answer that is a Status, not a Binding.
        binding = kube.V1Binding(target=kube.V1ObjectReference(kind="Node", name="n1"))
        await core.create_namespaced_pod_binding("a", namespace, binding, _preload_content=False)
        status: Any = {"status": {"phase": "Running"}}
        patched = await core.patch_namespaced_pod_status("a", namespace, status)
        assert (patched.spec.node_name, patched.status.phase) == ("n1", "Running")
        await core.delete_namespaced_pod("a", namespace)

        seen: list[tuple[str, str]] = []
        async with watch.Watch() as watcher:
            events: Any = watcher.stream(
                core.list_namespaced_pod, namespace, resource_version=version, timeout_seconds=20
            )
            async for event in events:
                seen.append((event["type"], event["object"].status.phase))
                if event["type"] == "DELETED":
                    break
        assert seen == [("ADDED", "Pending"), ("MODIFIED", "Pending"), ("MODIFIED", "Running"), ("DELETED", "Running")]

        custom = kube.CustomObjectsApi(session)
        where = ("scheduling.sigs.k8s.io", "v1alpha1", namespace, "elasticquotas")
        quota = {
            "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
            "kind": "ElasticQuota",
            "metadata": {"name": "q"},
            "spec": {"max": {"cpu": "4"}},
        }
        await custom.create_namespaced_custom_object(*where, quota)
        listed = await custom.list_namespaced_custom_object(*where)
        assert [item["metadata"]["name"] for item in listed["items"]] == ["q"]
        lease = kube.V1Lease(metadata=kube.V1ObjectMeta(name="l"), spec=kube.V1LeaseSpec(holder_identity="me"))
        coordination = kube.CoordinationV1Api(session)
        created = await coordination.create_namespaced_lease(namespace, lease)
        created.spec.holder_identity = "you"
        replaced = await coordination.replace_namespaced_lease("l", namespace, created)
        assert replaced.spec.holder_identity == "you"
