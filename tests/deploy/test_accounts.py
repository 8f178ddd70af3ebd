"""Users of NATS by service: nobody publishes in another's name, and without a name nobody publishes at all."""

from collections.abc import AsyncIterator

import nats
import nats.errors
import pytest

from koord.contracts.subjects import Subjects
from koord.gateway.allow import ALLOWED
from koord.gateway.session import CONSUMER
from koord.runtime.settings import load_service
from tests.deploy.manifests import settings_file, variables
from tests.deploy.natsaccounts import NatsWithAccounts, passwords, with_accounts
from tests.deploy.test_manifests import SERVICES, SPECS

SUBJECTS = Subjects("koord")
NOT_YET = ("manager",)
"""Services whose decisions the gateway takes and that do not exist: nobody publishes in their name."""


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[NatsWithAccounts]:
    made = NatsWithAccounts.prepared(monkeypatch)
    await made.start()
    yield made
    await made.stop()


def may_publish() -> dict[str, set[str]]:
    """Subjects by who alone may publish there."""
    live = SUBJECTS.live_of
    made: dict[str, set[str]] = {}
    for service in (*SERVICES, *NOT_YET):
        decision = SUBJECTS.decision(service, "event")
        made[service] = {decision, live(decision)}
    for service, kind in ALLOWED:
        made[service] |= {SUBJECTS.decision(service, kind)}
    state = SUBJECTS.state("pods_core", "default", "a")
    made["gateway"] |= {state, live(state), SUBJECTS.result("queue", "1")}
    runtime = SUBJECTS.quota_runtime("_")
    made["quota"] |= {runtime, live(runtime)}
    return made


async def refused(url: str, subjects: set[str]) -> set[str]:
    """On which of them the server lets this user not publish."""
    said: list[str] = []

    async def note(error: Exception) -> None:
        said.append(str(error).lower())

    client = await nats.connect(url, error_cb=note, allow_reconnect=False)
    try:
        last = client.new_inbox()
        heard = await client.subscribe(last)
        for subject in [*subjects, last]:
            await client.publish(subject, b"")
        # What is refused is told in order: before this.
        await heard.next_msg(30)
    finally:
        await client.close()
    assert all("permissions violation" in each for each in said)
    # The client tells it in lower case.
    return {subject for subject in subjects if any(f'"{subject.lower()}"' in each for each in said)}


async def test_nobody_publishes_in_anothers_name(server: NatsWithAccounts) -> None:
    everything = set().union(*may_publish().values())
    hints = {SUBJECTS.ledger("claim.held"), SUBJECTS.ask("gateway", "settle"), "$JS.API.INFO", "_INBOX.a.b"}
    for service in SERVICES:
        assert await refused(server.url_of(service), everything | hints) == everything - may_publish()[service]


async def test_no_streams_are_taken_away_and_no_decisions(server: NatsWithAccounts) -> None:
    decisions = SUBJECTS.decisions_stream
    harm = {
        f"$JS.API.STREAM.DELETE.{SUBJECTS.state_stream}",
        f"$JS.API.STREAM.PURGE.{decisions}",
        f"$JS.API.CONSUMER.DELETE.{decisions}.{CONSUMER}",
        f"$JS.API.CONSUMER.MSG.NEXT.{decisions}.{CONSUMER}",
    }
    for service in SERVICES:
        assert await refused(server.url_of(service), harm) == (set() if service == "gateway" else harm)


async def test_who_has_no_name_is_not_let_in(server: NatsWithAccounts) -> None:
    for url in (server.url, server.url_of("queue").replace("secret-of-queue", "guessed")):
        with pytest.raises(nats.errors.Error, match=r"(?i)authorization"):
            await nats.connect(url, allow_reconnect=False, max_reconnect_attempts=0)


@pytest.mark.parametrize("service", SERVICES)
def test_settings_are_taken(service: str) -> None:
    manifests = with_accounts()
    workload = manifests.one("Deployment", f"koord-{service}")
    environment = {
        name: value.replace("$(NATS_PASSWORD)", passwords()[service])
        for name, value in variables(manifests, workload).items()
    }
    common, _ = load_service(SPECS[service], file=settings_file(manifests, workload), env=environment)
    assert common.nats.url == f"nats://koord-{service}:{passwords()[service]}@koord-nats:4222"
    # The password comes before the address that it is put into: only then it is.
    names = [variable["name"] for variable in workload["spec"]["template"]["spec"]["containers"][0]["env"]]
    assert names.index("NATS_PASSWORD") < names.index("KOORD_NATS__URL")
