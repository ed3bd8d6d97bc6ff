// The same desk as `desk.py`, for the TypeScript client.
//
// desk.mjs URL TOKEN BOOK ORDER CENTS HOW

import { appendFileSync, existsSync, readFileSync, writeSync } from "node:fs";

const client = `${process.env.GUARD_CLIENT}/index.js`;
const { CallFailed, Guard, NeedsApproval, NoJson, notFound, Refused, Stopped } = await import(client);

const [url, token, book, order, cents, words] = process.argv.slice(2);
const how = words.split(",");
const guard = new Guard(url, token, { patienceMs: 5_000 });

const entries = () => (existsSync(book) ? readFileSync(book, "utf8").split("\n") : []);

/** Waits for the test, which kills this process. */
async function stops(where) {
  if (!how.includes(where)) return;
  writeSync(1, `${where}\n`);
  await new Promise(() => process.stdin.resume());
}

const terms = {
  key: ({ order }) => order,
  externalRef: (output) => (how.includes("number") ? 7 : output.refund),
  attemptMs: 10_000,
  settleMs: 70_000,
};
if (how.includes("lookup")) {
  terms.lookup = async ({ order }) => (entries().includes(order) ? { refund: order } : notFound);
}
if (how.includes("review")) terms.reviewers = ["ann"];

const refund = guard.guarded("refund", terms, async ({ order }, call) => {
  await stops("before");
  if (how.includes("refuse")) throw new CallFailed("validation", "no such order");
  appendFileSync(book, `${order}\n`);
  await stops("after");
  if (how.includes("raise")) throw new Error("connection reset");
  if (how.includes("no-json")) return { refund: order, cents: 1n };
  if (how.includes("big")) return { refund: order, id: 2 ** 60 };
  if (how.includes("kind")) throw new CallFailed("nonsense", "a kind that no guard knows");
  return { refund: order, key: call.idempotencyKey };
});

let came;
try {
  came = { done: await refund({ order, cents: Number(cents) }) };
} catch (error) {
  if (error instanceof Stopped) came = { stopped: error.reason };
  else if (error instanceof NeedsApproval) came = { approve: error.version };
  else if (error instanceof NoJson) came = { no_json: true };
  else if (error instanceof Refused) came = { refused: error.code };
  else throw error;
}
console.log(JSON.stringify(came));
