package wire

import (
	"encoding/json"
	"slices"

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
	if err := checkVersion(v.Version); err != nil {
		return err
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
	if len(in.Networks) == 0 {
		return named("networks", invalid("there are none"))
	}
	if err := checkNetworks(in.Networks); err != nil {
		return named("networks", err)
	}
	*e = Enrolment(in)
	return nil
}

var networks = []monitor.Network{monitor.Clearnet, monitor.Tor, monitor.I2P, monitor.Loki}

// checkNetworks reports a network that is unknown or there twice.
func checkNetworks(list []monitor.Network) error {
	for i, n := range list {
		switch {
		case !slices.Contains(networks, n):
			return invalid("%s is unknown", short(string(n)))
		case slices.Contains(list[:i], n):
			return invalid("%s is there twice", n)
		}
	}
	return nil
}

// Enrolled is the answer to an enrolment: what the core calls the vantage.
type Enrolled struct {
	Name  string `json:"name"`
	Group string `json:"group"`
}
