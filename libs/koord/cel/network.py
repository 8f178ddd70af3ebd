"""Kubernetes' functions about addresses, networks and URLs, on texts."""

import ipaddress
import urllib.parse
from typing import Any

from koord.cel.opaque import CIDR, IP, URL, kind_of, make

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _address(text: str) -> _Address:
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        raise ValueError(f'IP Address "{text}" parse error during conversion from string') from None
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        raise ValueError(f'IPv4-mapped IPv6 address "{text}" is not allowed')
    if isinstance(found, ipaddress.IPv6Address) and found.scope_id:
        raise ValueError(f'IP address "{text}" with zone value is not allowed')
    return found


def _split(text: str) -> tuple[_Address, int]:
    host, slash, bits = text.partition("/")
    try:
        if not slash or not bits.isdecimal() or (len(bits) > 1 and bits.startswith("0")):
            raise ValueError(text)
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ValueError(f'network address parse error during conversion from string: "{text}"') from None
    return _address(host), int(bits)


def _network(text: str) -> _Network:
    return ipaddress.ip_network(text, strict=False)


def ip(value: Any) -> Any:
    """The address of a text, or of a network."""
    if kind_of(value) == CIDR:
        return make(IP, value.text.partition("/")[0])
    return make(IP, str(_address(value)))


def is_ip(text: str) -> bool:
    """Whether a text is an address."""
    try:
        return bool(_address(text))
    except ValueError:
        return False


def is_canonical(text: str) -> bool:
    """Whether an address is written in the one form that it is shown in; an error when it is none."""
    return str(_address(text)) == text


def family(value: Any) -> int:
    """4 or 6."""
    return _address(value.text).version


def is_unspecified(value: Any) -> bool:
    """0.0.0.0 or ::."""
    return _address(value.text).is_unspecified


def is_loopback(value: Any) -> bool:
    """127.0.0.0/8 or ::1."""
    return _address(value.text).is_loopback


def is_link_local_multicast(value: Any) -> bool:
    """224.0.0.0/24 or ff02::/16 and its like."""
    address = _address(value.text)
    if isinstance(address, ipaddress.IPv4Address):
        return address in ipaddress.ip_network("224.0.0.0/24")
    return address.packed[0] == 0xFF and address.packed[1] & 0x0F == 0x02


def is_link_local_unicast(value: Any) -> bool:
    """169.254.0.0/16 or fe80::/10."""
    return _address(value.text).is_link_local


def is_global_unicast(value: Any) -> bool:
    """What is none of the others, private addresses included."""
    address = _address(value.text)
    broadcast = str(address) == "255.255.255.255"
    special = address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
    return not (special or broadcast)


def cidr(text: str) -> Any:
    """The network of a text; its address may have bits outside of the mask."""
    address, bits = _split(text)
    return make(CIDR, f"{address}/{bits}")


def is_cidr(text: str) -> bool:
    """Whether a text is a network."""
    try:
        return bool(_split(text))
    except ValueError:
        return False


def contains_ip(value: Any, other: Any) -> bool:
    """Whether an address lies in a network."""
    address = _address(other if isinstance(other, str) else other.text)
    network = _network(value.text)
    return address.version == network.version and address in network


def contains_cidr(value: Any, other: Any) -> bool:
    """Whether a network lies in another."""
    text = other if isinstance(other, str) else other.text
    _split(text)
    inner, outer = _network(text), _network(value.text)
    if inner.version != outer.version:
        return False
    return inner.prefixlen >= outer.prefixlen and inner.network_address in outer


def masked(value: Any) -> Any:
    """The network with nothing outside of its mask."""
    return make(CIDR, str(_network(value.text)))


def prefix_length(value: Any) -> int:
    """How many bits the mask has."""
    return int(value.text.rpartition("/")[2])


def _parts(text: str) -> urllib.parse.SplitResult:
    try:
        found = urllib.parse.urlsplit(text)
        _ = found.port
    except ValueError:
        found = None
    bad = any(ord(char) < 0x20 or ord(char) == 0x7F for char in text)
    if found is None or bad or not (text.startswith("/") or (found.scheme and text[:1].isalpha())):
        raise ValueError(f"URL parse error during conversion from string: parse {text!r}: invalid URI for request")
    if " " in found.netloc or "%" in _bad_escapes(text):
        raise ValueError(f"URL parse error during conversion from string: parse {text!r}: invalid URL escape")
    return found


def _bad_escapes(text: str) -> str:
    """A percent sign when one in the text is not followed by two hexadecimal digits."""
    for at, char in enumerate(text):
        if char == "%" and not (
            len(text) >= at + 3 and all(c in "0123456789abcdefABCDEF" for c in text[at + 1 : at + 3])
        ):
            return "%"
    return ""


def url(text: str) -> Any:
    """A text as an absolute URL, or an absolute path."""
    _parts(text)
    return make(URL, text)


def is_url(text: str) -> bool:
    """Whether a text is an absolute URL or an absolute path."""
    try:
        return bool(_parts(text))
    except ValueError:
        return False


def scheme(value: Any) -> str:
    """`https`, or nothing."""
    return _parts(value.text).scheme


def host(value: Any) -> str:
    """The host with its port, IPv6 in brackets."""
    return _parts(value.text).netloc.rpartition("@")[2]


def hostname(value: Any) -> str:
    """The host without port and brackets."""
    name = host(value)
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.rpartition(":")[0] if ":" in name else name


def port(value: Any) -> str:
    """The port as it is written, or nothing."""
    found = _parts(value.text).port
    return "" if found is None else str(found)


def escaped_path(value: Any) -> str:
    """The path with what must be escaped in it escaped."""
    return urllib.parse.quote(_parts(value.text).path, safe="/%:@!$&'()*+,;=~")


def query(value: Any) -> dict[str, list[str]]:
    """The parameters, each with its values."""
    return urllib.parse.parse_qs(_parts(value.text).query, keep_blank_values=True)
