"""A certificate authority for one control plane: certificates of servers, of users (RBAC tests), service-account keys.

A client certificate names its user in the common name and the groups in the organizations, as kube-apiserver reads it.
The authority's key stays in memory; everything it issues lies in its folder, keys readable by the owner only.
"""

import datetime
import ipaddress
import re
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from koord.localcluster.api.certificates import key_usage

_DAYS = 365
_HOSTS = ("127.0.0.1", "::1", "localhost", "kubernetes.default.svc", "10.96.0.1")
ADMIN_GROUP = "system:masters"
"""Members may do everything, before any role is asked."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """PEM files of a certificate and its private key."""

    certificate: Path
    key: Path


class Authority:
    """Issues certificates that one control plane trusts."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder = folder
        self.ca = folder / "ca.crt"
        self._start = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=5)
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "koord test control plane")])
        self._key = ec.generate_private_key(ec.SECP256R1())
        public = self._key.public_key()
        certificate = (
            self._builder(self._name, public)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(key_usage(signing=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.ca.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        self._users: dict[tuple[str, tuple[str, ...]], KeyPair] = {}

    def server(self, name: str) -> KeyPair:
        """A certificate for a server on loopback; etcd's members use it as clients of each other too."""
        return self._issue(name, name, (), (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH), _HOSTS)

    def user(self, user: str, groups: Sequence[str] = ()) -> KeyPair:
        """The client certificate of a user in these groups; the same files when asked again."""
        who = (user, tuple(groups))
        if who not in self._users:
            stem = f"user-{len(self._users)}-{re.sub('[^a-zA-Z0-9.-]', '_', user)[:60]}"
            self._users[who] = self._issue(stem, user, groups, (ExtendedKeyUsageOID.CLIENT_AUTH,), ())
        return self._users[who]

    def service_account_keys(self) -> KeyPair:
        """The pair that signs service-account tokens: `certificate` is the bare public key."""
        key = ec.generate_private_key(ec.SECP256R1())
        pair = KeyPair(self.folder / "sa.pub", self.folder / "sa.key")
        pair.certificate.write_bytes(
            key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        )
        _write_key(pair.key, key)
        return pair

    def tls(self, pair: KeyPair | None = None) -> ssl.SSLContext:
        """How a client that trusts this authority connects, with the certificate of `pair` if one is given."""
        context = ssl.create_default_context(cafile=str(self.ca))
        if pair is not None:
            context.load_cert_chain(pair.certificate, pair.key)
        return context

    def _issue(
        self,
        stem: str,
        common: str,
        organizations: Sequence[str],
        uses: Sequence[x509.ObjectIdentifier],
        hosts: Sequence[str],
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in organizations]
        attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, common))
        builder = (
            self._builder(x509.Name(attributes), key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .add_extension(key_usage(signing=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(name) for name in hosts]), critical=False
            )
        pair = KeyPair(self.folder / f"{stem}.crt", self.folder / f"{stem}.key")
        pair.certificate.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        _write_key(pair.key, key)
        return pair

    def _builder(self, subject: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._start)
            .not_valid_after(self._start + datetime.timedelta(days=_DAYS))
        )


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    # kube-controller-manager reads SEC 1 ("EC PRIVATE KEY") and PKCS #8 alike.
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
