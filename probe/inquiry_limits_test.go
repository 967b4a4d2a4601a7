package probe_test

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/probe"
)

// orderly serves a connection as a plain relay does, up to the message that
// trigger picks: that one is for turn.
func orderly(p *peer, trigger func(label, filter string) bool, turn func(p *peer, id string)) {
	if p.request() == "" {
		return
	}
	if p.key == "" { // NIP-11, and the upgrade over the same connection
		p.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
		if p.request() == "" {
			return
		}
	}
	p.switching("")
	for first := true; ; first = false {
		op, msg := p.message()
		if op == 0 || op == 8 {
			return
		}
		if first { // whoever speaks while the other end does would wait for ever
			p.send(text(`["AUTH","x"]`))
		}
		var parts []json.RawMessage
		var label, id string
		if op != 1 || json.Unmarshal([]byte(msg), &parts) != nil || len(parts) < 2 {
			continue
		}
		json.Unmarshal(parts[0], &label)
		if json.Unmarshal(parts[1], &id) != nil {
			var event struct{ ID string }
			json.Unmarshal(parts[1], &event)
			id = event.ID
		}
		filter := ""
		if len(parts) > 2 {
			filter = string(parts[2])
		}
		if trigger(label, filter) {
			turn(p, id)
			return
		}
		switch label {
		case "REQ":
			p.send(text(`["EOSE","` + id + `"]`))
		case "COUNT":
			p.send(text(`["COUNT","` + id + `",{"count":0}]`))
		case "NEG-OPEN":
			p.send(text(`["NEG-MSG","` + id + `","61"]`))
		case "EVENT", "AUTH":
			p.send(text(`["OK","` + id + `",true,""]`))
		}
	}
}

// TestInquiryLimits holds that whatever a relay does after the read ends in
// time and within the bytes of a probe, and leaves the outcome as it was.
func TestInquiryLimits(t *testing.T) {
	t.Parallel()
	moments := map[string]func(label, filter string) bool{
		"at the first question": func(_, filter string) bool { return strings.Contains(filter, `"ids"`) },
		"at the sample":         func(_, filter string) bool { return strings.Contains(filter, `"until"`) },
		"at COUNT":              func(label, _ string) bool { return label == "COUNT" },
		"at NEG-OPEN":           func(label, _ string) bool { return label == "NEG-OPEN" },
		"at the search":         func(_, filter string) bool { return strings.Contains(filter, `"search"`) },
		"at EVENT":              func(label, _ string) bool { return label == "EVENT" },
	}
	var sent atomic.Int64
	count := func(p *peer, s string) bool {
		n, err := io.WriteString(p, s)
		sent.Add(int64(n))
		return err == nil
	}
	big := strings.Repeat("x", 3000)
	deeds := map[string]func(p *peer, id string){
		"silent":          func(p *peer, _ string) { p.wait() },
		"reads nothing":   func(p *peer, _ string) { elapse(time.Minute) },
		"closes":          func(p *peer, _ string) {},
		"closes in order": func(p *peer, _ string) { p.send(frame(0x88, "\x03\xe8")); p.wait() },
		"drips a frame": func(p *peer, _ string) {
			go p.wait()
			for p.send("\x81\x7e\xff\x00"); p.send(" "); elapse(100 * time.Millisecond) {
			}
		},
		"drips messages": func(p *peer, id string) {
			go p.wait()
			for p.send(text(`["EVENT","x",{}]`)) {
				elapse(100 * time.Millisecond)
			}
		},
		"pings for ever": func(p *peer, _ string) {
			go p.wait()
			for p.send(frame(0x89, "hi")) {
				elapse(100 * time.Millisecond)
			}
		},
		"notices for ever": func(p *peer, _ string) {
			go p.wait()
			for p.send(text(`["NOTICE","hello"]`)) {
				elapse(10 * time.Millisecond)
			}
		},
		"endless events": func(p *peer, id string) {
			go p.wait()
			for count(p, text(`["EVENT","`+id+`",{"content":"`+big+`"}]`)) {
			}
		},
		"events of another": func(p *peer, id string) {
			go p.wait()
			for count(p, text(`["EVENT","x",{"content":"`+big+`"}]`)) {
			}
		},
		"a giant frame": func(p *peer, _ string) {
			go p.wait()
			for p.send("\x81\x7f\x00\x00\x00\x00\x40\x00\x00\x00"); count(p, big); {
			}
		},
		"a large message": func(p *peer, _ string) {
			go p.wait()
			for p.send("\x81\x7f\x00\x00\x00\x00\x00\x03\xff\xff"); count(p, big); {
			}
		},
		"endless fragments": func(p *peer, _ string) {
			go p.wait()
			for p.send(frame(0x01, "[")); count(p, frame(0x00, big)); {
			}
		},
		"garbage": func(p *peer, _ string) { p.send("\xf5\x5a\x93\x93"); p.wait() },
		"binary":  func(p *peer, _ string) { p.send(frame(0x82, "x")); p.wait() },
		"no JSON": func(p *peer, _ string) { p.send(text("<html>")); p.wait() },
		"odd shapes": func(p *peer, id string) {
			go p.wait()
			for _, s := range []string{
				`[]`, `["OK"]`, `["OK","` + id + `"]`, `["OK","` + id + `",1,2]`, `["OK",{},true]`, `["COUNT","` + id + `"]`, `["COUNT","` + id + `",{"count":-1}]`,
				`["COUNT","` + id + `",[1]]`, `["NEG-MSG","` + id + `"]`, `["NEG-ERR"]`, `["NEG-MSG","` + id + `",{}]`, `["EVENT","` + id + `"]`, `["EOSE"]`, `["CLOSED",null]`,
				`["AUTH",{}]`, `["NOTICE"]`, `["EVENT","` + id + `",7]`, `["EVENT","` + id + `",null]`,
			} {
				p.send(text(s))
			}
			elapse(time.Minute)
		},
	}
	key := newKey(t)
	for moment, trigger := range moments {
		for deed, turn := range deeds {
			for _, first := range []monitor.Outcome{monitor.OutcomeNone, monitor.OutcomeOK} {
				t.Run(deed+" "+moment+" after "+first.String(), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						sent.Store(0)
						var hit atomic.Bool
						serve := func(p *peer) {
							orderly(p, func(label, filter string) bool {
								yes := trigger(label, filter)
								if yes {
									hit.Store(true)
								}
								return yes
							}, turn)
						}
						cfg := pipedConfig(serve)
						cfg.Key = key
						// Upgraded first, NIP-11 has its own time afterwards.
						o, took := check(t, cfg, probe.Request{Capabilities: true, Write: true, Info: true, LastOutcome: first, Document: &monitor.Info{}})
						if !hit.Load() {
							t.Error("it was never asked")
						}
						if got := class(o); got != "ok/read/-" {
							t.Errorf("got %s (%s)", got, o.Evidence)
						}
						if limit := probe.DefaultTimeouts().Overall + 200*time.Millisecond; took > limit {
							t.Errorf("it took %s", took)
						}
						if n := sent.Load(); n > 260<<10 {
							t.Errorf("%d bytes were read", n)
						}
						if o.Info == nil || o.Info.Problem != "" {
							t.Errorf("NIP-11 has suffered: %+v", o.Info)
						}
						if o.Capabilities != nil && o.Capabilities.EOSE != monitor.FindingConfirmed {
							t.Errorf("capabilities are %+v", o.Capabilities)
						}
						if o.Write != nil && moment == "at EVENT" && o.Write.Result != monitor.WriteUnknown {
							t.Errorf("write is %+v", o.Write)
						}
						elapse(2 * time.Minute) // until all peers have returned
					})
				})
			}
		}
	}
}

// TestAuthLimits holds the same while a relay is answered as auth-required: its
// refusal stays what it was.
func TestAuthLimits(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("x", 3000)
	for name, turn := range map[string]func(p *peer, id string){
		"silent": func(p *peer, _ string) { p.wait() },
		"drips a frame": func(p *peer, _ string) {
			go p.wait()
			for p.send("\x81\x7e\xff\x00"); p.send(" "); elapse(100 * time.Millisecond) {
			}
		},
		"events for ever": func(p *peer, _ string) {
			go p.wait()
			for p.send(text(`["EVENT","x",{"content":"` + big + `"}]`)) {
			}
		},
		"notices for ever": func(p *peer, _ string) {
			go p.wait()
			for p.send(text(`["NOTICE","x"]`)) {
				elapse(10 * time.Millisecond)
			}
		},
		"garbage": func(p *peer, _ string) { p.send(text("<html>")); p.wait() },
		"closes":  func(p *peer, _ string) {},
		"a giant frame": func(p *peer, _ string) {
			go p.wait()
			p.send("\x81\x7f\x00\x00\x00\x00\x40\x00\x00\x00")
			elapse(time.Minute)
		},
	} {
		for _, at := range []string{"AUTH", "the second REQ"} {
			t.Run(name+" at "+at, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var reqs atomic.Int32
					cfg := pipedConfig(func(p *peer) {
						orderly(p, func(label, _ string) bool { return label == "REQ" }, func(p *peer, id string) {
							p.send(text(`["CLOSED","` + id + `","auth-required: x"]`))
							for {
								op, msg := p.message()
								parts := strings.Split(msg, `"id":"`)
								switch {
								case op == 0:
									return
								case strings.HasPrefix(msg, `["AUTH"`) && at == "AUTH":
									turn(p, "")
									return
								case strings.HasPrefix(msg, `["AUTH"`):
									p.send(text(`["OK","` + parts[1][:64] + `",true,""]`))
								case strings.HasPrefix(msg, `["REQ"`):
									reqs.Add(1)
									turn(p, "")
									return
								}
							}
						})
					})
					cfg.Key, cfg.Auth = newKey(t), true
					o, took := check(t, cfg, probe.Request{})
					if got := class(o); got != "refused/read/auth_required" {
						t.Errorf("got %s (%s)", got, o.Evidence)
					}
					if took > 5200*time.Millisecond {
						t.Errorf("it took %s (%s)", took, o.Evidence)
					}
					if want := at != "AUTH"; (reqs.Load() == 1) != want {
						t.Errorf("%d more REQs", reqs.Load())
					}
					elapse(2 * time.Minute)
				})
			})
		}
	}
}

// TestInquiryCancelled holds that a cancelled context ends the questions at
// once, and takes back nothing of what was read.
func TestInquiryCancelled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := pipedConfig(func(p *peer) {
			orderly(p, func(label, _ string) bool { return label == "COUNT" }, func(p *peer, _ string) { p.wait() })
		})
		c, err := probe.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		start := time.Now()
		o := c.Check(ctx, probe.Request{Relay: piped, Capabilities: true})
		if took := time.Since(start); took != 500*time.Millisecond || class(o) != "ok/read/-" {
			t.Errorf("got %s after %s (%s)", class(o), took, o.Evidence)
		}
	})
}
