"""The certificates of a test cluster: one authority, and a certificate for each component."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID = datetime.timedelta(days=30)


class Authority:
    """A certificate authority that writes certificates and keys into a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(mode=0o700, parents=True)
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "shoal-test")])
        made = self._certificate(self.name, self.key.public_key())
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self._write("ca.crt", made.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, common_name: str, group: str = "", hosts: tuple[str, ...] = ()) -> tuple[Path, Path]:
        """A certificate and its key. Kubernetes takes the common name as user and the organisation as group."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
        if group:
            names.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        made = self._certificate(x509.Name(names), key.public_key())
        made = made.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        if hosts:
            named = x509.SubjectAlternativeName([general_name(host) for host in hosts])
            made = made.add_extension(named, critical=False)
        signed = made.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        return self._write(f"{name}.crt", signed), self._write(f"{name}.key", private(key))

    def service_account_keys(self) -> tuple[Path, Path]:
        """The public and the private key of service account tokens."""
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return self._write("sa.pub", public), self._write("sa.key", private(key))

    def _certificate(self, subject: x509.Name, public_key) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder().subject_name(subject).issuer_name(self.name).public_key(public_key)
            .serial_number(x509.random_serial_number()).not_valid_before(now - VALID).not_valid_after(now + VALID)
        )

    def _write(self, name: str, data: bytes) -> Path:
        path = self.directory / name
        path.write_bytes(data)
        path.chmod(0o600)
        return path


def general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def private(key) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
