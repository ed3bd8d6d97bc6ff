"""The guard as a decorator: begin, make the call, seal."""

import asyncio
import dataclasses
import functools
import inspect
import json
import logging
import time
from typing import Optional

from ._errors import CallFailed, GuardError, NeedsApproval, NoJson, NotRecorded, Refused, Stopped
from ._http import Http


# Statuses after which the same permit may be told something else: the guard cannot record what was said.
UNFIT = {400, 413, 422}

# Statuses of a token that the guard does not take.
NO_RIGHT = {401, 403}

# The pauses in seconds after an error while lookups are served.
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0

_log = logging.getLogger("counterfoil")


class NotFound(Exception):
    """Raised by a lookup to which the provider shows no effect of the call."""


class Unknown(Exception):
    """Raised by a lookup that got no answer, or none that tells."""


class Duplicated(Exception):
    """Raised by a lookup to which the provider shows more than one effect of the call. ``outputs`` has the output of each, the first
    one first. The first effect is kept, and a person is asked about the others."""

    def __init__(self, outputs):
        super().__init__(f"{len(outputs)} effects of one call")
        self.outputs = outputs


@dataclasses.dataclass(frozen=True)
class Call:
    """One attempt or one lookup of a guarded call."""

    #: The key for the provider: the same in each attempt.
    idempotency_key: str
    #: The operation, for people.
    key: str
    #: The number of the attempt, from 1.
    attempt: int
    #: The instant before which no request of the operation left (RFC 3339, UTC), if it is known.
    first_sent: Optional[str] = None
    #: The provider's id that an earlier attempt noted.
    external_ref: Optional[str] = None


class Guard:
    """The guard service of a ledger.

    ``tenant`` is needed with a token for all tenants. ``patience`` is the longest time in seconds for which a request without an
    answer is repeated.
    """

    def __init__(self, url, token, *, tenant=None, patience=60.0):
        self._path = f"/tenants/{tenant}/guard/" if tenant else "/guard/"
        self._http = Http(url, token, patience)

    def guarded(self, tool, *, key, lookup=None, external_ref=None, **declared):
        """Guards a function, synchronous or asynchronous.

        ``key`` names one call for ever: a format string of the arguments, such as ``"{order}"``, or a function of them. The
        arguments are the input of the call and its output is recorded, so both are JSON. Another input under the same key is a
        conflict. A parameter named ``call`` is given the :class:`Call`.

        ``lookup`` is called with the same arguments and finds out what became of a call of unknown outcome: it returns the
        output, or raises :class:`NotFound`, :class:`Unknown` or :class:`Duplicated`. ``external_ref`` takes the provider's id from an output.

        ``declared`` is what the tool declares to the guard: ``effect``, ``contract``, ``attempt_ms``, ``settle_ms``,
        ``key_window_ms`` (for how long the provider remembers a key), ``key_max_len``, ``scope``,
        ``confirm`` (``always`` where a process serves the lookups), ``reviewers``, ``labels``, ``without_approval``, ``wait_ms``.
        """

        def decorate(function):
            guarded = _Guarded(tool, function, lookup, external_ref)
            declares = {"tool": tool, "lookup": lookup is not None, **declared}

            def begun(args, kwargs):
                given = guarded.bound(args, kwargs)
                named = key.format(**given.arguments) if isinstance(key, str) else key(**given.arguments)
                return given, {**declares, "key": named, "input": dict(given.arguments)}

            if inspect.iscoroutinefunction(function):

                @functools.wraps(function)
                async def asynchronous(*args, **kwargs):
                    return await guarded.call(*begun(args, kwargs), functools.partial(asyncio.to_thread, self._post))

                asynchronous.guarded = guarded
                return asynchronous

            @functools.wraps(function)
            def synchronous(*args, **kwargs):
                return _without_waiting(guarded.call(*begun(args, kwargs), self._post))

            synchronous.guarded = guarded
            return synchronous

        return decorate

    def serve_lookups(self, function):
        """Makes the lookups of a guarded function for calls whose clients are gone, and for payments that are confirmed. Never returns:
        run it in a process or a thread of its own.

        While the guard fails, it goes on after a growing pause, and logs a warning. It raises :class:`Refused` if the token is not
        taken (401, 403)."""
        pause = FIRST_PAUSE
        while True:
            try:
                self.look(function)
                pause = FIRST_PAUSE
            except GuardError as error:
                if isinstance(error, Refused) and error.status in NO_RIGHT:
                    raise
                _log.warning("lookups not served for %s s: %s", pause, error)
                time.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)

    def look(self, function, wait=10.0):
        """Makes one lookup of a guarded function that waits for a client. False if there was none within ``wait`` seconds."""
        return asyncio.run(function.guarded.looked(self._post, wait))

    def _post(self, verb, body):
        return self._http.post(self._path + verb, body)


class _Guarded:
    """A guarded function. ``call`` serves synchronous functions, too: then it waits for nothing."""

    def __init__(self, tool, function, lookup, external_ref):
        self._tool = tool
        self._function = function
        self._lookup = lookup
        self._external_ref = external_ref
        signature = inspect.signature(function)
        kept = [parameter for name, parameter in signature.parameters.items() if name != "call"]
        self._signature = signature.replace(parameters=kept)

    def bound(self, args, kwargs):
        given = self._signature.bind(*args, **kwargs)
        given.apply_defaults()
        return given

    async def call(self, given, begin, post):
        """Takes one step after the other, until the call is done or stopped."""
        raised = None
        step, asked = await _waited(post("begin", begin))  # a permit's time counts from before the request that it answers
        while True:
            verb = step["step"]
            if verb == "done":
                if isinstance(raised, NoJson):
                    raise raised
                return step["output"]
            if verb == "approve":
                raise NeedsApproval(step["review"], step["version"])
            if verb == "stopped":
                raise Stopped(step["reason"], step["text"], step.get("question")) from raised
            is_late = verb in ("send", "look") and asked.seconds() > step["use_ms"] / 1000
            if verb == "in_flight" or is_late:
                step, asked = await _waited(post("begin", begin))
            elif verb == "send":
                outcome, raised = await self._made(given, step)
                step, asked, raised = await self._sealed(step, outcome, raised, post)
            elif verb == "look":
                finding = await self._found(given, step)
                try:
                    step, asked, unfit = await _told(post, "reconcile", step, "finding", finding)
                except Refused as refused:
                    if refused.status != 404:
                        raise
                    # The guard knows the permit no more. Nothing was sent under it, so the call is begun again.
                    step, asked = await _waited(post("begin", begin))
                    unfit = None
                raised = unfit or raised
            else:
                raise GuardError(f"the guard answered with an unknown step: {verb}")

    async def _made(self, given, step):
        """Makes the call. Returns its outcome, and what was raised."""
        try:
            output = await _waited(self._function(*given.args, **given.kwargs, **_call(self._function, step)))
        except CallFailed as failure:
            failed = {"kind": failure.kind, "message": str(failure)}
            if failure.retry_after is not None:
                failed["retry_after_ms"] = int(failure.retry_after * 1000)
            return {"failed": failed}, failure
        except BaseException as failure:
            # The request may have left before it; this holds for Ctrl-C, too.
            return {"failed": {"kind": "unknown", "message": type(failure).__name__}}, failure
        try:
            return {"done": self._done(output)}, None
        except Exception as failure:
            # The call was made, so it is sealed as done whatever its output is.
            return {"done": {"output": None}}, NoJson(f"{step['key']} was made, and its output is no JSON: {failure}")

    async def _sealed(self, step, outcome, raised, post):
        """Seals the call. Returns the next step, the instant before it was asked for, and what is to be raised if the call is done."""
        try:
            following, asked, unfit = await _told(post, "seal", step, "outcome", outcome)
        except Refused:
            raise
        except GuardError as error:
            raise NotRecorded(f"{step['key']} was sent, and the guard could not be told: {error}") from raised
        if raised is not None and not isinstance(raised, Exception):
            raise raised  # the process or the task is to end
        return following, asked, raised or unfit

    async def looked(self, post, wait):
        """Makes one lookup for which the guard has no client. False if there was none."""
        step, asked = post("poll", {"tool": self._tool, "wait_ms": int(wait * 1000)})
        if step["step"] != "look":
            return False
        if asked.seconds() <= step["use_ms"] / 1000:
            given = inspect.BoundArguments(self._signature, dict(step["input"]))
            finding = await self._found(given, step)
            try:
                await _told(post, "reconcile", step, "finding", finding)
            except Refused as refused:
                if refused.status != 404:
                    raise
                # The guard knows the permit no more: the lookup came too late, and another one follows.
        return True

    async def _found(self, given, step):
        """Looks the call up. Returns the finding."""
        try:
            output = await _waited(self._lookup(*given.args, **given.kwargs, **_call(self._lookup, step)))
            return {"happened": self._done(output)}
        except NotFound:
            return "not_found"
        except Duplicated as found:
            return self._duplicated(found.outputs)
        except Exception:
            return "unknown"

    def _duplicated(self, outputs):
        try:
            return {"duplicated": {"effects": [self._done(output) for output in outputs]}}
        except Exception:
            return "unknown"

    def _done(self, output):
        json.dumps(output, allow_nan=False)
        external_ref = self._external_ref(output) if self._external_ref else None
        return {"output": output, "external_ref": None if external_ref is None else str(external_ref)}


def _call(function, step):
    """The :class:`Call` for a function that takes one."""
    if "call" not in inspect.signature(function).parameters:
        return {}
    fields = {field.name: step.get(field.name) for field in dataclasses.fields(Call)}
    return {"call": Call(**fields)}


async def _told(post, verb, step, name, said):
    """Tells the guard. Returns the next step, the instant before it was asked for, and what is to be raised because the guard could not
    record an output."""
    try:
        return *await _waited(post(verb, {"permit": step["permit"], name: said})), None
    except Refused as refused:
        certain = _certain(said)
        if refused.status not in UNFIT or certain == said:
            raise
        following, asked = await _waited(post(verb, {"permit": step["permit"], name: certain}))
        return following, asked, NoJson(f"{step['key']} was made, and its output cannot be recorded: {refused}")


def _certain(said):
    """What is certain about a call, without what the guard could not record."""
    if isinstance(said, dict) and "failed" in said:
        return {"failed": {"kind": "unknown", "message": "the failure could not be recorded"}}
    if isinstance(said, dict) and "duplicated" in said:
        effects = [{**effect, "output": None} for effect in said["duplicated"]["effects"]]
        return {"duplicated": {"effects": effects}}
    return {word: {"output": None} for word in said} if isinstance(said, dict) else said


async def _waited(made):
    return await made if inspect.isawaitable(made) else made


def _without_waiting(coroutine):
    """The result of a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        return ended.value
    coroutine.close()
    raise TypeError("a synchronous function has an asynchronous lookup: make the function asynchronous, too")
