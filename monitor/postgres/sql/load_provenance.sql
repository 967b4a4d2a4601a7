SELECT d.url, d.kinds, d.authors, d.first_seen, d.last_seen
FROM discovered d JOIN relay r ON r.url = d.url
