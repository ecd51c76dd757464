// The second version of the official TypeScript SDK: revision 2026-07-28.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { answer, serve, url } from "./steps.mjs";

const capabilities = { elicitation: { form: {}, url: {} } };
const versionNegotiation = { mode: { pin: "2026-07-28" } };
const client = new Client({ name: "matrix", version: "1" }, { capabilities, versionNegotiation });
client.setRequestHandler("elicitation/create", answer);
await client.connect(new StreamableHTTPClientTransport(url));
await serve(client);
