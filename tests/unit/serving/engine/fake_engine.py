"""A stand-in for vLLM that behaves as its first argument, a JSON object, says. Run as a program; it logs what it is
asked. `--port N` after it: where to listen on 127.0.0.1; absent: it does not.

log             lines to print at once; then it prints "pid N"
exit            exit code to end with right after that
health          statuses of the first answers to /health (200 afterwards)
models          model lists of the first answers to /v1/models ([MODEL] afterwards)
generates       false: no /v1/completions; "never": no answer to it; "dies": exit 1 when asked; a number: that status
chats           "never": no answer to /v1/chat/completions; otherwise 404
embeds          true: answer /v1/embeddings
key             the API key that /v1/* demands
stubborn        true: ignore SIGTERM
metrics         lines of /metrics; a file's name: its text, read each time
once            a file: it is written at the first start, and `exit` holds only where it is there already
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
        elif self.path == "/metrics":
            told = self.script.get("metrics", "vllm:num_requests_running 0\n")
            self.answer(200, open(told).read() if told.startswith("/") else told)  # noqa: SIM115
        elif self.allowed():
            lists = self.script.get("models")
            ids = lists.pop(0) if lists else [MODEL]
            self.answer(200, {"object": "list", "data": [{"id": id} for id in ids]})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        say(f"POST {self.path} {json.dumps(asked, sort_keys=True)}")
        kind = self.path.removeprefix("/v1/")
        if kind == "chat/completions":
            if self.script.get("chats") == "never":
                threading.Event().wait()
            return self.answer(404, {})
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
        self.wfile.write(body.encode() if isinstance(body, str) else json.dumps(body).encode())

    def log_message(self, *args: object) -> None:
        """Requests are logged above."""


def main(script: dict[str, Any], port: int | None) -> None:
    if script.get("stubborn"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if script.get("helper"):
        say(f"helper {subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()']).pid}")
    for line in script.get("log", ()):
        say(line)
    say(f"pid {os.getpid()}")
    if "exit" in script and ("once" not in script or os.path.exists(script["once"])):
        sys.exit(script["exit"])
    if "once" in script:
        open(script["once"], "w").close()
    while port is None:
        signal.pause()
    Handler.script = script
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), int(sys.argv[3]) if len(sys.argv) > 3 else None)
