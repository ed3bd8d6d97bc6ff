"""A guarded call with a guard and clocks of its own. Prints what came of it as JSON.

times.py CASE, where CASE is `sleeps`: the machine sleeps for an hour when the permit is there. The monotonic clock stands still.
"""

import json
import sys
import types

from counterfoil import Guard, _clock

(case,) = sys.argv[1:]
now = {"wall": 0.0, "monotonic": 0.0}
_clock.time = types.SimpleNamespace(time=lambda: now["wall"], monotonic=lambda: now["monotonic"])

send = {"step": "send", "permit": "p", "key": "refund/9", "idempotency_key": "k", "attempt": 1, "use_ms": 10_000}
begun = []


def answer(path, body):
    begun.append(path)
    if path.endswith("begin") and len(begun) == 1:
        now["wall"] += 3600
        return send
    return {"step": "done", "output": "by another"}


guard = Guard("http://guard.example", "t")
guard._http.post = answer
calls = []


@guard.guarded("refund", key="{order}")
def refund(order):
    calls.append(order)


done = refund("9")
print(json.dumps({"done": done, "calls": len(calls)}))
