// A client by the official library: makes the calls of a plan, and prints what it was answered.
// Modules are looked for beside a file, so this one is started from the folder of the libraries.
import { createRequire } from "node:module";

const library = createRequire(`${process.cwd()}/`);
const { Client } = library("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = library("@modelcontextprotocol/sdk/client/stdio.js");

const plan = JSON.parse(process.argv[2]);
const [command, ...args] = plan.gateway;
const client = new Client({ name: "test", version: "1" });
await client.connect(new StdioClientTransport({ command, args, env: { ...process.env, ...plan.env } }));
const { tools } = await client.listTools();
const answers = [];
for (const call of plan.calls) {
  answers.push(await client.callTool({ name: call.tool, arguments: call.arguments }));
}
console.log(JSON.stringify({ tools: tools.map((tool) => tool.name), answers }));
await client.close();
