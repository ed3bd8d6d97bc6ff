"""A guarded call with a guard that fails once. Prints what came of it, and what the guard was asked, as JSON.

failures.py CASE, where CASE is
- `seal`: the guard answers the first seal with 500;
- `reconcile`: the guard answers a finding with 404.
"""

import io
import json
import sys
import urllib.error
from email.message import Message

from counterfoil import Guard

(case,) = sys.argv[1:]
asked = []


def answer(path, data, timeout):
    verb = path.rsplit("/", 1)[-1]
    asked.append(verb)
    if case == "seal" and asked == ["begin", "seal"] or verb == "reconcile":
        status = 500 if verb == "seal" else 404
        raise urllib.error.HTTPError("http://guard.example", status, "failed", Message(), io.BytesIO(b"{}"))
    if verb == "seal":
        return {"step": "done", "output": "sealed"}
    if asked != ["begin"]:
        return {"step": "done", "output": "by another"}
    step = "send" if case == "seal" else "look"
    return {"step": step, "permit": "p", "key": "refund/9", "idempotency_key": "k", "attempt": 1, "use_ms": 10_000}


guard = Guard("http://guard.example", "t")
guard._http._post = answer


@guard.guarded("refund", key="{order}", lookup=lambda order: "found")
def refund(order):
    return "made"


done = refund("9")
print(json.dumps({"done": done, "asked": asked}))
