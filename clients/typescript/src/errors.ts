/** A guarded call has no result. The message says what is known of the call. */
export class GuardError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** The guard refused the request: a malformed key, a token without the right, a permit of somebody else. */
export class Refused extends GuardError {
  constructor(readonly status: number, readonly code: string, detail: string) {
    super(`${detail} (${status} ${code})`);
  }
}

/** The call was sent, and the guard could not be told. Call again: the guard has it looked up, or asks a person. */
export class NotRecorded extends GuardError {}

/** The call was made and is recorded as done, without its output: the output is no JSON. */
export class NoJson extends GuardError {}

/** A person has to approve the call first. Nothing was sent. Call again later, with the same input. */
export class NeedsApproval extends GuardError {
  constructor(readonly review: string, readonly version: number) {
    super(`version ${version} of ${review} waits for an approval; nothing was sent`);
  }
}

/** The call is not made, and is not to be made in another way. */
export class Stopped extends GuardError {
  /**
   * @param reason A word such as `failed`, `conflict` or `needs_decision`.
   * @param question The id of the question that a person has to answer, if there is one.
   */
  constructor(readonly reason: string, text: string, readonly question?: string, options?: ErrorOptions) {
    super(text, options);
  }
}

/**
 * Thrown by a guarded function that knows how its call has failed. Everything else that it throws means that the call may have happened.
 */
export class CallFailed extends Error {
  override name = "CallFailed";

  /**
   * @param kind Says if the call can have had an effect: `validation`, `unreachable`, `rate_limited`, `duplicate` and so on.
   * @param message Goes into the record: no secrets.
   * @param retryAfterMs The pause that the provider asks for.
   */
  constructor(readonly kind: string, message: string, readonly retryAfterMs?: number) {
    super(message);
  }
}
