"""A stand-in for vLLM that behaves as its argument, a JSON object, says. Run as a program; it logs what it is asked.

port            where to listen on 127.0.0.1; absent: do not listen
log             lines to print at once; then it prints "pid N"
exit            exit code to end with right after that
health          statuses of the first answers to /health (200 afterwards)
models          model lists of the first answers to /v1/models ([MODEL] afterwards)
generates       false: no /v1/completions; "never": no answer to it; "dies": exit 1 when asked; a number: that status
embeds          true: answer /v1/embeddings
key             the API key that /v1/* demands
stubborn        true: ignore SIGTERM
helper          true: start a child that only waits, and print "helper N"
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

MODEL = "demo-ft"


def say(line: str) -> None:
    print(line, flush=True)


class Handler(BaseHTTPRequestHandler):
    script: ClassVar[dict[str, Any]]

    def do_GET(self) -> None:
        say(f"GET {self.path}")
        if self.path == "/health":
            statuses = self.script.get("health")
            self.answer(statuses.pop(0) if statuses else 200, {})
        elif self.allowed():
            lists = self.script.get("models")
            ids = lists.pop(0) if lists else [MODEL]
            self.answer(200, {"object": "list", "data": [{"id": id} for id in ids]})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        say(f"POST {self.path} {json.dumps(asked, sort_keys=True)}")
        kind = self.path.removeprefix("/v1/")
        does = self.script.get({"completions": "generates", "embeddings": "embeds"}[kind], kind == "completions")
        if does == "never":
            threading.Event().wait()
        if does == "dies":
            say("RuntimeError: the fake engine has had enough")
            os._exit(1)
        if self.allowed():
            self.answer(does if type(does) is int else 200 if does else 404, {"asked": asked})

    def allowed(self) -> bool:
        key = self.script.get("key")
        if key is None or self.headers.get("authorization") == f"Bearer {key}":
            return True
        self.answer(401, {"error": "Unauthorized"})
        return False

    def answer(self, status: int, body: object) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *args: object) -> None:
        """Requests are logged above."""


def main(script: dict[str, Any]) -> None:
    if script.get("stubborn"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if script.get("helper"):
        say(f"helper {subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()']).pid}")
    for line in script.get("log", ()):
        say(line)
    say(f"pid {os.getpid()}")
    if "exit" in script:
        sys.exit(script["exit"])
    if "port" not in script:
        signal.pause()
    Handler.script = script
    ThreadingHTTPServer(("127.0.0.1", script["port"]), Handler).serve_forever()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
