"""The errors of a guarded call."""


class GuardError(Exception):
    """A guarded call has no result. The text says what is known of the call."""


class Refused(GuardError):
    """The guard refused the request: a malformed key, a token without the right, a permit of somebody else."""

    def __init__(self, status, code, detail):
        super().__init__(f"{detail} ({status} {code})")
        self.status = status
        self.code = code


class NotRecorded(GuardError):
    """The call was made, and the guard could not be told. Call again: the guard looks the call up, or asks a person."""


class NoJson(GuardError):
    """The call was made and is recorded as done, without its output: the output is no JSON that the guard can record, or its external
    reference is unusable."""


class NeedsApproval(GuardError):
    """A person has to approve the call first. Nothing was sent. Call again later, with the same input."""

    def __init__(self, review, version):
        super().__init__(f"version {version} of {review} waits for an approval; nothing was sent")
        self.review = review
        self.version = version


class Stopped(GuardError):
    """The call is not made, and is not to be made in another way.

    ``reason`` is a word such as ``failed``, ``conflict`` or ``needs_decision``. ``question`` is the id of the question that a
    person has to answer, if there is one.
    """

    def __init__(self, reason, text, question):
        super().__init__(text)
        self.reason = reason
        self.question = question


class CallFailed(Exception):
    """Raised by a guarded function that knows how its call has failed.

    ``kind`` says if the call can have had an effect: ``validation``, ``unreachable``, ``rate_limited``, ``duplicate`` and so on.
    Every other exception means that the call may have happened. ``retry_after`` is the pause that the provider asks for, in seconds.
    The message goes into the record: no secrets.
    """

    def __init__(self, kind, message, retry_after=None):
        super().__init__(message)
        self.kind = kind
        self.retry_after = retry_after
