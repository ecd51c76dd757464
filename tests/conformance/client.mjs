// What the TypeScript SDK sees of a server, as one JSON object: node client.mjs URL REVISION
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const [url, revision] = process.argv.slice(2);
const modern = revision >= "2026-07-28";
const options = modern
  ? { versionNegotiation: { mode: { pin: revision } } }
  : { supportedProtocolVersions: [revision] };
const client = new Client({ name: "transparency", version: "1" }, options);
await client.connect(new StreamableHTTPClientTransport(new URL(url)));

const steps = {
  "tools-list": () => client.listTools(),
  "tools-call": () => client.callTool({ name: "echo", arguments: { words: "Grüße 😀 \u2028 line" } }),
  "tools-call-large": () => client.callTool({ name: "echo", arguments: { words: "x".repeat(300000) } }),
  "tools-call-mixed": () => client.callTool({ name: "test_multiple_content_types", arguments: {} }),
  "tools-call-error": () => client.callTool({ name: "test_error_handling", arguments: {} }),
  "tools-call-progress": async () => {
    const seen = [];
    const onprogress = (progress) => seen.push(progress);
    const result = await client.callTool(
      { name: "test_tool_with_progress", arguments: {} }, { onprogress });
    return { seen, result };
  },
  "resources-list": () => client.listResources(),
  "resources-read": () => client.readResource({ uri: "test://static-binary" }),
  "prompts-list": () => client.listPrompts(),
  "prompts-get": () => client.getPrompt({
    name: "test_prompt_with_arguments", arguments: { arg1: "a", arg2: "b" } }),
};
const notes = {};
for (const [name, step] of Object.entries(steps)) {
  try {
    notes[name] = await step();
  } catch (error) {
    notes[name] = { failed: String(error) };
  }
}
await client.close();
process.stdout.write(JSON.stringify(notes));
