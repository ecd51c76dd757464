// An OpenID Provider for tests: panva's oidc-provider on loopback, everybody's password is anything.
// Prints its issuer URL.  Groups: `GROUPS` as JSON, groups by login name.
import { createServer } from "node:http";
import { Provider } from "oidc-provider";

const groups = JSON.parse(process.env.GROUPS);
const server = createServer((request, response) => handler(request, response));
let handler = (_, response) => response.end();
server.listen(0, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [
      {
        client_id: "guard",
        client_secret: "client secret of the tests, long enough",
        application_type: "native", // loopback redirects with any port (RFC 8252, section 7.3)
        redirect_uris: ["http://127.0.0.1/sign-in/oidc/callback"],
        grant_types: ["authorization_code"],
        response_types: ["code"],
      },
    ],
    claims: { openid: ["sub"], email: ["email", "email_verified"], groups: ["groups"] },
    pkce: { required: () => true },
    cookies: { keys: ["a key of the tests"] },
    async findAccount(_, id) {
      return {
        accountId: id,
        claims: () => ({ sub: id, email: `${id}@corp.test`, email_verified: true, groups: groups[id] ?? [] }),
      };
    },
  });
  handler = provider.callback();
  console.log(issuer);
});
process.stdin.on("end", () => process.exit(0)).resume();
