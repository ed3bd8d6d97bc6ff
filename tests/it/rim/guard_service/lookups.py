"""A process that serves the lookups of a tool, with a guard and clocks of its own. Prints what it found as JSON.

The guard answers 503 for longer than the client is patient. Then it offers a lookup whose finding comes too late (404), and one whose
finding it takes.
"""

import io
import json
import types
import urllib.error
from email.message import Message

from counterfoil import Guard, _clock, _guard, _http

now = 0.0


def sleep(seconds):
    global now
    now += seconds


_clock.time = _guard.time = _http.time = types.SimpleNamespace(time=lambda: now, monotonic=lambda: now, sleep=sleep)

asked = []


class Enough(Exception):
    """There is no further lookup."""


def failed(status):
    return urllib.error.HTTPError("http://guard.example", status, "failed", Message(), io.BytesIO(b"{}"))


def answer(path, data, timeout):
    verb = path.rsplit("/", 1)[-1]
    if now < 60:
        raise failed(503)
    if verb == "poll" and asked.count("reconcile") == 2:
        raise Enough
    asked.append(verb)
    if verb == "poll":
        permitted = {"permit": "p", "key": "refund/9", "idempotency_key": "k", "attempt": 1, "use_ms": 10_000}
        return {"step": "look", "input": {"order": "9"}, **permitted}
    if asked.count("reconcile") == 1:
        raise failed(404)
    return {"step": "idle"}


guard = Guard("http://guard.example", "t", patience=1.0)
guard._http._post = answer
found = []


@guard.guarded("refund", key="{order}", lookup=found.append)
def refund(order):
    return "made"


try:
    guard.serve_lookups(refund)
except Enough:
    print(json.dumps({"found": found, "asked": asked}))
