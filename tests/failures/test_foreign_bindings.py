"""A Binding of another scheduler was allowed, and then something fails: who gives its room back, and when."""

import json

import msgspec

from koord.gateway.settling import SETTLED
from koord.localcluster.clusterapi import Object
from tests.failures.bed import NAMESPACE, Bed, until


async def ask(bed: Bed, pod: Object, node: str) -> bool:
    """The answer to the API server's question, required; asked again until the gateway leads."""
    meta = pod["metadata"]
    binding = {"metadata": {"name": meta["name"]}, "target": {"name": node}}
    request = {"uid": "r", "name": meta["name"], "namespace": NAMESPACE, "object": binding}
    answers: list[dict[str, object]] = []

    async def judged() -> bool:
        assert bed.foreign is not None
        answer = await bed.foreign.answer(json.dumps({"request": request}).encode(), required=True)
        answers.append(json.loads(answer)["response"])
        return "cannot say" not in json.dumps(answers[-1])

    await until(judged, "the Binding is judged")
    return bool(answers[-1]["allowed"])


async def test_what_is_not_bound_after_all_is_given_back(bed: Bed) -> None:
    """Another webhook refused it, or its sender died: nobody tells koord. No version fences it, so it is outlived."""
    await bed.kill("gateway")
    bed.settings = msgspec.structs.replace(bed.settings, api_timeout_s=1.0)
    await bed.start("gateway")
    pod = await bed.pod("theirs", scheduler="other")
    assert await ask(bed, pod, "n1")
    await bed.amounts_become("n1", 0, 0)
    assert SETTLED in (await bed.api.get("pods", NAMESPACE, "theirs"))["metadata"]["annotations"]
    assert await ask(bed, pod, "n2")


async def test_it_is_bound_under_the_next_gateway(bed: Bed) -> None:
    pod = await bed.pod("theirs", scheduler="other")
    assert await ask(bed, pod, "n1")
    await bed.kill("gateway")
    await bed.bind_foreign("theirs", "n1")
    await bed.start("gateway")
    await bed.amounts_become("n1", 1000, 0)


async def test_it_is_bound_elsewhere(bed: Bed) -> None:
    pod = await bed.pod("theirs", scheduler="other")
    assert await ask(bed, pod, "n1")
    await bed.bind_foreign("theirs", "n2")
    await bed.amounts_become("n1", 0, 0)
    await bed.amounts_become("n2", 1000, 0)
