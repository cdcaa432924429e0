"""A domain with TLS: the SDK needs only `E2B_DOMAIN` and the CA certificate."""

import os
import socket
import ssl
import subprocess
import sys

import httpx
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RemoteSettingsChanged, ResponseReceived
from h2.settings import SettingCodes

from ..installation import ROOT, free_port, wait_until

#: A user's program in a separate process: the trust store is read from its environment.
PROGRAM = """
import asyncio, ssl, sys, httpx
from e2b import AsyncSandbox, Sandbox, Template

made = Sandbox.create()
assert made.commands.run("echo sync").stdout == "sync\\n"
made.files.write("f", "over tls")
assert made.files.read("f") == "over tls"
made.files.write("index.html", "page")
made.commands.run("python3 -m http.server 8000", background=True, timeout=0)
made.commands.run("until (exec 3<>/dev/tcp/127.0.0.1/8000) 2>/dev/null; do sleep 0.05; done")
host = made.get_host(8000)
print("host", host, made.sandbox_id)
print("link", made.download_url("f", use_signature_expiration=60))

async def again():
    other = await AsyncSandbox.connect(made.sandbox_id)
    assert (await other.commands.run("echo async")).stdout == "async\\n"

asyncio.run(again())

# The SDK uses HTTP/2 here, which has no `Host` header.
open(sys.argv[1] + "/copied", "w").write("copied over tls")
template = Template(file_context_path=sys.argv[1]).from_template("base").copy("copied", "/tmp/copied")
Template.build(template, "tls-copy", cpu_count=1, memory_mb=256)
built = Sandbox.create("tls-copy")
assert built.files.read("/tmp/copied") == "copied over tls"
built.kill()
print("built")
input()
assert made.kill()
"""


@pytest.fixture(scope="module")
def secure(another):
    port = free_port()
    return another("secure", ["domain=e2b.localhost", "tls=self-signed"], tls=True, port=port)


def test_a_certificate_of_ones_own_is_shown_and_another_authority_is_not_made(another, tmp_path):
    certificate, key = tmp_path / "own.pem", tmp_path / "own.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-days", "2", "-subj", "/CN=sandboxes.example", "-out", certificate, "-keyout", key,
         "-addext", "subjectAltName=DNS:sandboxes.example,DNS:*.sandboxes.example,IP:127.0.0.1"],
        check=True, capture_output=True,
    )
    settings = ["domain=sandboxes.example", f"tls={certificate},{key}"]
    server = another("own-certificate", settings, tls=True)
    context = ssl.create_default_context(cafile=certificate)
    with httpx.Client(verify=context, base_url=server.url, timeout=60) as client:
        mine = {"X-API-Key": server.key}
        assert client.get("/templates", headers=mine).status_code == 200
        host = "8000-inothingofthatname000.sandboxes.example"
        answer = client.get("/", headers={"Host": host}, extensions={"sni_hostname": host})
        assert answer.status_code == 502 and "The sandbox was not found" in answer.text
    file = server.data / "server.log"
    wait_until(lambda: "export E2B_DOMAIN" in file.read_text(errors="replace"), 60, "what it prints")
    log = file.read_text(errors="replace")
    assert f"export E2B_DOMAIN=sandboxes.example:{server.port}\n" in log
    # Clients decide which CAs they trust.
    assert "SSL_CERT_FILE" not in log and not (server.data / "tls").exists()


@pytest.fixture(scope="module")
def said(secure):
    """The variables that the server prints for a shell."""
    file = secure.data / "server.log"
    # It answers slightly before it prints this.
    wait_until(lambda: "export NODE_EXTRA_CA_CERTS" in file.read_text(errors="replace"), 60, "what it prints")
    log = file.read_text(errors="replace")
    lines = [line.removeprefix("export ") for line in log.splitlines() if line.startswith("export ")]
    return dict(line.split("=", 1) for line in lines)


def test_the_server_says_what_to_export(secure, said):
    assert said["E2B_API_KEY"] == secure.key
    assert said["E2B_DOMAIN"] == f"e2b.localhost:{secure.port}"
    assert os.path.exists(said["SSL_CERT_FILE"])
    assert said["NODE_EXTRA_CA_CERTS"] == said["SSL_CERT_FILE"]
    assert "E2B_API_URL" not in said


def loopback(said, secure) -> httpx.Client:
    """A client that trusts the CA and resolves every name to loopback."""
    context = ssl.create_default_context(cafile=said["SSL_CERT_FILE"])
    return httpx.Client(verify=context, base_url=f"https://127.0.0.1:{secure.port}", timeout=60)


def test_the_sdk_works_by_the_domain_alone(secure, said, tmp_path):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("E2B_")}
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], env=clean | said, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )
    try:
        _, host, sandbox = program.stdout.readline().split()
        _, link = program.stdout.readline().split()
        assert program.stdout.readline() == "built\n"
        assert host == f"8000-{sandbox}.{said['E2B_DOMAIN']}"
        with loopback(said, secure) as client:
            for url, text in ((f"https://{host}/index.html", "page"), (link, "over tls")):
                name = httpx.URL(url)
                answer = client.get(
                    name.raw_path.decode(),
                    headers={"Host": name.netloc.decode()},
                    extensions={"sni_hostname": name.host},
                )
                assert (answer.status_code, answer.text) == (200, text)
    except ValueError:
        program.stdin.close()
        raise AssertionError(program.stderr.read()) from None
    finally:
        _, errors = program.communicate("\n" if not program.stdin.closed else None, timeout=240)
    assert program.returncode == 0, errors


def test_the_certificate_is_for_the_api_and_for_sandboxes(secure, said):
    with loopback(said, secure) as client:
        for name in ("api.e2b.localhost", "8000-iabc.e2b.localhost", "e2b.localhost"):
            answer = client.get("/health", headers={"Host": name}, extensions={"sni_hostname": name})
            assert answer.status_code in (204, 502), name


def test_the_certificate_is_for_previews_of_sessions_too(secure, said):
    with loopback(said, secure) as client:
        key = {"X-API-Key": secure.key, "Host": f"api.e2b.localhost:{secure.port}"}
        made = client.post("/api/v1/sessions", headers=key, json={}, extensions={"sni_hostname": "api.e2b.localhost"})
        session = made.json()["data"]
        host = session["publicHostname"]
        assert host.endswith(".preview.e2b.localhost")
        assert session["previewUrl"] == f"https://{host}:{secure.port}"
        for name, status in ((host, 503), (f"{'z' * 20}.preview.e2b.localhost", 404)):
            answer = client.get("/", headers={"Host": name}, extensions={"sni_hostname": name})
            assert answer.status_code == status, (name, answer.text)
    # HTTP/2 has no `Host`.
    context = ssl.create_default_context(cafile=said["SSL_CERT_FILE"])
    with httpx.Client(verify=context, http2=True, base_url=secure.url, timeout=60) as client:
        answer = client.get("/", headers={"Host": f"{host}:{secure.port}"}, extensions={"sni_hostname": host})
        assert (answer.http_version, answer.status_code) == ("HTTP/2", 503)


class Http2:
    """One connection like a browser's: TLS, HTTP/2, and its events."""

    def __init__(self, said, port: int, name: str):
        context = ssl.create_default_context(cafile=said["SSL_CERT_FILE"])
        context.set_alpn_protocols(["h2"])
        plain = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.stream = context.wrap_socket(plain, server_hostname=name)
        assert self.stream.selected_alpn_protocol() == "h2"
        # The library does not know `:protocol` and would refuse to send it.
        self.http = H2Connection(H2Configuration(validate_outbound_headers=False))
        self.http.initiate_connection()
        self.come = []

    def flush(self) -> None:
        self.stream.sendall(self.http.data_to_send())

    def wait_for(self, kind):
        """The next event of this kind; other events stay queued."""
        while True:
            for event in self.come:
                if isinstance(event, kind):
                    self.come.remove(event)
                    return event
            self.flush()
            data = self.stream.recv(65536)
            assert data, "the connection was closed"
            self.come += self.http.receive_data(data)


#: A sandbox with a server inside, until a line is read. In a separate process: see `PROGRAM`.
SITE = """
from e2b import Sandbox
from conformance.sdk.test_gateway import begin

with Sandbox.create(timeout=300) as box:
    begin(box)
    print(box.sandbox_id, flush=True)
    input()
"""


@pytest.fixture
def site(said):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("E2B_")}
    program = subprocess.Popen(
        [sys.executable, "-c", SITE], env=clean | said, cwd=ROOT, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )
    yield program.stdout.readline().strip()
    program.communicate("\n", timeout=240)


def test_a_websocket_over_http_2_as_browsers_ask_for_it(secure, said, site):
    name = f"8000-{site}.e2b.localhost"
    browser = Http2(said, secure.port, name)
    settings = browser.wait_for(RemoteSettingsChanged).changed_settings
    # Without this setting of the server, browsers open an HTTP/1.1 connection for it.
    assert settings[SettingCodes.ENABLE_CONNECT_PROTOCOL].new_value == 1
    asked = [
        (":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "https"),
        (":path", "/socket"), (":authority", f"{name}:{secure.port}"), ("sec-websocket-version", "13"),
    ]
    browser.http.send_headers(1, asked)
    answer = dict(browser.wait_for(ResponseReceived).headers)
    assert answer[b":status"] == b"200"
    mask, text = b"\1\2\3\4", b"ping"
    masked = bytes(byte ^ mask[n] for n, byte in enumerate(text))
    browser.http.send_data(1, b"\x81\x84" + mask + masked)
    echoed = b""
    while len(echoed) < 6:
        echoed += browser.wait_for(DataReceived).data
    assert echoed == b"\x81\x04ping"
    browser.stream.close()
