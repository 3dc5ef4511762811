"""A subscriber in a process of its own: it keeps each call in a file, a line each, and can be killed at any moment."""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Receiver(BaseHTTPRequestHandler):
    """Keeps a call before it answers 204."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        length = int(self.headers["content-length"])
        body = self.rfile.read(length)
        if len(body) < length:
            # The gateway died while it sent: this was no call.
            self.close_connection = True
            return
        kept = {"headers": {name.lower(): value for name, value in self.headers.items()}, "body": body.decode()}
        with Path(sys.argv[2]).open("a") as file:
            file.write(f"{json.dumps(kept)}\n")
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver).serve_forever()
