import NDK from "@nostr-dev-kit/ndk";
import { byTags, done, pubkey, relay, task } from "./client.mjs";

const ndk = new NDK({ explicitRelayUrls: [relay], enableOutboxModel: false });
await ndk.connect();

const fetched = await ndk.fetchEvents({ kinds: [30166] }, { closeOnEose: true, groupable: false, relayUrls: [relay] });
const fetchedAt = Date.now();

// nip66MonitorRelays is the filter that NDK's released version does not have
// yet: relays that the monitor reports stay, and so do .onion addresses, which
// most monitors cannot see, and the last ones an author has. A list that is too
// short or too old says nothing: everything stays.
const shortest = 100;
const oldest = 4 * 3600_000;
function nip66MonitorRelays(events, at, now, authors) {
  const online = new Set([...events].filter((e) => e.pubkey === pubkey).map((e) => e.tagValue("d")));
  if (online.size < shortest || now - at > oldest) return authors;
  const kept = {};
  for (const [author, relays] of Object.entries(authors)) {
    const good = relays.filter((r) => online.has(r) || new URL(r).hostname.endsWith(".onion"));
    kept[author] = good.length > 0 ? good : relays;
  }
  return kept;
}

done({
  reports: [...fetched].map(byTags),
  kept: nip66MonitorRelays(fetched, fetchedAt, fetchedAt, task.authors),
  keptFromFew: nip66MonitorRelays([...fetched].slice(0, shortest - 1), fetchedAt, fetchedAt, task.authors),
  keptWhenOld: nip66MonitorRelays(fetched, fetchedAt, fetchedAt + oldest + 1, task.authors),
});
