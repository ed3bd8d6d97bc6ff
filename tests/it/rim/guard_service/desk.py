"""A desk that makes one refund under the guard, and prints what came of it as JSON.

desk.py URL TOKEN BOOK ORDER CENTS HOW, where HOW is words such as `lookup,raise`, and BOOK is the provider's file of refunds.
"""

import asyncio
import json
import sys

from counterfoil import CallFailed, Guard, NeedsApproval, NoJson, NotFound, Refused, Stopped

url, token, book, order, cents, how = sys.argv[1:]
how = how.split(",")
guard = Guard(url, token, patience=5.0)


def entries():
    try:
        with open(book) as lines:
            return lines.read().split()
    except FileNotFoundError:
        return []


def stops(where):
    """Waits for the test, which kills this process."""
    if where in how:
        print(where, flush=True)
        sys.stdin.read()


def find(order, cents):
    if order not in entries():
        raise NotFound
    return {"refund": order}


def enter(order, cents, call):
    stops("before")
    if "refuse" in how:
        raise CallFailed("validation", "no such order")
    with open(book, "a") as lines:
        lines.write(f"{order}\n")
    stops("after")
    if "raise" in how:
        raise OSError("connection reset")
    if "no-json" in how:
        return object()
    if "big" in how:
        return {"refund": order, "id": 2**60}
    if "kind" in how:
        raise CallFailed("nonsense", "a kind that no guard knows")
    return {"refund": order, "key": call.idempotency_key}


declared = {"key": "{order}", "lookup": find if "lookup" in how else None, "attempt_ms": 10_000, "settle_ms": 70_000}
if "review" in how:
    declared["reviewers"] = ["ann"]


def reference(output):
    return 7 if "number" in how else output["refund"]


@guard.guarded("refund", external_ref=reference, **declared)
def refund(order, cents, *, call):
    return enter(order, cents, call)


@guard.guarded("refund", external_ref=reference, **declared)
async def refund_later(order, cents, *, call):
    await asyncio.sleep(0)
    return enter(order, cents, call)


try:
    if "async" in how:
        came = {"done": asyncio.run(refund_later(order, int(cents)))}
    else:
        came = {"done": refund(order, int(cents))}
except Stopped as stopped:
    came = {"stopped": stopped.reason}
except NeedsApproval as waits:
    came = {"approve": waits.version}
except NoJson:
    came = {"no_json": True}
except Refused as refused:
    came = {"refused": refused.code}
print(json.dumps(came))
