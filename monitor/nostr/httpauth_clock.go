package nostr

import "time"

// HTTPAuthCreated reads when the event in an Authorization header says that it
// was made; zero = the header holds none. Nothing is verified: it is for telling
// somebody whose clock is wrong by how much, with VerifyHTTPAuth at that time.
func HTTPAuthCreated(header string) time.Time {
	ev, err := decodeHTTPAuth(header)
	if err != nil {
		return time.Time{}
	}
	return ev.CreatedAt.Time().UTC()
}
