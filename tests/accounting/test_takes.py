"""Takes of pods and units."""

from hypothesis import given
from hypothesis import strategies as st

from koord.accounting.takes import Take, pod_takes, unit_takes

REQUEST = {"cpu": 2000, "memory": 1 << 30, "nvidia.com/gpu": 0}
ASKED = {"cpu": 2000, "memory": 1 << 30}


def test_a_pod_of_a_unit_takes_its_node_and_its_quota_chain() -> None:
    assert pod_takes(REQUEST, "n1", ("leaf", "top"), unit_owned=True) == (
        Take("node/n1", {**ASKED, "pods": 1}),
        Take("quota/leaf", ASKED),
        Take("quota/top", ASKED),
    )


def test_a_pod_without_a_unit_is_also_counted_as_admitted() -> None:
    takes = pod_takes(REQUEST, "n1", ("leaf", "top"), unit_owned=False, check_parents=False)
    assert takes == (
        Take("node/n1", {**ASKED, "pods": 1}),
        Take("quota/leaf", ASKED),
        Take("quota/top", ASKED, checked=False),
        Take("admitted/leaf", ASKED, checked=False),
        Take("admitted/top", ASKED, checked=False),
    )


def test_a_pod_without_a_quota_takes_its_node_only() -> None:
    assert pod_takes({}, "n1", (), unit_owned=False) == (Take("node/n1", {"pods": 1}),)


def test_a_pod_that_must_not_be_preempted_takes_from_the_guarantee_of_its_leaf() -> None:
    plain = pod_takes(REQUEST, "n1", ("leaf", "top"), unit_owned=True)
    takes = pod_takes(REQUEST, "n1", ("leaf", "top"), unit_owned=True, preemptible=False)
    assert takes == (*plain, Take("guaranteed/leaf", ASKED))
    assert pod_takes({}, "n1", (), unit_owned=True, preemptible=False) == (Take("node/n1", {"pods": 1}),)


def test_a_unit_is_checked_on_every_level() -> None:
    assert unit_takes(REQUEST, ("leaf", "top")) == (Take("admitted/leaf", ASKED), Take("admitted/top", ASKED))


@given(
    st.dictionaries(st.sampled_from(["cpu", "memory", "gpu"]), st.integers(0, 2**50)),
    st.lists(st.sampled_from(["a", "b", "c"]), unique=True).map(tuple),
    st.booleans(),
)
def test_pods_and_units_of_equal_requests_take_equally(
    request: dict[str, int], chain: tuple[str, ...], owned: bool
) -> None:
    def sums(takes: tuple[Take, ...], family: str) -> list[tuple[str, dict[str, int]]]:
        return [(take.item, take.amounts) for take in takes if take.item.startswith(family)]

    takes = pod_takes(request, "n", chain, unit_owned=owned)
    unit = unit_takes(request, chain)
    assert sums(takes, "admitted/") == ([] if owned else sums(unit, "admitted/"))
    assert [amounts for _, amounts in sums(takes, "quota/")] == [amounts for _, amounts in sums(unit, "admitted/")]
    assert all(amount > 0 for take in takes for amount in take.amounts.values())
