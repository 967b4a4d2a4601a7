SELECT id, url, source, first_seen, candidate, excluded, paused_until, verdict::text, since, marks, quorum_for, quorum_of,
       reason, coalesce(cause::text, ''), evidence, last_success, majority_down_since, changes, held_since
FROM relay ORDER BY url
