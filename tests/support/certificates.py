"""A private certificate authority that issues certificates of servers and clients, as PEM files in a folder."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_PEM = serialization.Encoding.PEM


class Authority:
    """A CA. `path` is the file of its certificate."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self.folder, self._key = folder, ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"private {name}")])
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        found = (
            self._begin(self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.path = folder / f"{name}.pem"
        self.path.write_bytes(found.public_bytes(_PEM))

    def _begin(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        today = datetime.now(UTC)
        return (
            x509.CertificateBuilder(self._name, subject, key.public_key(), x509.random_serial_number())
            .not_valid_before(today - timedelta(1))
            .not_valid_after(today + timedelta(1))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )

    def issue(self, name: str, password: str = "") -> tuple[Path, Path]:
        """Issue a certificate for model.test and 127.0.0.1; return the files of the certificate and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.DNSName("model.test"), x509.IPAddress(ip_address("127.0.0.1"))]
        uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        found = (
            self._begin(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        secret = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
        paths = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        paths[0].write_bytes(found.public_bytes(_PEM))
        paths[1].write_bytes(key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, secret))
        return paths

    def server_context(self, *, demands_certificate: bool = False, newest: bool = True) -> ssl.SSLContext:
        """Return the TLS context of a server of this CA."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*self.issue("server"))
        if demands_certificate:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.path)
        if not newest:
            context.maximum_version = ssl.TLSVersion.TLSv1_2
        return context
