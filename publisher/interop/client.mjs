// What the scripts share: where the relay is, and how the result is printed.
import WebSocket from "ws";

export const relay = process.env.PHAROS_RELAY;
export const pubkey = process.env.PHAROS_PUBKEY;
// What the test wants this client to look for, see interop_test.go.
export const task = JSON.parse(process.env.PHAROS_TASK);
// Longer than any answer takes, also on a busy machine.
export const patience = 60_000;

// Node before 22 has no WebSocket of its own; the same one everywhere. Clients
// that would ask other relays too must be told not to: this one opens no socket
// to anybody else, and the script fails.
const strangers = new Set();
globalThis.WebSocket = class extends WebSocket {
  constructor(url, ...rest) {
    if (new URL(url).host !== new URL(relay).host) {
      strangers.add(String(url));
      throw new Error(`no connection to ${url} from a test`);
    }
    super(url, ...rest);
  }
};

const value = (event, name) => event.tags.find((t) => t[0] === name)?.[1];
const values = (event, name) => event.tags.filter((t) => t[0] === name).map((t) => t[1]);

// byTags reads a report as clients without a parser of their own do.
export function byTags(event) {
  return {
    url: value(event, "d"),
    rttOpen: Number(value(event, "rtt-open")),
    rttRead: Number(value(event, "rtt-read") ?? 0),
    network: value(event, "n"),
    nips: values(event, "N"),
    requirements: values(event, "R"),
    geohash: value(event, "g") ?? "",
    name: nameIn(event.content),
  };
}

export function nameIn(content) {
  return content === "" ? "" : JSON.parse(content).name;
}

// Sockets and timers that a client leaves open must not keep the process.
export function done(result) {
  if (strangers.size > 0) {
    console.error(`other relays were asked: ${[...strangers].join(" ")}`);
    process.exit(1);
  }
  process.stdout.write(JSON.stringify(result), () => process.exit(0));
}
