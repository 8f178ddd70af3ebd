"""The gateway as a service: credentials, connections, terms of leadership one after the other."""

import asyncio
import random

import aiohttp

from koord.bus.livedecisions import LiveDecisions
from koord.bus.replicas import watch_replicas
from koord.gateway import metrics
from koord.gateway.access import AccessError, ApiAccess
from koord.gateway.api import Api
from koord.gateway.election import LeaseElection
from koord.gateway.following import Following
from koord.gateway.foreign import ForeignBindings
from koord.gateway.guarantees import Guarantees
from koord.gateway.kubeconfig import load_access
from koord.gateway.leanclient import LeanClient
from koord.gateway.probing import watch
from koord.gateway.reflector import Reflector
from koord.gateway.session import Session
from koord.gateway.settings import GatewaySettings
from koord.gateway.webhookserver import WebhookServer, check_reachable, withdraw_leftover
from koord.runtime.ending import end
from koord.runtime.host import Host
from koord.runtime.service import ServiceSpec

_RENEW_CREDENTIALS_S = 60.0
_AT_ONCE_S = 0.3
"""Who leads within this long need not begin as a standby."""


class Gateway:
    """Leads, or stands by with everything known until it can. A standby is ready once it is warm."""

    def __init__(self, host: Host, settings: GatewaySettings) -> None:
        self._host = host
        self._settings = settings
        self._lead: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._foreign: ForeignBindings | None = None
        host.ready.require("api", *(resource.token for resource in settings.watched))

    async def start(self) -> None:
        """Load the credentials and begin to stand for election. AccessError if the kubeconfig cannot be used."""
        access = await load_access(self._host.common.kubeconfig)
        if self._settings.foreign_bindings != "observe":
            check_reachable(self._settings.webhook_host, access)
        self._lead = self._host.spawn(self._run(access), "lead")

    async def drain(self) -> None:
        """Finish what runs, give back what waits, leave the Lease."""
        self._stopping.set()
        if self._lead is not None:
            await asyncio.gather(self._lead, return_exceptions=True)

    async def _run(self, access: ApiAccess) -> None:
        settings = self._settings
        client = LeanClient(access, connections=settings.connections, timeout_s=settings.request_timeout_s)
        api = Api(client, access)
        # The Lease has connections of its own: it must be renewed however many writes wait. One that says nothing any
        # more (its server is off the network) is given up while there is time for a second.
        lease_client = LeanClient(access, connections=1, timeout_s=settings.lease_duration_s / 2)
        election = LeaseElection(
            Api(lease_client, access),
            self._host.incarnation,
            namespace=settings.lease_namespace,
            name=settings.lease_name,
            duration_s=settings.lease_duration_s,
            renew_s=settings.lease_renew_s,
            is_dead=self._host.life.is_dead,
            on_standby=lambda: self._host.ready.open("api"),
        )
        self._host.role("gateway", lambda: election.held)
        renewing = asyncio.create_task(self._renew(access), name="gateway-credentials")
        connector = aiohttp.TCPConnector(ssl=access.ssl if access.ssl is not None else False, limit=0)
        timeout = aiohttp.ClientTimeout(total=120.0, sock_connect=10.0)
        stopping = asyncio.create_task(self._stopping.wait(), name="gateway-stopping")
        guarantees = Guarantees(settings.api_timeout_s, is_dead=self._host.life.is_dead)
        probing = asyncio.create_task(watch(api, settings.lease_namespace, guarantees), name="gateway-probe")
        live = LiveDecisions(self._host.bus)
        try:
            async with aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=True) as http:
                following = Following(
                    self._host.bus,
                    access,
                    http,
                    resources=settings.watched,
                    on_state=self._on_state,
                    may_publish=lambda: election.held,
                )
                host = self._host
                hooks = await self._hooks(api)
                session = Session(
                    host.bus, host.ledger, api, following, host.spans, settings, live, guarantees, self._foreign
                )
                acquiring = asyncio.create_task(election.acquire(), name="gateway-acquire")
                await asyncio.wait((acquiring, stopping), timeout=_AT_ONCE_S, return_when=asyncio.FIRST_COMPLETED)
                try:
                    live.start()
                    await following.start()
                    while await self._elected(acquiring, stopping):
                        self._host.ready.open("api")
                        metrics.LEADER.set(1)
                        try:
                            await self._term(election, session, api, hooks)
                        finally:
                            metrics.LEADER.set(0)
                            await election.release()
                        await asyncio.sleep(random.uniform(0.05, 0.2))
                        acquiring = asyncio.create_task(election.acquire(), name="gateway-acquire")
                finally:
                    await end(acquiring)
                    await election.release()
                    live.close()
                    await following.stop()
                    if hooks is not None:
                        await hooks.stop()
        finally:
            await end(renewing, stopping, probing)
            await client.close()
            await lease_client.close()

    async def _elected(self, acquiring: "asyncio.Task[None]", stopping: "asyncio.Task[bool]") -> bool:
        """Whether the role is ours now; False when this process is to end instead."""
        await asyncio.wait((acquiring, stopping), return_when=asyncio.FIRST_COMPLETED)
        if stopping.done():
            return False
        acquiring.result()
        return True

    async def _hooks(self, api: Api) -> WebhookServer | None:
        """Where the API server asks about foreign Bindings, if it is to."""
        settings = self._settings
        if settings.foreign_bindings == "observe":
            return None
        self._foreign = ForeignBindings(api, self._host.ledger)
        hooks = WebhookServer(
            api,
            self._foreign,
            settings.webhook_host,
            settings.webhook_port,
            required=settings.foreign_bindings == "require",
            spared=(*settings.spared_namespaces, settings.lease_namespace),
        )
        await hooks.start()
        return hooks

    async def _term(self, election: LeaseElection, session: Session, api: Api, hooks: WebhookServer | None) -> None:
        ends = asyncio.Event()
        watchers = [
            asyncio.create_task(_then(election.lost, ends), name="gateway-lost"),
            asyncio.create_task(_then(self._stopping, ends), name="gateway-stopped"),
            asyncio.create_task(watch_replicas(self._host.bus), name="gateway-replicas"),
        ]
        try:
            registering = withdraw_leftover(api) if hooks is None else hooks.keep_registered()
            watchers.append(asyncio.create_task(registering, name="gateway-webhook"))
            await session.run(ends)
        finally:
            await end(*watchers)
            if hooks is not None and self._stopping.is_set():
                await hooks.withdraw()

    def _on_state(self, reflector: Reflector) -> None:
        """A missing CRD is no reason to be not ready: everything else goes on without it."""
        if reflector.state in ("synced", "absent"):
            self._host.ready.open(reflector.resource.token)
        elif reflector.state == "failing":
            self._host.ready.close(reflector.resource.token)
            self._host.log.warning("not following", resource=reflector.resource.token, why=reflector.note)

    async def _renew(self, access: ApiAccess) -> None:
        while access.renewable:
            await asyncio.sleep(_RENEW_CREDENTIALS_S)
            try:
                if await access.renew():
                    self._host.log.info("credentials renewed")
            except AccessError as error:
                self._host.log.warning("credentials not renewed, the old ones stay", error=str(error))


async def _then(first: asyncio.Event, second: asyncio.Event) -> None:
    await first.wait()
    second.set()


def build(host: Host, settings: GatewaySettings) -> Gateway:
    """The service for ``koord run gateway``."""
    return Gateway(host, settings)


SPEC = ServiceSpec(
    name="gateway",
    summary="The one door to the API server: publishes its state, executes decisions",
    settings=GatewaySettings,
    build=build,
)
