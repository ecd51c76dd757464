// The first version of the official TypeScript SDK.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { SSEClientTransport } from "@modelcontextprotocol/sdk/client/sse.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { serve, transport, where } from "./steps.mjs";

const client = new Client({ name: "matrix", version: "1" });
const made = {
  http: () => new StreamableHTTPClientTransport(where),
  sse: () => new SSEClientTransport(where),
  stdio: () => new StdioClientTransport({ command: where[0], args: where.slice(1), env: process.env }),
};
await client.connect(made[transport]());
await serve(client);
