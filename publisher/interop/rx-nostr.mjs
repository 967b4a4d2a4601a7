import { verifyEvent } from "nostr-tools";
import { createRxBackwardReq, createRxNostr } from "rx-nostr";
import { lastValueFrom, toArray } from "rxjs";
import { byTags, done, patience, relay } from "./client.mjs";

const client = createRxNostr({
  verifier: async (event) => verifyEvent(event),
  websocketCtor: WebSocket,
  eoseTimeout: patience,
});
client.setDefaultRelays([relay]);

const request = createRxBackwardReq();
const packets = lastValueFrom(client.use(request).pipe(toArray()));
request.emit({ kinds: [30166] });
request.over();
done({ reports: (await packets).map((packet) => byTags(packet.event)) });
