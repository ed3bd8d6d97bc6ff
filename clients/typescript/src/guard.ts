import type { Since } from "./clock.js";
import { CallFailed, GuardError, NeedsApproval, NoJson, NotRecorded, Refused, Stopped } from "./errors.js";
import { Http, json } from "./http.js";

/** One attempt or one lookup of a guarded call. */
export interface Call {
  /** The key for the provider: the same in each attempt. */
  readonly idempotencyKey: string;
  /** The operation, for people. */
  readonly key: string;
  /** The number of the attempt, from 1. */
  readonly attempt: number;
  /** The instant before which no request of the operation left (RFC 3339, UTC), if it is known. */
  readonly firstSent: string | undefined;
  /** The provider's id that an earlier attempt noted. */
  readonly externalRef: string | undefined;
}

/** Returned by a lookup to which the provider shows no effect of the call. */
export const notFound: unique symbol = Symbol("not found");
/** Returned by a lookup that got no answer, or none that tells. A lookup that throws says the same. */
export const unknown: unique symbol = Symbol("unknown");

/** More than one effect of one call. */
export class Duplicated<Output> {
  /** @param outputs The output of each effect, the first one first. The first effect is kept, and a person is asked about the others. */
  constructor(readonly outputs: Output[]) {}
}

/** What a lookup finds. */
export type Found<Output> = Output | Duplicated<Output> | typeof notFound | typeof unknown;

/** The terms of a guarded function. */
export interface Terms<Input, Output> {
  /** Names one call for ever. Another input under the same key is a conflict. */
  key: (input: Input) => string;
  /** Finds out what became of a call of unknown outcome. */
  lookup?: (input: Input, call: Call) => Promise<Found<Output>>;
  /** The provider's id in an output. */
  externalRef?: (output: Output) => string | number;
  /** The effect of the tool on the world. Default: `internal_mutation`. */
  effect?: string;
  /** The offer of the provider. Default: `lookup` with a lookup, and `blind` otherwise. */
  contract?: string;
  /** The timeout of one attempt and of one lookup, in milliseconds. Default: 30,000. */
  attemptMs?: number;
  /** The time after which a request that has left can no longer take effect, in milliseconds. Default: a minute. */
  settleMs?: number;
  /** The time for which the provider remembers a key, in milliseconds. Default: for ever. */
  keyWindowMs?: number;
  /** The maximum length of a key that the provider takes, in characters. Default: 64. */
  keyMaxLen?: number;
  /** The account, credential or region that the provider scopes its keys to. */
  scope?: string;
  /** The sends after which a call that is done is looked up once more: `always` where a process serves the lookups. Default: `after_doubt`. */
  confirm?: "after_doubt" | "always";
  /** The people of whom one approves the call before it goes out. */
  reviewers?: string[];
  /** The labels of the call, by which it is listed and erased: values by their names. */
  labels?: Record<string, string>;
  /** True if a notification or a deletion goes out without an approval. */
  withoutApproval?: boolean;
}

interface Permitted {
  permit: string;
  idempotency_key: string;
  key: string;
  input: unknown;
  attempt: number;
  use_ms: number;
  first_sent?: string;
  external_ref?: string;
}

type Step =
  | ({ step: "send" | "look" } & Permitted)
  | { step: "done"; output: unknown }
  | { step: "in_flight" | "idle" }
  | { step: "approve"; review: string; version: number }
  | { step: "stopped"; reason: string; text: string; question?: string };

/** What a call has thrown, if it has. */
type Thrown = { error: unknown } | undefined;

/** A step, and the instant before it was asked for: the time of its permit counts from there. */
type Next = { step: Step; asked: Since };

/** The next step, and what is to be thrown because the guard could not record an output. */
type Told = Next & { unfit?: Thrown };

/** Statuses after which the same permit may be told something else: the guard cannot record what was said. */
const UNFIT = new Set([400, 413, 422]);

/** Statuses of a token that the guard does not take. */
const NO_RIGHT = new Set([401, 403]);

/** The pauses after an error while lookups are served. */
const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 30_000;

/** The guard service of a ledger. */
export class Guard {
  private readonly http: Http;
  private readonly path: string;

  /** `tenant` is needed with a token for all tenants. `patienceMs` limits the repetition of requests without an answer. */
  constructor(url: string, token: string, options: { tenant?: string; patienceMs?: number } = {}) {
    this.http = new Http(url.replace(/\/+$/, ""), token, options.patienceMs ?? 60_000);
    this.path = options.tenant === undefined ? "/guard/" : `/tenants/${encodeURIComponent(options.tenant)}/guard/`;
  }

  /**
   * Guards a function: the same function, called once for each key. Its input and its output are JSON. Without a lookup, a call of unknown
   * outcome is a question for a person.
   */
  guarded<Input, Output>(
    tool: string,
    terms: Terms<Input, Output>,
    make: (input: Input, call: Call) => Promise<Output>,
  ): (input: Input) => Promise<Output> {
    return async (input) => {
      const { lookup, effect, contract, attemptMs, settleMs, keyWindowMs, keyMaxLen, scope, confirm } = terms;
      const { reviewers, labels, withoutApproval } = terms;
      const begin = {
        tool,
        key: terms.key(input),
        input,
        lookup: lookup !== undefined,
        effect,
        contract,
        attempt_ms: attemptMs,
        settle_ms: settleMs,
        key_window_ms: keyWindowMs,
        key_max_len: keyMaxLen,
        scope,
        confirm,
        reviewers,
        labels,
        without_approval: withoutApproval,
      };
      let thrown: Thrown;
      let { step, asked } = await this.next("begin", begin);
      for (;;) {
        const isLate = "use_ms" in step && asked.ms() > step.use_ms;
        if (step.step === "in_flight" || isLate) {
          ({ step, asked } = await this.next("begin", begin));
        } else if (step.step === "send") {
          const attempt = call(step);
          const made = await outcome(terms, () => make(input, attempt));
          thrown = made.thrown;
          const sealed = await this.sealed(step, made.outcome, thrown);
          ({ step, asked } = sealed);
          thrown ??= sealed.unfit;
        } else if (step.step === "look") {
          const attempt = call(step);
          const finding = lookup ? await found(terms, () => lookup(input, attempt)) : "unknown";
          const told = await this.reported(step, finding, begin);
          ({ step, asked } = told);
          thrown = told.unfit ?? thrown;
        } else {
          return end(step, thrown) as Output;
        }
      }
    };
  }

  /**
   * Makes one lookup of a tool that waits for a client: that of a call whose client is gone, or of a payment that is confirmed. False if
   * there was none within `waitMs`.
   */
  async look<Input, Output>(
    tool: string,
    terms: Pick<Terms<Input, Output>, "lookup" | "externalRef">,
    waitMs = 10_000,
  ): Promise<boolean> {
    const { step, asked } = await this.next("poll", { tool, wait_ms: waitMs });
    if (step.step !== "look") return false;
    const { lookup } = terms;
    if (asked.ms() <= step.use_ms) {
      const finding = lookup ? await found(terms, () => lookup(step.input as Input, call(step))) : "unknown";
      try {
        await this.tell("reconcile", step, "finding", finding);
      } catch (error) {
        // The guard knows the permit no more: the lookup came too late, and another one follows.
        if (!(error instanceof Refused && error.status === 404)) throw error;
      }
    }
    return true;
  }

  /**
   * Makes the lookups of a tool that wait for a client, until `signal` says that it is enough. While the guard fails, it goes on after a
   * growing pause, and warns on the console.
   *
   * @throws Refused if the token is not taken (401, 403).
   */
  async serveLookups<Input, Output>(
    tool: string,
    terms: Pick<Terms<Input, Output>, "lookup" | "externalRef">,
    signal?: AbortSignal,
  ): Promise<void> {
    let pauseMs = FIRST_PAUSE_MS;
    while (!signal?.aborted) {
      try {
        await this.look(tool, terms);
        pauseMs = FIRST_PAUSE_MS;
      } catch (error) {
        const hasNoRight = error instanceof Refused && NO_RIGHT.has(error.status);
        if (!(error instanceof GuardError) || hasNoRight) throw error;
        console.warn(`counterfoil: lookups not served for ${pauseMs} ms: ${error.message}`);
        await new Promise((resolve) => setTimeout(resolve, pauseMs));
        pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS);
      }
    }
  }

  private async next(verb: string, body: object): Promise<Next> {
    const { json, sent } = await this.http.post(this.path + verb, body);
    return { step: json as Step, asked: sent };
  }

  /** Tells the guard: the next step, and what is to be thrown because the guard could not record an output. */
  private async tell(verb: string, permitted: Permitted, name: string, said: unknown): Promise<Told> {
    const { permit, key } = permitted;
    try {
      return await this.next(verb, { permit, [name]: said });
    } catch (refused) {
      const certain = certainly(said);
      if (!(refused instanceof Refused && UNFIT.has(refused.status)) || certain === undefined) throw refused;
      const next = await this.next(verb, { permit, [name]: certain });
      return { ...next, unfit: { error: new NoJson(`${key} was made, and its output cannot be recorded`, { cause: refused }) } };
    }
  }

  private async reported(step: Permitted, finding: unknown, begin: object): Promise<Told> {
    try {
      return await this.tell("reconcile", step, "finding", finding);
    } catch (error) {
      // The guard knows the permit no more. Nothing was sent under it, so the call is begun again.
      if (error instanceof Refused && error.status === 404) return this.next("begin", begin);
      throw error;
    }
  }

  private async sealed(step: Permitted, outcome: object, thrown: Thrown): Promise<Told> {
    try {
      return await this.tell("seal", step, "outcome", outcome);
    } catch (error) {
      if (error instanceof Refused) throw error;
      throw new NotRecorded(`${step.key} was sent, and the guard could not be told`, { cause: thrown?.error ?? error });
    }
  }
}

/** The end of a call without a further step. */
function end(step: Step, thrown: Thrown): unknown {
  switch (step.step) {
    case "done":
      if (thrown?.error instanceof NoJson) throw thrown.error;
      return step.output;
    case "approve":
      throw new NeedsApproval(step.review, step.version);
    case "stopped":
      throw new Stopped(step.reason, step.text, step.question, thrown && { cause: thrown.error });
    default:
      throw new GuardError(`the guard answered with an unknown step: ${step.step}`);
  }
}

/** Makes the call: its outcome, and what it has thrown. */
async function outcome<Output>(
  terms: { externalRef?: (output: Output) => string | number },
  make: () => Promise<Output>,
): Promise<{ outcome: object; thrown?: Thrown }> {
  let output: Output;
  try {
    output = await make();
  } catch (error) {
    // Whatever it throws otherwise, the request may have left before it.
    const failed =
      error instanceof CallFailed
        ? { kind: error.kind, message: error.message, retry_after_ms: error.retryAfterMs }
        : { kind: "unknown", message: error instanceof Error ? error.name : typeof error };
    return { outcome: { failed }, thrown: { error } };
  }
  try {
    return { outcome: { done: done(terms, output) } };
  } catch (cause) {
    // The call was made, so it is sealed as done whatever its output is.
    const error = new NoJson("the call was made, and its output is no JSON", { cause });
    return { outcome: { done: { output: null } }, thrown: { error } };
  }
}

/** Looks a call up: the finding. */
async function found<Output>(
  terms: { externalRef?: (output: Output) => string | number },
  look: () => Promise<Found<Output>>,
): Promise<unknown> {
  try {
    const output = await look();
    if (output === notFound) return "not_found";
    if (output instanceof Duplicated) {
      return { duplicated: { effects: output.outputs.map((one) => done(terms, one as Output)) } };
    }
    return output === unknown ? "unknown" : { happened: done(terms, output as Output) };
  } catch {
    return "unknown";
  }
}

function done<Output>(terms: { externalRef?: (output: Output) => string | number }, output: Output): object {
  const recorded = output ?? null;
  json(recorded); // throws for what is no JSON
  const externalRef = terms.externalRef?.(output);
  return { output: recorded, external_ref: externalRef === undefined ? undefined : String(externalRef) };
}

/** What is certain about a call, without what the guard could not record. */
function certainly(said: unknown): object | undefined {
  if (typeof said !== "object" || said === null) return undefined;
  if ("failed" in said) return { failed: { kind: "unknown", message: "the failure could not be recorded" } };
  if ("duplicated" in said) {
    const { effects } = said.duplicated as { effects: object[] };
    return { duplicated: { effects: effects.map((effect) => ({ ...effect, output: null })) } };
  }
  return "done" in said ? { done: { output: null } } : { happened: { output: null } };
}

function call(step: Permitted): Call {
  return {
    idempotencyKey: step.idempotency_key,
    key: step.key,
    attempt: step.attempt,
    firstSent: step.first_sent,
    externalRef: step.external_ref,
  };
}
