"""Asking over real HTTP and HTTPS: order, what may be ignored, what is wrong, and who is asked at all."""

import base64
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from koord.kube.pods import PodSpec
from koord.localcluster.controlplane.authority import Authority
from koord.scheduler.config.errors import ConfigError
from koord.scheduler.config.extenders import ExtenderConfig, ExtenderTLS
from koord.scheduler.engine.advice import Advice
from koord.scheduler.extenders.asking import Extenders, Question, looks_at
from koord.scheduler.extenders.client import LEAST_ANSWER, ExtenderClient
from koord.telemetry.context import TraceContext
from koord.telemetry.logs import get_logger
from koord.telemetry.spans import Spans
from tests.scheduler.extenders.servers import ExtenderServer, extender, names, only, rating

NODES = ("n0", "n1", "n2")


class _Class:
    """As much of a scheduling class as asking reads."""

    base = None

    def __init__(self, spec: PodSpec | None = None) -> None:
        self.template = type("T", (), {"spec": spec or PodSpec()})()


async def ask(*configs: ExtenderConfig, nodes: tuple[str, ...] = NODES, spans: Spans | None = None) -> Advice:
    spans = spans or Spans(enabled=False)
    extenders = Extenders([ExtenderClient(config, spans) for config in configs], get_logger("test"))
    bodies = {name: b'{"metadata":{"name":"%s"}}' % name.encode() for name in nodes}
    question = Question(b'{"metadata":{"name":"p"}}', nodes, bodies, TraceContext.new())
    try:
        return await extenders.ask(_Class(), question)  # type: ignore[arg-type]
    finally:
        await extenders.close()


def block(server: ExtenderServer, **fields: Any) -> ExtenderConfig:
    fields = {"http_timeout": 60.0, **fields}
    return ExtenderConfig(server.url(), filter_verb="filter", node_cache_capable=True, **fields)


async def test_each_filter_is_shown_what_the_one_before_left() -> None:
    def second(question: dict[str, Any]) -> dict[str, Any]:
        return {"NodeNames": ["n2"], "FailedAndUnresolvableNodes": {"n1": "never"}, "FailedNodes": {"n1": "not now"}}

    async with extender(filter=only("n1", "n2")) as one, extender(filter=second) as two:
        found = await ask(block(one), block(two, ignorable=True))
        assert names(two.of("filter")[0]) == ["n1", "n2"]
    assert found.passed == {"n2": 0}
    assert found.refused == {"n0": ("no such thing here", True), "n1": ("never", False)}
    assert found.shown == frozenset(NODES)


async def test_nodes_that_an_answer_leaves_out_are_refused_for_good() -> None:
    async with extender(filter=lambda question: {"NodeNames": ["n0"]}) as server:
        found = await ask(block(server))
    text = f"node(s) were left out by extender {server.url()}"
    assert found.refused == {"n1": (text, False), "n2": (text, False)}


async def test_scores_of_all_extenders_add_up_in_the_plugins_range() -> None:
    async with extender(rate=rating(n0=1, n1=10)) as one, extender(rate=rating(n0=7, other=9)) as two:
        configs = [
            ExtenderConfig(server.url(), prioritize_verb="rate", weight=weight, node_cache_capable=True)
            for server, weight in ((one, 2), (two, 1))
        ]
        assert (await ask(*configs)).passed == {"n0": 2 * 10 + 70, "n1": 200, "n2": 0}
        one.answers["rate"] = lambda question: b"nonsense"
        assert (await ask(*configs)).passed == {"n0": 70, "n1": 0, "n2": 0}  # who does not rate adds nothing
        assert (await ask(*configs, nodes=("n0",))).passed == {"n0": 0}
        assert len(one.of("rate")) == 2  # one node is chosen without scores


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (lambda question: web.Response(status=500), "failed filter with extender at URL {url}/filter, code 500"),
        (lambda question: {"Error": "no luck"}, "extender {url}: no luck"),
        (lambda question: b"{", "extender {url}: filter: the answer is no ExtenderFilterResult: "),
        (lambda question: {"NodeNames": ["x"]}, "extender {url}: filter: the answer NodeNames: claims a filtered node"),
        (lambda question: b" " * (LEAST_ANSWER + 1), 'Post "{url}/filter": the answer has more than'),
    ],
)
async def test_what_goes_wrong_is_an_error_unless_it_may_be_ignored(answer: Any, text: str) -> None:
    async with extender(filter=answer) as server:
        found = await ask(block(server))
        assert found.error.startswith(text.format(url=server.url()))
        assert not found.passed
        assert (await ask(block(server, ignorable=True))).passed == dict.fromkeys(NODES, 0)


async def test_nobody_there_and_nobody_in_time() -> None:
    async with extender(filter=only("n0")) as server:
        server.delay_s = 30.0
        found = await ask(block(server, http_timeout=0.05))
        assert found.error == f'Post "{server.url()}/filter": no answer within 0.05 s'
        await server.kill()
        found = await ask(block(server))
        assert found.error.startswith(f'Post "{server.url()}/filter": ')
        # Those that may be ignored come last, whatever the file's order.
        async with extender(filter=only("n2")) as other:
            assert (await ask(block(server, ignorable=True), block(other))).passed == {"n2": 0}
            assert names(other.of("filter")[0]) == list(NODES)


async def test_a_call_is_a_span_of_the_pods_trace() -> None:
    spans = Spans()
    async with extender(filter=only("n0")) as server:
        await ask(block(server), spans=spans)
        [record] = spans.take(0, final=True)
        assert (record.name, record.attributes["verb"]) == ("scheduler.extender", "filter")  # type: ignore[index]
        assert server.traces == [record.context.traceparent]


def test_who_is_asked_about_a_pod() -> None:
    spec = msgspec.convert(
        {
            "containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}],
            "initContainers": [{"name": "b", "resources": {"limits": {"example.com/x": "1"}}}],
        },
        PodSpec,
    )
    for managed, asked in (((), True), (("example.com/x",), True), (("example.com/y",), False)):
        assert looks_at(ExtenderConfig("http://x", managed=managed), spec) is asked


@pytest.fixture
async def secure(tmp_path: Path) -> AsyncIterator[tuple[ExtenderServer, Authority]]:
    authority = Authority(tmp_path)
    pair = authority.server("extender")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.ca))
    context.load_cert_chain(pair.certificate, pair.key)
    context.verify_mode = ssl.CERT_REQUIRED
    async with extender(context, filter=only("n0")) as server:
        yield server, authority


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


async def test_https_with_a_certificate_of_its_own(secure: tuple[ExtenderServer, Authority]) -> None:
    server, authority = secure
    pair = authority.user("koord")
    files = ExtenderTLS(cert_file=str(pair.certificate), key_file=str(pair.key), ca_file=str(authority.ca))
    cert, key, ca = (_base64(path) for path in (pair.certificate, pair.key, authority.ca))
    data = ExtenderTLS(cert_data=cert, key_data=key, ca_data=ca, server_name="localhost")
    for tls in (files, data):
        config = ExtenderConfig(server.url("https"), filter_verb="filter", node_cache_capable=True, tls=tls)
        assert (await ask(config)).passed == {"n0": 0}
        # Nobody to trust: with enableHTTPS everybody is trusted, as upstream does, else those of the system.
        lone = msgspec.structs.replace(tls, ca_file="", ca_data="")
        trusting = msgspec.structs.replace(config, enable_https=True, tls=lone)
        assert (await ask(trusting)).passed == {"n0": 0}
        assert "certificate verify failed" in (await ask(msgspec.structs.replace(config, tls=lone))).error
    wrong = msgspec.structs.replace(data, server_name="elsewhere")
    config = ExtenderConfig(server.url("https"), filter_verb="filter", node_cache_capable=True, tls=wrong)
    assert "certificate is not valid for 'elsewhere'" in (await ask(config)).error


@pytest.mark.parametrize(
    ("tls", "text"),
    [
        (ExtenderTLS(ca_file="nowhere.pem"), "extenders[0].tlsConfig.caFile: no certificates to trust: No such file"),
        (ExtenderTLS(ca_data="AAAA"), "extenders[0].tlsConfig.caData: no certificates to trust: "),
        (ExtenderTLS(cert_file="a", key_file="b"), "extenders[0].tlsConfig.certFile: no certificate with its key: No"),
        (
            ExtenderTLS(cert_data="AAAA", key_data="AAAA"),
            "extenders[0].tlsConfig.certData: no certificate with its key",
        ),
    ],
)
async def test_tls_that_is_of_no_use_is_told_before_anything_starts(tls: ExtenderTLS, text: str) -> None:
    with pytest.raises(ConfigError) as error:
        ExtenderClient(ExtenderConfig("https://x", filter_verb="f", tls=tls), Spans(enabled=False))
    assert str(error.value).startswith(text)
