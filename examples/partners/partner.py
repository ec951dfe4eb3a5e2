"""A partner: python3 partner.py PORT [--gone]

Takes webhooks signed as Standard Webhooks says, and prints the ids of those it takes.
The key is in PARTNER_KEY, or the one of the example for the port.
"""

import base64
import hashlib
import hmac
import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOLERANCE_SECONDS = 300


def verify(headers, body: bytes, secret: str) -> bool:
    """Whether the body was signed with the secret, and not long ago."""
    identity, timestamp = headers["webhook-id"], headers["webhook-timestamp"]
    if abs(time.time() - int(timestamp)) > TOLERANCE_SECONDS:
        return False
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{identity}.{timestamp}.".encode() + body
    expected = b"v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest())
    # While a key is being replaced there are two signatures.
    given = headers["webhook-signature"].encode().split(b" ")
    return any(hmac.compare_digest(expected, one) for one in given)


class Partner(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.server.gone:
            status = 410
        elif not verify(self.headers, body, self.server.secret):
            status = 401
        else:
            status = 204
            event = json.loads(body)
            print(f"{event['id']} {event['type']} {json.dumps(event['data'])}", flush=True)
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Partner)
    server.gone = "--gone" in sys.argv
    names = {8001: "ACME_KEY", 8002: "GLOBEX_KEY"}
    server.secret = os.environ.get("PARTNER_KEY") or os.environ[names[server.server_port]]
    print(f"listening on {server.server_port}", flush=True)
    server.serve_forever()
