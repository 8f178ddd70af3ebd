"""``extenders``, webhooks that take part in scheduling: the block as the file has it, its rules, what it comes to.

Messages are upstream's where upstream has them; what upstream notices only when it calls (no URL, a CA that is no
base64, a certificate without its key) is an error here before anything starts.
"""

import base64
import binascii
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

import msgspec

from koord.scheduler.config.decoding import Int64, Seconds
from koord.scheduler.config.errors import Problem, forbidden, invalid, required
from koord.scheduler.config.rules import check_qualified_name, is_extended

TIMEOUT_S = 5.0
VERBS = ("filterVerb", "prioritizeVerb", "preemptVerb", "bindVerb")


class ManagedResource(msgspec.Struct, frozen=True, rename="camel"):
    """A resource that an extender cares for."""

    name: str = ""
    ignored_by_scheduler: bool = False


class ExtenderTLS(msgspec.Struct, frozen=True, rename="camel"):
    """How to speak TLS with an extender; data fields are base64 and win over files."""

    insecure: bool = False
    server_name: str = ""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    cert_data: str = ""
    key_data: str = ""
    ca_data: str = ""

    @property
    def has_ca(self) -> bool:
        """Whether it says who is trusted."""
        return bool(self.ca_file or self.ca_data)


class Extender(msgspec.Struct, frozen=True, rename="camel"):
    """One of ``extenders``."""

    url_prefix: str = ""
    filter_verb: str = ""
    preempt_verb: str = ""
    prioritize_verb: str = ""
    weight: Int64 = 0
    bind_verb: str = ""
    enable_https: bool = msgspec.field(name="enableHTTPS", default=False)
    tls_config: ExtenderTLS | None = None
    http_timeout: Seconds = 0.0
    node_cache_capable: bool = False
    managed_resources: tuple[ManagedResource, ...] = ()
    ignorable: bool = False


class ExtenderConfig(msgspec.Struct, frozen=True):
    """An extender, complete and valid. ``managed`` are the resources it cares for (none: every pod is its own).

    ``http_timeout`` is in seconds; ``path`` is where the file has it.
    """

    url_prefix: str
    filter_verb: str = ""
    preempt_verb: str = ""
    prioritize_verb: str = ""
    bind_verb: str = ""
    weight: int = 0
    enable_https: bool = False
    http_timeout: float = TIMEOUT_S
    node_cache_capable: bool = False
    managed: tuple[str, ...] = ()
    ignored_by_scheduler: frozenset[str] = frozenset()
    ignorable: bool = False
    tls: ExtenderTLS | None = None
    path: str = "extenders[0]"


def completed(extenders: Sequence[Extender]) -> tuple[ExtenderConfig, ...]:
    """In the order of the file."""
    return tuple(
        ExtenderConfig(
            extender.url_prefix,
            filter_verb=extender.filter_verb,
            preempt_verb=extender.preempt_verb,
            prioritize_verb=extender.prioritize_verb,
            bind_verb=extender.bind_verb,
            weight=extender.weight,
            enable_https=extender.enable_https,
            http_timeout=extender.http_timeout or TIMEOUT_S,
            node_cache_capable=extender.node_cache_capable,
            managed=tuple(resource.name for resource in extender.managed_resources),
            ignored_by_scheduler=frozenset(
                resource.name for resource in extender.managed_resources if resource.ignored_by_scheduler
            ),
            ignorable=extender.ignorable,
            tls=extender.tls_config,
            path=f"extenders[{index}]",
        )
        for index, extender in enumerate(extenders)
    )


def check_extenders(extenders: Sequence[Extender]) -> Iterator[Problem]:
    """What is wrong with them."""
    managed: set[str] = set()
    for index, extender in enumerate(extenders):
        path = f"extenders[{index}]"
        yield from _check_url(f"{path}.urlPrefix", extender.url_prefix)
        if extender.prioritize_verb and extender.weight <= 0:
            yield invalid(f"{path}.weight", extender.weight, "must have a positive weight applied to it")
        if extender.http_timeout < 0:
            yield invalid(f"{path}.httpTimeout", f"{extender.http_timeout:g}s", "must be zero or positive")
        if extender.tls_config is not None:
            yield from _check_tls(f"{path}.tlsConfig", extender.tls_config)
        for number, resource in enumerate(extender.managed_resources):
            where = f"{path}.managedResources[{number}].name"
            found = list(check_qualified_name(where, resource.name))
            yield from found
            if not found and not is_extended(resource.name):
                yield invalid(where, resource.name, "is an invalid extended resource name")
            if resource.name in managed:
                yield invalid(where, resource.name, "duplicate extender managed resource name")
            managed.add(resource.name)
    binders = sum(bool(extender.bind_verb) for extender in extenders)
    if binders > 1:
        value = f"found {binders} extenders implementing bind"
        yield invalid("extenders", value, "only one extender can implement bind")


def idle(extenders: Sequence[Extender]) -> Iterator[Problem]:
    """What to warn of: extenders that nobody would ever call."""
    for index, extender in enumerate(extenders):
        if not (extender.filter_verb or extender.prioritize_verb or extender.preempt_verb or extender.bind_verb):
            yield Problem(f"extenders[{index}]", f"has none of {', '.join(VERBS)}: it is never called")


def ignored_resources(extenders: Sequence[Extender]) -> tuple[str, ...]:
    """The resources that only extenders look at."""
    names = [item.name for each in extenders for item in each.managed_resources if item.ignored_by_scheduler]
    return tuple(dict.fromkeys(names))


def _check_url(path: str, url: str) -> Iterator[Problem]:
    if not url:
        yield required(path, "the URL at which the extender is called")
        return
    try:
        parts = urlsplit(url)
        well = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        well = False
    if not well:
        yield invalid(path, url, "must be a URL of http or https with a host")


def _check_tls(path: str, tls: ExtenderTLS) -> Iterator[Problem]:
    if tls.insecure and tls.has_ca:
        yield forbidden(f"{path}.insecure", "specifying a root certificates file with the insecure flag is not allowed")
    if bool(tls.cert_file or tls.cert_data) != bool(tls.key_file or tls.key_data):
        missing = "keyFile" if tls.cert_file or tls.cert_data else "certFile"
        yield required(f"{path}.{missing}", "a certificate and its key go together")
    for name, data in (("certData", tls.cert_data), ("keyData", tls.key_data), ("caData", tls.ca_data)):
        try:
            base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            yield Problem(f"{path}.{name}", "Invalid value: must be base64")  # its text stays secret
