// node typescript.mjs 1|2 URL: a client of that version of the TypeScript SDK logs in and calls a tool.
const [version, url] = process.argv.slice(2);
const BACK = "http://127.0.0.1:33418/callback";
let client, tokens, verifier, answer, discovery;
const provider = {
  get redirectUrl() { return BACK; },
  get clientMetadata() { return { client_name: "t", redirect_uris: [BACK], token_endpoint_auth_method: "none" }; },
  clientInformation() { return client; },
  saveClientInformation(x) { client = x; },
  tokens() { return tokens; },
  saveTokens(x) { tokens = x; },
  codeVerifier() { return verifier; },
  saveCodeVerifier(x) { verifier = x; },
  saveDiscoveryState(x) { discovery = x; },
  discoveryState() { return discovery; },
  async redirectToAuthorization(to) {
    let next = String(to);
    while (!next.startsWith(BACK)) {
      next = (await fetch(next, { redirect: "manual" })).headers.get("location");
    }
    answer = new URL(next).searchParams;
  },
};
let Client, Transport;
if (version === "1") {
  ({ Client } = await import("@modelcontextprotocol/sdk/client/index.js"));
  ({ StreamableHTTPClientTransport: Transport } = await import("@modelcontextprotocol/sdk/client/streamableHttp.js"));
} else {
  ({ Client, StreamableHTTPClientTransport: Transport } = await import("@modelcontextprotocol/client"));
}
let made = new Client({ name: "t", version: "1" });
let transport = new Transport(new URL(url), { authProvider: provider });
try {
  await made.connect(transport);
} catch (error) {
  await (version === "1" ? transport.finishAuth(answer.get("code")) : transport.finishAuth(answer));
  made = new Client({ name: "t", version: "1" });
  await made.connect(new Transport(new URL(url), { authProvider: provider }));
}
await made.listTools();
const result = await made.callTool({ name: "read_note", arguments: { name: "n" } });
console.log(result.content[0].text, answer.get("iss"));
process.exit(0);
