// As steps.py, for the TypeScript SDKs: a line of calls in, a line of what the model sees out.
import { createInterface } from "node:readline";

const SECONDS = 15;
export const [transport, address] = process.argv.slice(2);
export const where = transport === "stdio" ? JSON.parse(address) : new URL(address);

async function one(client, { tool, arguments: args }) {
  let timer;
  const late = new Promise((resolve) => {
    timer = setTimeout(() => resolve({ hung: true }), SECONDS * 1000);
  });
  const made = client.callTool({ name: tool, arguments: args }).then(
    (result) => ({ seen: result.content.map((item) => item.text ?? "").join("\n") }),
    (error) => ({ seen: String(error?.message ?? error), raised: error?.constructor?.name ?? "?" }),
  );
  const seen = await Promise.race([made, late]);
  clearTimeout(timer);
  return seen;
}

export async function serve(client) {
  await client.listTools();
  console.log("ready");
  for await (const line of createInterface({ input: process.stdin })) {
    console.log(JSON.stringify(await Promise.all(JSON.parse(line).map((call) => one(client, call)))));
  }
  process.exit(0);
}
