"""What the embedded server knows of built-in types is what the real server of this release says."""

from typing import Any

import pytest

from tools import schemas


@pytest.mark.since("1.37", "the facts are those of the newest release")
def test_the_facts_are_the_real_servers(control_plane: Any) -> None:
    assert schemas.main(["--kubeconfig", str(control_plane.kubeconfig), "--check"]) == 0
