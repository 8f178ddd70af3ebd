"""The types of Kubernetes' functions that are not CEL's own: quantities, addresses, URLs, versions, formats.

To CEL each is a message with one text, so that it can be told apart and compared, and keeps no Python object alive.
"""

from functools import cache
from typing import Any

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)

QUANTITY = "kubernetes.Quantity"
SEMVER = "kubernetes.Semver"
URL = "kubernetes.URL"
FORMAT = "kubernetes.NamedFormat"
IP = "net.IP"
CIDR = "net.CIDR"
_TYPES = (QUANTITY, SEMVER, URL, FORMAT, IP, CIDR)
_KNOWN = (timestamp_pb2, duration_pb2, struct_pb2, wrappers_pb2)
KNOWN_FILES = tuple(module.DESCRIPTOR.name for module in _KNOWN)


def new_pool() -> descriptor_pool.DescriptorPool:
    """A pool with the types of this file and those of CEL; the caller may add more."""
    pool = descriptor_pool.DescriptorPool()
    for module in _KNOWN:
        file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        pool.Add(file)
    for package in {name.partition(".")[0] for name in _TYPES}:
        file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
        for name in _TYPES:
            if name.startswith(f"{package}."):
                message = file.message_type.add(name=name.partition(".")[2])
                message.field.add(name="text", number=1, type=9, label=1)
        pool.Add(file)
    return pool


@cache
def shared_pool() -> descriptor_pool.DescriptorPool:
    """The pool in which expressions are evaluated."""
    return new_pool()


@cache
def _class(name: str) -> Any:
    return message_factory.GetMessageClass(shared_pool().FindMessageTypeByName(name))


def make(name: str, text: str) -> Any:
    """A value of one of the types."""
    return _class(name)(text=text)


def kind_of(value: Any) -> str:
    """The type of a value, empty for one of CEL's own."""
    descriptor = getattr(value, "DESCRIPTOR", None)
    return descriptor.full_name if descriptor is not None else ""
