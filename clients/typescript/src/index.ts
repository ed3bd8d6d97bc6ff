/**
 * Guard a function that touches the world: no silent duplicate, no silent loss.
 *
 * ```ts
 * const guard = new Guard("http://127.0.0.1:4180", process.env.COUNTERFOIL_TOKEN!);
 * const refund = guard.guarded("refund", { key: ({ order }) => order }, (input: Refund, call) =>
 *   bank.refund(input, call.idempotencyKey),
 * );
 * await refund({ order: "order-9", cents: 1200 });
 * ```
 */
export { CallFailed, GuardError, NeedsApproval, NoJson, NotRecorded, Refused, Stopped } from "./errors.js";
export { Duplicated, Guard, notFound, unknown } from "./guard.js";
export type { Call, Found, Terms } from "./guard.js";
