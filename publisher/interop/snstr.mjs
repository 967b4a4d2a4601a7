import { Nostr, parseRelayDiscoveryEvent, parseRelayMonitorAnnouncement } from "snstr";
import { done, patience, pubkey, relay } from "./client.mjs";

const client = new Nostr([relay]);
await client.connectToRelays();
const events = await client.fetchMany([{ kinds: [30166] }], { maxWait: patience });
const announcement = await client.fetchOne([{ kinds: [10166], authors: [pubkey] }], { maxWait: patience });

done({
  reports: events.map((event) => {
    const report = parseRelayDiscoveryEvent(event);
    return {
      url: report.relay,
      rttOpen: report.rttOpen,
      rttRead: report.rttRead ?? 0,
      network: report.network,
      nips: report.supportedNips,
      requirements: report.requirements,
      geohash: report.geohash ?? "",
      name: report.content?.name ?? "",
    };
  }),
  monitor: parseRelayMonitorAnnouncement(announcement),
});
