"""nginx in place of a pod, and nginx as a proxy to it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from ...installation import free_port, wait_until

#: The addresses of pods of fake nodes.
PODS = "10.245.0.0/16"
#: A load: seconds, and connections.
SECONDS, CONNECTIONS = 3, 50

CONFIGURATION = """\
daemon off;
worker_processes auto;
user root;
pid {directory}/pid;
error_log stderr error;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  keepalive_requests 1000000;
  client_body_temp_path {directory}/body;
  proxy_temp_path {directory}/proxy;
  fastcgi_temp_path {directory}/fastcgi;
  uwsgi_temp_path {directory}/uwsgi;
  scgi_temp_path {directory}/scgi;
  upstream pod {{ server {pod}:{port}; keepalive 128; keepalive_requests 1000000; }}
  server {{ listen 0.0.0.0:{port}; location / {{ return 200 "ok"; }} }}
  server {{
    listen 127.0.0.1:{proxy};
    location / {{
      proxy_pass http://pod;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $host;
      proxy_set_header X-Forwarded-For $remote_addr;
      proxy_set_header X-Forwarded-Proto $scheme;
      proxy_request_buffering off;
      proxy_buffering off;
    }}
  }}
}}
"""


class Upstream:
    """A server for all addresses of pods, while the context lasts. It needs root, for a route of this machine."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "nginx"
        self.port, self.proxied = free_port(), free_port()
        self.process: subprocess.Popen | None = None

    @property
    def proxy(self) -> str:
        return f"http://127.0.0.1:{self.proxied}/"

    def __enter__(self) -> Upstream:
        self.directory.mkdir()
        file = self.directory / "nginx.conf"
        pod = PODS.split("/")[0]
        file.write_text(CONFIGURATION.format(directory=self.directory, port=self.port, proxy=self.proxied, pod=pod))
        subprocess.run(["ip", "route", "add", "local", PODS, "dev", "lo"], check=True)
        try:
            self.process = subprocess.Popen(["nginx", "-p", self.directory, "-c", file, "-e", "stderr"])
            wait_until(lambda: self.answers(self.proxy), 30, "nginx answers")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_) -> None:
        if self.process:
            self.process.terminate()
            self.process.wait(30)
        subprocess.run(["ip", "route", "del", "local", PODS, "dev", "lo"], check=True)

    def answers(self, url: str) -> bool:
        return subprocess.run(["curl", "-sf", "-o", "/dev/null", url], check=False).returncode == 0

    def load(self, url: str) -> float:
        """Requests a second. All of them must succeed."""
        assert self.answers(url), f"{url} does not answer"
        words = ["wrk", "-t", "1", "-c", str(CONNECTIONS), "-d", f"{SECONDS}s", url]
        told = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
        assert "Non-2xx" not in told, told
        return float(re.search(r"Requests/sec:\s+([0-9.]+)", told)[1])
