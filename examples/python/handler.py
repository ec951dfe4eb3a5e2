"""Bills orders: python3 handler.py PORT DATABASE

`postrider consume` posts each event as a CloudEvent. The answer decides what happens next:
2xx, done; 409, 425, 429, 5xx, again later; other 4xx, a dead letter.
"""

import json
import sqlite3
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def bill(database: str, key: str, event: dict) -> str:
    """Writes one bill per key, however often it is called."""
    order = event["data"]
    db = sqlite3.connect(database, timeout=5)
    with db:  # one transaction
        db.execute(
            "create table if not exists bills (key text primary key, customer_order, total_cents)"
        )
        db.execute(
            "insert into bills values (?, ?, ?) on conflict (key) do nothing",
            (key, order["order"], order["total_cents"]),
        )
    db.close()
    return f"billed order {order['order']}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            text, status = bill(self.server.database, self.headers["idempotency-key"], json.loads(body)), 200
        except (KeyError, ValueError) as problem:
            text, status = f"not an order: {problem!r}", 422  # trying again would not help
        self.send_response(status)
        self.send_header("content-length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
    server.database = sys.argv[2]
    print(f"listening on {server.server_port}", flush=True)
    server.serve_forever()
