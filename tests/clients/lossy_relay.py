"""A relay before a coordinator that loses the first answer to every POST.

The request arrives, the calls run, and the connection closes without a byte: what a client sees
when a coordinator or a proxy before it dies at the worst time.
"""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any

import httpx2

TIMEOUT_S = 60.0


class LossyRelay(ThreadingHTTPServer):
    """Relays on a free port of the loopback while its `with` lasts."""

    daemon_threads = True

    def __init__(self, target: str) -> None:
        super().__init__(("127.0.0.1", 0), Relaying)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.target = httpx2.Client(base_url=target, timeout=TIMEOUT_S, trust_env=False)
        # By path: answers that were lost, and those that arrived.
        self.lost: dict[str, Any] = {}
        self.arrived: dict[str, Any] = {}
        self.lock = Lock()

    def __enter__(self) -> "LossyRelay":
        Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()
        self.target.close()


class Relaying(BaseHTTPRequestHandler):
    server: LossyRelay
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.give(self.server.target.get(self.path))

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {"Content-Type": self.headers["Content-Type"]}
        answer = self.server.target.post(self.path, content=content, headers=headers)
        with self.server.lock:
            is_lost = self.path not in self.server.lost
            kept = self.server.lost if is_lost else self.server.arrived
            kept[self.path] = json.loads(answer.content)
        if is_lost:
            self.close_connection = True
        else:
            self.give(answer)

    def give(self, answer: httpx2.Response) -> None:
        self.send_response(answer.status_code)
        self.send_header("Content-Type", answer.headers["Content-Type"])
        self.send_header("Content-Length", str(len(answer.content)))
        self.end_headers()
        self.wfile.write(answer.content)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: what was relayed is in `lost` and `arrived`."""
