"""Guard a function that touches the world: no silent duplicate, no silent loss.

    from counterfoil import Guard

    guard = Guard("http://127.0.0.1:4180", token=os.environ["COUNTERFOIL_TOKEN"])

    @guard.guarded("refund", key="{order}")
    def refund(order, cents, *, call):
        return bank.refund(order, cents, idempotency_key=call.idempotency_key)

The first call of ``refund("order-9", 1200)`` is recorded, made, and sealed with its result. Each later call under the same key, in
any process, returns that result and does nothing. If a process died in the middle, nobody makes the call again unless a lookup has
shown that it did not happen.
"""

from ._errors import (
    CallFailed,
    GuardError,
    NeedsApproval,
    NoJson,
    NotRecorded,
    Refused,
    Stopped,
)
from ._guard import Call, Duplicated, Guard, NotFound, Unknown

__all__ = [
    "Call",
    "CallFailed",
    "Duplicated",
    "Guard",
    "GuardError",
    "NeedsApproval",
    "NoJson",
    "NotFound",
    "NotRecorded",
    "Refused",
    "Stopped",
    "Unknown",
]
