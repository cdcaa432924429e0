"""A web application that runs in a sandbox, and a request to it from outside.

    python preview.py

With a domain (`shoal serve --domain`), a browser opens `https://8000-ID.DOMAIN`. Without one, the two headers below name
the sandbox and the port: docs/ports.md lists all ways.
"""

import os
import time
import urllib.error
import urllib.request

from e2b import Sandbox

APPLICATION = """\
from http.server import BaseHTTPRequestHandler, HTTPServer

class Page(BaseHTTPRequestHandler):
    def do_GET(self):
        body = f"<h1>Hello from {self.path}</h1>".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

HTTPServer(("", 8000), Page).serve_forever()
"""


def get(sandbox: Sandbox, port: int, path: str) -> str:
    headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": str(port)}
    request = urllib.request.Request(os.environ["E2B_SANDBOX_URL"] + path, headers=headers)
    for _ in range(100):
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as error:
            # 502: nothing listens at the port yet.
            if error.code != 502:
                raise
            time.sleep(0.1)
    raise TimeoutError("the application does not start")


with Sandbox.create(timeout=300) as sandbox:
    sandbox.files.write("app.py", APPLICATION)
    sandbox.commands.run("python3 app.py", background=True, timeout=0)
    print(get(sandbox, 8000, "/agents"))
