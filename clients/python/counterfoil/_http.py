"""Requests to the guard. Each of them is safe to repeat, so a request without an answer is sent again."""

import http.client
import json
import time
import urllib.error
import urllib.request

from ._clock import Since
from ._errors import GuardError, Refused

# Statuses after which the same request may be answered.
LATER = {429, 502, 503, 504}


def _is_later(path, status):
    # A seal is repeated after any failure of the guard: what is known of the call would be lost with it.
    return status in LATER or status == 500 and path.endswith("/seal")


class Http:
    def __init__(self, url, token, patience):
        self._url = url.rstrip("/")
        self._token = token
        self._patience = patience

    def post(self, path, body):
        """The answer to a request, and the instant before it was sent. Repeats it until there is an answer, for as long as the client
        is patient."""
        data = json.dumps(body, allow_nan=False).encode()
        # A request waits for its step at the guard, and somewhat longer here.
        timeout = body.get("wait_ms", 10_000) / 1000 + 30
        until = time.monotonic() + self._patience
        pause = 0.05
        while True:
            sent = Since()  # the tries before this one take nothing from the time of a permit
            try:
                return self._post(path, data, timeout), sent
            except urllib.error.HTTPError as error:
                refused = _refused(error)
                if not _is_later(path, error.code):
                    raise refused from None
                pause = max(pause, _retry_after(error))
                missed = refused
            except (OSError, ValueError, http.client.HTTPException) as error:  # not reached, broken off, or no JSON
                missed = GuardError(f"the guard at {self._url} does not answer: {error}")
            if time.monotonic() + pause > until:
                raise missed
            time.sleep(pause)
            pause = min(pause * 2, 5.0)

    def _post(self, path, data, timeout):
        headers = {"authorization": f"Bearer {self._token}", "content-type": "application/json"}
        request = urllib.request.Request(self._url + path, data, headers, method="POST")
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return json.load(answer)


def _refused(error):
    try:
        problem = json.load(error)
        code = problem["type"].rsplit(":", 1)[-1]
        return Refused(error.code, code, problem.get("detail") or problem["title"])
    except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException):
        return Refused(error.code, "http", f"the guard answered {error.code}")


def _retry_after(error):
    try:
        return float(error.headers.get("retry-after", 0))
    except ValueError:
        return 0.0
