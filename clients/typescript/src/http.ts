import { Since } from "./clock.js";
import { GuardError, Refused } from "./errors.js";

/** Statuses after which the same request may be answered. */
const LATER = new Set([429, 502, 503, 504]);

/** True if the same request may be answered later. A seal is repeated after any failure of the guard: what is known of the call would be
 * lost with it. */
function isLater(path: string, status: number): boolean {
  return LATER.has(status) || (status === 500 && path.endsWith("/seal"));
}

/**
 * The value as JSON.
 *
 * @throws TypeError for what JSON does not hold, and would show as `null` or leave out.
 */
export function json(value: unknown): string {
  const text = JSON.stringify(value, (_name, part: unknown) => {
    if (typeof part === "number" && !Number.isFinite(part)) throw new TypeError(`${part} is no number of JSON`);
    return part;
  });
  if (text === undefined) throw new TypeError(`a ${typeof value} is no JSON`);
  return text;
}

/** Requests to the guard. Each of them is safe to repeat, so a request without an answer is sent again. */
export class Http {
  constructor(
    private readonly url: string,
    private readonly token: string,
    private readonly patienceMs: number,
  ) {}

  /** The answer to a request, and the instant before it was sent. Repeats it until there is an answer, for as long as the client is patient. */
  async post(path: string, body: { wait_ms?: number }): Promise<{ json: unknown; sent: Since }> {
    const text = json(body);
    // A request waits for its step at the guard, and somewhat longer here.
    const timeoutMs = (body.wait_ms ?? 10_000) + 30_000;
    const until = performance.now() + this.patienceMs;
    for (let pauseMs = 50; ; pauseMs = Math.min(pauseMs * 2, 5_000)) {
      const sent = new Since(); // the tries before this one take nothing from the time of a permit
      const answer = await this.once(path, text, timeoutMs);
      if ("json" in answer) return { json: answer.json, sent };
      pauseMs = Math.max(pauseMs, answer.pauseMs);
      if (!answer.again || performance.now() + pauseMs > until) throw answer.missed;
      await new Promise((resolve) => setTimeout(resolve, pauseMs));
    }
  }

  private async once(path: string, text: string, timeoutMs: number): Promise<Answer> {
    let missed: unknown;
    try {
      const response = await fetch(this.url + path, {
        method: "POST",
        headers: { authorization: `Bearer ${this.token}`, "content-type": "application/json" },
        body: text,
        signal: AbortSignal.timeout(timeoutMs),
      });
      if (!response.ok) {
        const pauseMs = Number(response.headers.get("retry-after") ?? 0) * 1_000 || 0;
        return { again: isLater(path, response.status), pauseMs, missed: await refused(response) };
      }
      return { json: await response.json() };
    } catch (error) {
      missed = error; // not reached, broken off, or no JSON
    }
    return { again: true, pauseMs: 0, missed: new GuardError(`the guard at ${this.url} does not answer`, { cause: missed }) };
  }
}

type Answer = { json: unknown } | { again: boolean; pauseMs: number; missed: GuardError };

async function refused(response: Response): Promise<Refused> {
  const problem = (await response.json().catch(() => ({}))) as { type?: string; title?: string; detail?: string };
  const code = problem.type?.split(":").pop() ?? "http";
  return new Refused(response.status, code, problem.detail ?? problem.title ?? `the guard answered ${response.status}`);
}
