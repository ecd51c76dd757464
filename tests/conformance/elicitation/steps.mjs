// As steps.py, for the TypeScript SDKs.
import { createInterface } from "node:readline";

export const url = new URL(process.argv[2]);
const person = { step: {}, asked: 0 };

export async function answer() {
  person.asked += 1;
  await new Promise((resolve) => setTimeout(resolve, (person.step.seconds ?? 0) * 1000));
  const { action, content } = person.step;
  return content ? { action, content } : { action };
}

export async function serve(client) {
  console.log("ready");
  for await (const line of createInterface({ input: process.stdin })) {
    person.step = JSON.parse(line);
    person.asked = 0;
    let seen;
    let raised = "";
    try {
      const result = await client.callTool({ name: "echo", arguments: { text: person.step.to, words: person.step.to } });
      seen = result.content.map((item) => item.text ?? "").join("\n");
    } catch (error) {
      seen = String(error?.message ?? error);
      raised = error?.constructor?.name ?? "?";
    }
    console.log(JSON.stringify({ asked: person.asked, seen, raised }));
  }
  process.exit(0);
}
