import { SimplePool } from "nostr-tools";
import { byTags, done, patience, relay } from "./client.mjs";

const pool = new SimplePool();
const query = async (filter) => (await pool.querySync([relay], filter, { maxWait: patience })).map(byTags);
const twoHoursAgo = Math.floor(Date.now() / 1000) - 2 * 3600;

done({
  reports: await query({ kinds: [30166] }),
  with50: await query({ kinds: [30166], "#N": ["50"], "#n": ["clearnet"], since: twoHoursAgo }),
  tor: await query({ kinds: [30166], "#n": ["tor"] }),
  newest: await query({ kinds: [30166], limit: 500 }),
});
