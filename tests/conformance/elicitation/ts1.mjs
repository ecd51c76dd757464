// The first version of the official TypeScript SDK: revision 2025-11-25.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { answer, serve, url } from "./steps.mjs";

const capabilities = { elicitation: { form: {}, url: {} } };
const client = new Client({ name: "matrix", version: "1" }, { capabilities });
client.setRequestHandler(ElicitRequestSchema, answer);
await client.connect(new StreamableHTTPClientTransport(url));
await serve(client);
