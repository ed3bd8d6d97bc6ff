// The same as `failures.py`, for the TypeScript client.

const { Guard } = await import(`${process.env.GUARD_CLIENT}/index.js`);

const [which] = process.argv.slice(2);
const asked = [];

globalThis.fetch = async (url) => {
  const verb = url.split("/").pop();
  asked.push(verb);
  if (which === "seal" && asked.join() === "begin,seal") return Response.json({}, { status: 500 });
  if (verb === "reconcile") return Response.json({}, { status: 404 });
  if (verb === "seal") return Response.json({ step: "done", output: "sealed" });
  if (asked.length > 1) return Response.json({ step: "done", output: "by another" });
  const step = which === "seal" ? "send" : "look";
  return Response.json({ step, permit: "p", key: "refund/9", idempotency_key: "k", attempt: 1, use_ms: 10_000 });
};

const guard = new Guard("http://guard.example", "t");
const terms = { key: ({ order }) => order, lookup: async () => "found" };
const refund = guard.guarded("refund", terms, async () => "made");
const done = await refund({ order: "9" });
console.log(JSON.stringify({ done, asked }));
