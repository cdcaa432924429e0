"""A server for sandboxes: plain answers, an endless event stream, a WebSocket."""

import base64
import hashlib
import json
import struct
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        length = int(self.headers.get("content-length") or 0)
        body = self.read_chunks() if self.headers.get("transfer-encoding") else self.rfile.read(length)
        said = {
            "method": self.command, "path": self.path, "body": body.decode("latin-1"),
            "headers": {name.lower(): value for name, value in self.headers.items()},
        }
        code = int(self.path[5:]) if self.path.startswith("/say/") else 200
        self.reply(code, json.dumps(said).encode())

    do_POST = do_PUT = do_PATCH = do_DELETE = answer

    def do_GET(self):
        if self.path == "/events":
            self.events()
        elif self.path == "/socket":
            self.socket()
        elif self.path == "/large":
            self.reply(200, b"x" * 5_000_000)
        else:
            self.answer()

    def reply(self, code, body):
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Guest", "yes")
        self.end_headers()
        self.wfile.write(body)

    def read_chunks(self):
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def events(self):
        """Two events, followed by silence until the client disconnects."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        for number in range(2):
            self.wfile.write(f"data: {number}\n\n".encode())
            self.wfile.flush()
        self.rfile.read(1)

    def socket(self):
        """Echoes messages, and closes the connection on request."""
        accept = base64.b64encode(hashlib.sha1(self.headers["sec-websocket-key"].encode() + MAGIC).digest())
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accept.decode())
        self.end_headers()
        self.close_connection = True
        while True:
            opcode, payload = self.frame()
            self.wfile.write(bytes([0x80 | opcode]) + head(len(payload)) + payload)
            self.wfile.flush()
            if opcode == 8:
                return

    def frame(self):
        first, second = self.rfile.read(2)
        length = second & 0x7F
        if length == 126:
            (length,) = struct.unpack("!H", self.rfile.read(2))
        elif length == 127:
            (length,) = struct.unpack("!Q", self.rfile.read(8))
        mask = self.rfile.read(4)
        payload = bytes(byte ^ mask[at % 4] for at, byte in enumerate(self.rfile.read(length)))
        return first & 0x0F, payload

    def address_string(self):
        return "client"


def head(length):
    """The length of an unmasked frame."""
    if length < 126:
        return bytes([length])
    return b"\x7e" + struct.pack("!H", length) if length < 65536 else b"\x7f" + struct.pack("!Q", length)


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def server_bind(self):
        """Skips the lookup of its own name, which is slow without a name server."""
        self.socket.bind(self.server_address)
        self.server_name, self.server_port = "guest", self.server_address[1]


Server((sys.argv[2] if len(sys.argv) > 2 else "0.0.0.0", int(sys.argv[1])), Handler).serve_forever()
