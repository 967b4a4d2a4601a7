package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/wire"
)

// Enrol makes the holder of cfg.Key a vantage of the core at cfg.URL, by a token
// that an invitation gave; of cfg, only URL, Key, UserAgent and HTTP are used. The
// same token and key may be sent again where the answer was lost. Errors wrap
// monitor.ErrUnavailable when the core was not reached, else they say why it
// refused.
func Enrol(ctx context.Context, cfg Config, token string, networks []monitor.Network) (wire.Enrolled, error) {
	own := cfg.HTTP == nil
	if err := cfg.fillHTTP(); err != nil {
		return wire.Enrolled{}, err
	}
	if own {
		defer cfg.HTTP.CloseIdleConnections()
	}
	body, err := json.Marshal(wire.Enrolment{Version: wire.Version, Token: token, Networks: networks, Software: cfg.UserAgent})
	if err != nil {
		return wire.Enrolled{}, fmt.Errorf("enrol: %w", err)
	}
	r, err := cfg.do(ctx, request{http.MethodPost, cfg.URL + "/v1/vantages/enrol", body, map[string]string{"Content-Type": "application/json"}})
	if err != nil {
		if skew, wrong := wrongClock(err); wrong {
			err = fmt.Errorf("%w: %s", err, skewWords(skew))
		}
		return wire.Enrolled{}, fmt.Errorf("enrol: %w", err)
	}
	var e wire.Enrolled
	if err := json.Unmarshal(r.body, &e); err != nil || e.Name == "" {
		return wire.Enrolled{}, fmt.Errorf("enrol: %w: the core's answer is not Pharos's", monitor.ErrUnavailable)
	}
	return e, nil
}
