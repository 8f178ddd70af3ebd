"""Whatever is sent to the debug flags: an answer that says so, and a bad value changes nothing."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from koord.runtime.pages import Pages
from koord.scheduler.debugging import Debugging
from koord.scheduler.endpoints.flags import MOST_SCORES, Flags
from koord.telemetry import logs
from tests.scheduler.clusters import Bed

BODIES = st.one_of(
    st.binary(max_size=20),
    st.sampled_from([b"0", b"1", b"true", b"F", b"-1", b"+3", b"1001", b"1e3", b" 2\n", b"\xff", b"9" * 5000]),
    st.text(max_size=8).map(str.encode),
)


@settings(max_examples=300, deadline=None)
@given(
    flag=st.sampled_from(["v", "s", "f", "d", "db", "x", ""]),
    method=st.sampled_from(["PUT", "GET", "POST", "HEAD"]),
    body=BODIES,
)
def test_flags_are_never_half_set(flag: str, method: str, body: bytes) -> None:
    debugging = Debugging(Bed().engine, logs.get_logger("koord.test"))
    pages = Pages()
    Flags(pages, debugging)

    def state() -> tuple[object, ...]:
        return debugging.scores, debugging.filters, debugging.diagnosis, debugging.blocking

    before = state()
    try:
        page = asyncio.run(pages.answer(method, f"/debug/flags/{flag}", {}, body))
    finally:
        logs.set_verbosity(0)
    if not flag:
        assert page is None
        return
    assert page is not None
    assert page.status in (200, 400, 404, 406)
    if page.status == 200:
        assert method == "PUT"
        assert page.body.endswith(body.decode().strip().encode())
        assert 0 <= debugging.scores <= MOST_SCORES
    else:
        assert state() == before
        assert len(page.body) < 500
