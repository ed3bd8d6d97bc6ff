// The same as `lookups.py`, for the TypeScript client.

const { Guard } = await import(`${process.env.GUARD_CLIENT}/index.js`);

let now = 0;
Date.now = () => now;
performance.now = () => now;
globalThis.setTimeout = (wake, ms) => {
  now += ms;
  queueMicrotask(wake);
};
AbortSignal.timeout = () => undefined;

const asked = [];
const enough = new AbortController();

globalThis.fetch = async (url) => {
  const verb = url.split("/").pop();
  if (now < 60_000) return Response.json({}, { status: 503 });
  asked.push(verb);
  if (verb === "poll") {
    const permitted = { permit: "p", key: "refund/9", idempotency_key: "k", attempt: 1, use_ms: 10_000 };
    return Response.json({ step: "look", input: { order: "9" }, ...permitted });
  }
  if (asked.filter((verb) => verb === "reconcile").length === 1) return Response.json({}, { status: 404 });
  enough.abort();
  return Response.json({ step: "idle" });
};

const guard = new Guard("http://guard.example", "t", { patienceMs: 1_000 });
const found = [];
const lookup = async ({ order }) => {
  found.push(order);
  return null;
};
await guard.serveLookups("refund", { lookup }, enough.signal);
console.log(JSON.stringify({ found, asked }));
