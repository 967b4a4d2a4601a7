package wire

import (
	"encoding/json"

	"github.com/pharos-nostr/pharos/monitor"
)

// Enrolment is the body of POST /v1/vantages/enrol, signed by the vantage's own
// key (NIP-98).
type Enrolment struct {
	Version  int
	Token    string
	Networks []monitor.Network // that it can reach
	Software string            // for people
}

type enrolment struct {
	Version  int               `json:"version"`
	Token    string            `json:"token"`
	Networks []monitor.Network `json:"networks"`
	Software string            `json:"software,omitempty"`
}

// MarshalJSON writes what UnmarshalJSON reads.
func (e Enrolment) MarshalJSON() ([]byte, error) { return json.Marshal(enrolment(e)) }

// UnmarshalJSON reads and checks an enrolment; the error is monitor.ErrInvalid
// and never repeats the token.
func (e *Enrolment) UnmarshalJSON(b []byte) error {
	var v struct{ Version int }
	if err := unmarshal(b, &v, false); err != nil {
		return err
	}
	if v.Version != Version {
		return invalid("field version: this is version %d, and %d is spoken here; bring vantage and core to the same version", v.Version, Version)
	}
	var in enrolment
	if err := unmarshal(b, &in, true); err != nil {
		return err
	}
	if in.Token == "" || len(in.Token) > maxText {
		return named("token", invalid("it is empty or longer than %d bytes", maxText))
	}
	if err := text(in.Software, maxText); err != nil {
		return named("software", err)
	}
	if len(in.Networks) == 0 || len(in.Networks) > len(networks) {
		return named("networks", invalid("there are none, or some twice"))
	}
	seen := map[monitor.Network]bool{}
	for _, n := range in.Networks {
		switch {
		case !networks[n]:
			return named("networks", invalid("%s is unknown", short(string(n))))
		case seen[n]:
			return named("networks", invalid("%s is there twice", n))
		}
		seen[n] = true
	}
	*e = Enrolment(in)
	return nil
}

var networks = map[monitor.Network]bool{monitor.Clearnet: true, monitor.Tor: true, monitor.I2P: true, monitor.Loki: true}

// Enrolled is the answer to an enrolment: what the core calls the vantage.
type Enrolled struct {
	Name  string `json:"name"`
	Group string `json:"group"`
}
