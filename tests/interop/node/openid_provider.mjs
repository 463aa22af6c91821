// A certified OpenID provider with its development login pages, for one resource.
//
//     node openid_provider.mjs <resource> <seconds an access token lives>
//
// Prints its issuer when it listens. Tokens bound to a key need its nonce in their proofs.

import { randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import Provider, { errors } from 'oidc-provider';

const [resource, lifetime] = process.argv.slice(2);
const server = createServer();
await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
const issuer = `http://127.0.0.1:${server.address().port}`;

const provider = new Provider(issuer, {
  scopes: ['openid', 'offline_access', 'mcp:read', 'mcp:write'],
  cookies: { keys: [randomBytes(16).toString('hex')] },
  features: {
    devInteractions: { enabled: true },
    registration: { enabled: true },
    dPoP: { enabled: true, nonceSecret: randomBytes(32), requireNonce: () => true },
    resourceIndicators: {
      enabled: true,
      useGrantedResource: () => true,
      getResourceServerInfo(ctx, asked) {
        if (asked !== resource) throw new errors.InvalidTarget();
        return {
          scope: 'mcp:read mcp:write',
          audience: resource,
          accessTokenFormat: 'jwt',
          accessTokenTTL: Number(lifetime),
          jwt: { sign: { alg: 'RS256' } }
        };
      }
    }
  },
  rotateRefreshToken: true
});
for (const kind of ['server_error', 'grant.error', 'authorization.error', 'registration_create.error']) {
  provider.on(kind, (ctx, error) => console.error(kind, error.error, error.error_description ?? error));
}
provider.on('grant.success', (ctx) => console.log('granted', ctx.oidc.params.grant_type));
server.on('request', provider.callback());
console.log(issuer);
