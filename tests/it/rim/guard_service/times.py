"""A guarded call with a guard and clocks of its own. Prints what came of it as JSON.

times.py CASE, where CASE is
- `sleeps`: the machine sleeps for an hour when the permit is there, and its monotonic clock stands still;
- `busy`: the guard answers 503 for more than the time of a permit.
"""

import io
import json
import sys
import types
import urllib.error
from email.message import Message

from counterfoil import Guard, _clock, _http

(case,) = sys.argv[1:]
now = {"wall": 0.0, "monotonic": 0.0}


def sleep(seconds):
    now["wall"] += seconds
    now["monotonic"] += seconds


clock = types.SimpleNamespace(time=lambda: now["wall"], monotonic=lambda: now["monotonic"], sleep=sleep)
_clock.time = _http.time = clock

send = {"step": "send", "permit": "p", "key": "refund/9", "idempotency_key": "k", "attempt": 1, "use_ms": 10_000}
given = []  # the permits


def answer(path, data, timeout):
    if case == "busy" and now["wall"] < 15:
        raise urllib.error.HTTPError("http://guard.example", 503, "busy", Message(), io.BytesIO(b"{}"))
    if path.endswith("seal"):
        return {"step": "done", "output": "sealed"}
    if given:
        return {"step": "done", "output": "by another"}
    given.append(path)
    if case == "sleeps":
        now["wall"] += 3600
    return send


guard = Guard("http://guard.example", "t")
guard._http._post = answer
calls = []


@guard.guarded("refund", key="{order}")
def refund(order):
    calls.append(order)


done = refund("9")
print(json.dumps({"done": done, "calls": len(calls)}))
