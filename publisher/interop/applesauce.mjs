import { RelayDiscovery, RelayMonitor } from "applesauce-common/casts";
import { EventStore } from "applesauce-core";
import { createEventLoaderForStore } from "applesauce-loaders/loaders";
import { RelayPool } from "applesauce-relay";
import { verifyEvent } from "nostr-tools";
import { filter, firstValueFrom, lastValueFrom, timeout, toArray } from "rxjs";
import { done, nameIn, patience, pubkey, relay, task } from "./client.mjs";

const pool = new RelayPool();
const store = new EventStore();
store.verifyEvent = verifyEvent;
// Nobody's relays but ours: it names itself in the relay list (kind 10002).
createEventLoaderForStore(store, pool, { lookupRelays: [relay] });

const events = await lastValueFrom(pool.request([relay], { kinds: [30166] }, { timeout: patience }).pipe(toArray()));
const reports = events.map((event) => {
  const report = new RelayDiscovery(event, store);
  return {
    url: report.url,
    rttOpen: report.rttOpen,
    rttRead: report.rttRead ?? 0,
    network: report.networkType,
    nips: report.supportedNIPs,
    requirements: report.requirements,
    geohash: report.geohash ?? "",
    name: nameIn(event.content),
  };
});

const [announcement] = await lastValueFrom(
  pool.request([relay], { kinds: [10166], authors: [pubkey] }, { timeout: patience }).pipe(toArray()),
);
const monitor = new RelayMonitor(announcement, store);

// The monitor is asked about single relays: the store finds its relay list,
// and the report there. A relay that is not online has none.
const status = {};
for (const url of task.present) {
  const found = await firstValueFrom(monitor.relayStatus(url).pipe(filter(Boolean), timeout(patience)));
  status[url] = { rttOpen: found.rttOpen };
}
const absent = await lastValueFrom(
  pool.request([relay], { kinds: [30166], authors: [pubkey], "#d": [task.absent] }, { timeout: patience }).pipe(toArray()),
);

done({
  reports,
  monitor: { frequency: monitor.frequency, timeouts: monitor.timeouts, checks: monitor.checks, geohash: monitor.geohash },
  status,
  absent: absent.length,
});
