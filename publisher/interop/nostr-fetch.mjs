import { NostrFetcher } from "nostr-fetch";
import { byTags, done, relay } from "./client.mjs";

const fetcher = NostrFetcher.init({ webSocketConstructor: WebSocket });
// Pages of 500 back in time, as it does with relays that give no more at once.
const events = await fetcher.fetchAllEvents([relay], { kinds: [30166] }, {}, { limitPerReq: 500 });
done({ reports: events.map(byTags) });
