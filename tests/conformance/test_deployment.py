"""``deploy/kustomize`` applies, and a second time changes nothing: client-side, server-side, and by kubectl's diff."""

from collections.abc import Iterator

import pytest
import yaml

from tests.conformance.rig import Kubectl
from tests.deploy.manifests import KUSTOMIZE, Manifests

KEPT = {"Namespace", "CustomResourceDefinition"}
"""What other tests use, too, or what takes its time to be gone."""


@pytest.fixture
def removed(kubectl: Kubectl, overlay: str) -> Iterator[Manifests]:
    """The objects of the deployment, removed in the end."""
    manifests = Manifests(KUSTOMIZE / overlay)
    yield manifests
    rest = [one for one in manifests.objects if one["kind"] not in KEPT]
    gone = ("delete", "--ignore-not-found", "--wait=false", "-n", "koord-system")
    kubectl(*gone, "-f", "-", stdin=yaml.safe_dump_all(rest))
    kubectl("delete", "--wait=false", "-n", "koord-system", "pvc", "--all")


@pytest.mark.parametrize("overlay", ["base"])
def test_applied_twice_it_is_unchanged(kubectl: Kubectl, overlay: str, removed: Manifests) -> None:
    def apply(*options: str) -> dict[str, str]:
        # Not in the test's namespace: the objects name theirs.
        said = kubectl("apply", "-n", "koord-system", "-k", str(KUSTOMIZE / overlay), "--validate=strict", *options)
        return {line.rpartition(" ")[0]: line.rpartition(" ")[2] for line in said.stdout.splitlines()}

    assert len(apply()) == len(removed.objects)
    changed = {name for name, what in apply().items() if what != "unchanged"}
    # kubectl sends the selector of a budget in any case, as it is merged as a whole, and, to servers that complete
    # them (as 1.30), the claim templates of a StatefulSet.
    assert {name.partition("/")[0] for name in changed} <= {"poddisruptionbudget.policy", "statefulset.apps"}
    assert kubectl("diff", "-n", "koord-system", "-k", str(KUSTOMIZE / overlay)).stdout == ""
    there = kubectl("get", "-n", "koord-system", "-k", str(KUSTOMIZE / overlay), "-o", "name").stdout.splitlines()
    assert len(there) == len(removed.objects)


@pytest.mark.parametrize("overlay", ["overlays/dev"])
def test_applied_by_the_server_it_is_unchanged(kubectl: Kubectl, overlay: str, removed: Manifests) -> None:
    options = ("-n", "koord-system", "-k", str(KUSTOMIZE / overlay), "--server-side")
    for _ in range(2):
        done = kubectl("apply", *options, "--validate=strict")
        assert done.stderr == ""
        assert len(done.stdout.splitlines()) == len(removed.objects)
    assert kubectl("diff", *options).stdout == ""
