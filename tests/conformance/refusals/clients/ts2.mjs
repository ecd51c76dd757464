// The second version of the official TypeScript SDK: revision 2026-07-28, the older ones over SSE.
import { Client, SSEClientTransport, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { serve, transport, where } from "./steps.mjs";

const options = transport === "http" ? { versionNegotiation: { mode: { pin: "2026-07-28" } } } : {};
const client = new Client({ name: "matrix", version: "1" }, options);
const made = {
  http: () => new StreamableHTTPClientTransport(where),
  sse: () => new SSEClientTransport(where),
  stdio: () => new StdioClientTransport({ command: where[0], args: where.slice(1), env: process.env }),
};
await client.connect(made[transport]());
await serve(client);
