// The same as `times.py`, for the TypeScript client.

const { Guard } = await import(`${process.env.GUARD_CLIENT}/index.js`);

const [which] = process.argv.slice(2);
const now = { wall: 0, monotonic: 0 };
Date.now = () => now.wall;
performance.now = () => now.monotonic;
globalThis.setTimeout = (wake, ms) => {
  now.wall += ms;
  now.monotonic += ms;
  queueMicrotask(wake);
};
AbortSignal.timeout = () => undefined;

const send = { step: "send", permit: "p", key: "refund/9", idempotency_key: "k", attempt: 1, use_ms: 10_000 };
let given = false; // the permit

globalThis.fetch = async (url) => {
  if (which === "busy" && now.wall < 15_000) return Response.json({}, { status: 503 });
  if (url.endsWith("seal")) return Response.json({ step: "done", output: "sealed" });
  if (given) return Response.json({ step: "done", output: "by another" });
  given = true;
  if (which === "sleeps") now.wall += 3_600_000;
  return Response.json(send);
};

const guard = new Guard("http://guard.example", "t");
let calls = 0;
const refund = guard.guarded("refund", { key: ({ order }) => order }, async () => {
  calls += 1;
  return null;
});
const done = await refund({ order: "9" });
console.log(JSON.stringify({ done, calls }));
