"""What is stored of what was sent, for the built-in kinds: every default, and amounts in canonical form."""

import pytest

from tests.conformance.client import Client
from tests.conformance.stored import comparable, path_of, placed, sent, stored

STORED = stored()


def test_every_object_has_its_answer() -> None:
    assert sent().keys() == STORED.keys()


@pytest.mark.parametrize("name", sorted(STORED))
@pytest.mark.since("1.34", "pods have a generation", only=("pod-",))
@pytest.mark.since("1.37", "claim templates are stored as they were sent", only=("statefulset",))
@pytest.mark.since("1.30", "newer defaults", only=("deployment-recreate", "-job", "-policy"))
async def test_an_object_is_stored_as_expected(client: Client, namespace: str, name: str) -> None:
    obj = placed(sent()[name], namespace)
    made = await client.post(path_of(obj, namespace), obj)
    assert made.status == 201, made.body
    assert comparable(made.body, namespace) == STORED[name]
