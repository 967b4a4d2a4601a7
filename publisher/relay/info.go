package relay

import (
	"cmp"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
)

const infoType = "application/nostr+json"

// maxLimit is announced, not enforced: an answer is never capped (reports.md
// 13), and no set of ours comes near it.
const maxLimit = 1_000_000

// infoDocument is our NIP-11 (reports.md 20): khatru's own claims NIP-86 and
// leaves fields empty.
func infoDocument(o *Options, s *settings) ([]byte, error) {
	type limitation struct {
		MaxMessageLength int  `json:"max_message_length"`
		MaxSubscriptions int  `json:"max_subscriptions"`
		MaxLimit         int  `json:"max_limit"`
		DefaultLimit     int  `json:"default_limit"`
		MaxSubIDLength   int  `json:"max_subid_length"`
		AuthRequired     bool `json:"auth_required"`
		PaymentRequired  bool `json:"payment_required"`
		RestrictedWrites bool `json:"restricted_writes"`
	}
	doc := struct {
		Name          string     `json:"name,omitempty"`
		Description   string     `json:"description"`
		Pubkey        string     `json:"pubkey,omitempty"`
		Contact       string     `json:"contact,omitempty"`
		SupportedNIPs []int      `json:"supported_nips"`
		Software      string     `json:"software"`
		Version       string     `json:"version"`
		Limitation    limitation `json:"limitation"`
	}{
		Name:          o.Name,
		Description:   "Which Nostr relays are online: corroborated NIP-66 reports, read-only.",
		Pubkey:        o.Pubkey,
		Contact:       o.Contact,
		SupportedNIPs: []int{1, 11, 40, 45, 66},
		Software:      "https://github.com/pharos-nostr/pharos",
		Version:       cmp.Or(o.Version, "dev"),
		Limitation: limitation{
			MaxMessageLength: maxMessage, MaxSubscriptions: s.maxSubs, MaxLimit: maxLimit,
			DefaultLimit: maxLimit, MaxSubIDLength: maxSubID, RestrictedWrites: true,
		},
	}
	b, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("encode the NIP-11 document: %w", err)
	}
	return b, nil
}

// wantsInfo: Accept names the NIP-11 type with q > 0; a wildcard is no wish
// for it.
func wantsInfo(req *http.Request) bool {
	for _, line := range req.Header.Values("Accept") {
		for item := range strings.SplitSeq(line, ",") {
			name, params, err := mime.ParseMediaType(item)
			if err != nil || name != infoType {
				continue
			}
			q, given := params["q"]
			if !given {
				return true
			}
			if v, err := strconv.ParseFloat(q, 64); err == nil && v > 0 {
				return true
			}
		}
	}
	return false
}

func (r *Relay) serveInfo(w http.ResponseWriter, req *http.Request) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Allow-Headers", "*")
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, OPTIONS")
	h.Add("Vary", "Accept")
	switch req.Method {
	case http.MethodOptions:
		w.WriteHeader(http.StatusNoContent)
	case http.MethodGet, http.MethodHead:
		info := r.settings.Load().info
		h.Set("Content-Type", infoType)
		h.Set("Content-Length", strconv.Itoa(len(info)))
		if req.Method == http.MethodGet {
			_, _ = w.Write(info)
		}
	default:
		h.Set("Allow", "GET, HEAD, OPTIONS")
		http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
	}
}
