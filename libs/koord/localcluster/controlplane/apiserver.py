"""kube-apiserver: TLS, client certificates and service-account tokens, RBAC, nobody anonymous, watch cache on."""

import ssl
from pathlib import Path

from koord.localcluster.controlplane.authority import Authority, KeyPair
from koord.localcluster.controlplane.etcd import Etcd
from koord.localcluster.controlplane.part import NO_FLAGS, Flags, Part, binary
from koord.localcluster.ports import HOST

_FRONT = "front-proxy-client"


class ApiServer(Part):
    """One of the apiservers on an etcd."""

    name = "kube-apiserver"

    def __init__(
        self,
        binaries: Path,
        *,
        authority: Authority,
        etcd: Etcd,
        service_accounts: KeyPair,
        directory: Path,
        tls: ssl.SSLContext,
        flags: Flags = NO_FLAGS,
    ) -> None:
        super().__init__(binary(binaries, "kube-apiserver"), directory=directory, tls=tls, flags=flags)
        self._authority = authority
        self._etcd = etcd
        self._service_accounts = service_accounts
        self._keys = authority.server("kube-apiserver")
        # Who may speak for users to the apiserver and for it to extension servers: an authority of its own, or every
        # client certificate could.
        self._front = Authority(directory / "front-proxy")
        self._front_keys = self._front.user(_FRONT)

    def defaults(self) -> Flags:
        """The flags of the next start."""
        return {
            "etcd-servers": ",".join(self._etcd.urls),
            "etcd-cafile": str(self._authority.ca),
            "etcd-certfile": str(self._etcd.keys.certificate),
            "etcd-keyfile": str(self._etcd.keys.key),
            "bind-address": HOST,
            "advertise-address": HOST,
            "secure-port": str(self.port),
            "cert-dir": str(self.directory / "certificates"),
            "tls-cert-file": str(self._keys.certificate),
            "tls-private-key-file": str(self._keys.key),
            "client-ca-file": str(self._authority.ca),
            "requestheader-client-ca-file": str(self._front.ca),
            "requestheader-allowed-names": _FRONT,
            "requestheader-username-headers": "X-Remote-User",
            "requestheader-group-headers": "X-Remote-Group",
            "requestheader-extra-headers-prefix": "X-Remote-Extra-",
            "proxy-client-cert-file": str(self._front_keys.certificate),
            "proxy-client-key-file": str(self._front_keys.key),
            "service-account-issuer": "https://kubernetes.default.svc.cluster.local",
            "service-account-key-file": str(self._service_accounts.certificate),
            "service-account-signing-key-file": str(self._service_accounts.key),
            "authorization-mode": "RBAC",
            "anonymous-auth": "false",
            "allow-privileged": "true",
            "service-cluster-ip-range": "10.96.0.0/16",
            # A loopback address is no endpoint that the kubernetes Service may have.
            "endpoint-reconciler-type": "none",
            # Its own watch streams, not a drain that waits for clients: tests restart it often.
            "shutdown-delay-duration": "0s",
        }
