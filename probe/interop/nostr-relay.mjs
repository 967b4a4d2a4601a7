// A relay of @nostr-relay/core on a free port of 127.0.0.1, with its events in
// memory. It prints its port and lives until its standard input ends.
// RELAY_DOMAIN switches NIP-42 on.
import { createServer } from 'node:http';
import { WebSocketServer } from 'ws';
import { EventRepository, EventUtils, LogLevel, createOutgoingNoticeMessage } from '@nostr-relay/common';
import { NostrRelay } from '@nostr-relay/core';
import { Validator } from '@nostr-relay/validator';

class Memory extends EventRepository {
  #events = new Map();
  isSearchSupported() {
    return false;
  }
  upsert(event) {
    const isDuplicate = this.#events.has(event.id);
    this.#events.set(event.id, event);
    return { isDuplicate };
  }
  find(filter) {
    return [...this.#events.values()]
      .filter((e) => EventUtils.isMatchingFilter(e, filter))
      .sort((a, b) => b.created_at - a.created_at || (a.id < b.id ? -1 : 1))
      .slice(0, filter.limit ?? 100);
  }
  async destroy() {}
}

const domain = process.env.RELAY_DOMAIN;
const relay = new NostrRelay(new Memory(), { domain, logLevel: LogLevel.ERROR });
const validator = new Validator();
const document = {
  name: 'nostr-relay',
  software: 'git+https://github.com/CodyTseng/nostr-relay',
  version: '0.0.40',
  supported_nips: domain ? [1, 2, 4, 11, 42, 45, 50] : [1, 2, 11],
};
const server = createServer((req, res) => {
  if (req.headers.accept === 'application/nostr+json') {
    res.writeHead(200, { 'content-type': 'application/nostr+json' }).end(JSON.stringify(document));
    return;
  }
  res.writeHead(404).end();
});
const sockets = new WebSocketServer({ server });
sockets.on('connection', (ws, req) => {
  relay.handleConnection(ws, req.socket.remoteAddress);
  ws.on('message', async (data) => {
    try {
      const message = await validator.validateIncomingMessage(data);
      await relay.handleMessage(ws, message);
    } catch (error) {
      ws.send(JSON.stringify(createOutgoingNoticeMessage(error.message)));
    }
  });
  ws.on('close', () => relay.handleDisconnect(ws));
  ws.on('error', () => ws.close());
});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
process.stdin.resume().on('end', () => process.exit(0));
