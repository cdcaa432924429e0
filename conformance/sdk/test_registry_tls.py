"""Images of a registry that is not on loopback: only TLS is used."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from e2b import Sandbox, Template
from e2b.exceptions import BuildException

from ..registry import ACCOUNT, Certificate, Registry, small_debian

#: An address of the machine that no other host has (RFC 2544), outside of loopback's network.
ADDRESS = "198.18.7.7"


@pytest.fixture(scope="module")
def address():
    here = [f"{ADDRESS}/32", "dev", "lo"]
    subprocess.run(["ip", "addr", "replace", *here], check=True)
    yield ADDRESS
    subprocess.run(["ip", "addr", "del", *here], check=True)


@pytest.fixture(scope="module")
def certificate(address, tmp_path_factory):
    """The certificate of a CA, and one that it issued for the address, with its key."""
    directory = tmp_path_factory.mktemp("certificate")
    authority, leaf = directory / "authority", directory / "registry"
    new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    own = ["-subj", "/CN=authority", "-addext", "basicConstraints=critical,CA:TRUE"]
    given = ["-subj", "/CN=registry", "-CA", f"{authority}.pem", "-CAkey", f"{authority}.key",
             "-addext", "basicConstraints=critical,CA:FALSE", "-addext", f"subjectAltName=IP:{address}"]
    for name, more in ((authority, own), (leaf, given)):
        files = ["-out", f"{name}.pem", "-keyout", f"{name}.key"]
        subprocess.run([*new, *more, *files], check=True, capture_output=True)
    return Certificate(Path(f"{authority}.pem"), Path(f"{leaf}.pem"), Path(f"{leaf}.key"))


@pytest.fixture(scope="module")
def registry(address, certificate, tmp_path_factory):
    made = Registry(tmp_path_factory.mktemp("tls"), guarded=True, host=address, tls=certificate)
    made.start()
    made.push("small/debian", "12", [small_debian().read_bytes()], Env=["PATH=/usr/bin:/bin", "OF=tls"])
    yield made
    made.stop()


def build(server, image: str, **account):
    options = {name: value for name, value in server.options().items() if name != "sandbox_url"}
    template = Template().from_image(image, **account).run_cmd("echo $OF > ~/of")
    return Template.build(template, "over-tls", cpu_count=1, memory_mb=256, **options)


def test_an_image_is_pulled_over_tls_with_an_account(another, registry, certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.authority))
    server = another("tls-known")
    image = f"{registry.address}/small/debian:12"
    with pytest.raises(BuildException, match="credentials"):
        build(server, image)
    build(server, image, username=ACCOUNT[0], password=ACCOUNT[1])
    with Sandbox.create("over-tls", timeout=60, **server.options()) as sandbox:
        assert sandbox.commands.run("cat ~/of").stdout == "tls\n"


def test_a_registry_whose_authority_nobody_knows_is_told_nothing(another, registry):
    server = another("tls-unknown")
    asked = registry.heard()
    with pytest.raises(BuildException, match="SSL_CERT_FILE"):
        build(server, f"{registry.address}/small/debian:12", username=ACCOUNT[0], password=ACCOUNT[1])
    assert registry.heard() == asked, "the account was sent to somebody unknown"


def test_a_registry_without_tls_is_refused_unless_it_is_allowed(another, address, tmp_path_factory):
    plain = Registry(tmp_path_factory.mktemp("plain"), host=address)
    plain.start()
    try:
        plain.push("small/debian", "12", [small_debian().read_bytes()], Env=["OF=plain"])
        image = f"{plain.address}/small/debian:12"
        asked = plain.heard()
        with pytest.raises(BuildException, match="images.plain_http"):
            build(another("tls-only"), image)
        assert plain.heard() == asked
        build(another("tls-waived", [f"images.plain_http={plain.address}"]), image)
    finally:
        plain.stop()
