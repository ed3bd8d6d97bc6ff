// The same as `times.py`, for the TypeScript client.

const { Guard } = await import(`${process.env.GUARD_CLIENT}/index.js`);

const now = { wall: 0, monotonic: 0 };
Date.now = () => now.wall;
performance.now = () => now.monotonic;

const send = { step: "send", permit: "p", key: "refund/9", idempotency_key: "k", attempt: 1, use_ms: 10_000 };
let asked = 0;

globalThis.fetch = async (url) => {
  asked += 1;
  if (url.endsWith("begin") && asked === 1) {
    now.wall += 3_600_000;
    return Response.json(send);
  }
  return Response.json({ step: "done", output: "by another" });
};

const guard = new Guard("http://guard.example", "t");
let calls = 0;
const refund = guard.guarded("refund", { key: ({ order }) => order }, async () => {
  calls += 1;
  return null;
});
const done = await refund({ order: "9" });
console.log(JSON.stringify({ done, calls }));
