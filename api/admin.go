package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pharos-nostr/pharos/monitor"
)

const (
	// maxRelays bounds the URLs of one request, of all its lists together.
	maxRelays = 5000
	// commandTimeout bounds what the core may take for one command.
	commandTimeout = 30 * time.Second
	// loggedURLs is how many of a command's relays its line in the log names.
	loggedURLs = 5
)

// Operator carries out what operators ask. Both methods obey their context.
type Operator interface {
	// Administer does one command. The results are in the order of c.Relays, or
	// one for each relay that a release of all let go. An error, which wraps one
	// of monitor's kinds, means that nothing at all happened.
	Administer(ctx context.Context, c monitor.Command) ([]monitor.CommandResult, error)
	// Reload reads the configuration anew and swaps all of it. A wrong one is a
	// *ReloadError, and nothing changed.
	Reload(ctx context.Context) (Reloaded, error)
}

// Reloaded is what a reload came to, in keys of the configuration such as
// probe.interval.
type Reloaded struct {
	Changed     []string // in force now
	NeedRestart []string // changed in the file, in force after a restart
}

// ReloadError is a configuration that is wrong. It is a monitor.ErrInvalid.
type ReloadError struct {
	Problems []string // each with its place; no secrets
}

func (e *ReloadError) Error() string {
	return "the configuration has problems: " + strings.Join(e.Problems, "; ")
}

// Unwrap makes it a monitor.ErrInvalid.
func (e *ReloadError) Unwrap() error { return monitor.ErrInvalid }

// The bodies of the commands. Lists of URLs are bounded together, see judge.
type (
	relaysCommand struct {
		_      struct{} `json:"-" additionalProperties:"false"`
		Relays []string `json:"relays" minItems:"1" maxItems:"5000" nullable:"false" doc:"Relay URLs in any spelling."`
		Note   string   `json:"note,omitempty" maxLength:"500" doc:"Why, for the audit; one line."`
	}
	watchCommand struct {
		_      struct{} `json:"-" additionalProperties:"false"`
		Add    []string `json:"add,omitempty" maxItems:"5000" nullable:"false" doc:"Relay URLs in any spelling, watched from now on."`
		Remove []string `json:"remove,omitempty" maxItems:"5000" nullable:"false" doc:"No longer watched, until somebody names them again."`
		Import string   `json:"import,omitempty" doc:"Text with one relay URL per line, added as by add; # at the start of a line or after white space begins a comment."`
		Note   string   `json:"note,omitempty" maxLength:"500" doc:"Why, for the audit; one line."`
	}
	excludeCommand struct {
		_      struct{} `json:"-" additionalProperties:"false"`
		Add    []string `json:"add,omitempty" maxItems:"5000" nullable:"false" doc:"Never probed from now on, whoever names them."`
		Remove []string `json:"remove,omitempty" maxItems:"5000" nullable:"false" doc:"No longer excluded. What the configuration excludes stays so."`
		Note   string   `json:"note,omitempty" maxLength:"500" doc:"Why, for the audit; one line."`
	}
	pauseCommand struct {
		_      struct{} `json:"-" additionalProperties:"false"`
		Relays []string `json:"relays" minItems:"1" maxItems:"5000" nullable:"false" doc:"Relay URLs in any spelling."`
		Until  string   `json:"until,omitempty" maxLength:"40" doc:"RFC 3339: not probed before." example:"2006-01-02T15:04:05Z"`
		For    string   `json:"for,omitempty" maxLength:"40" doc:"Instead of until: how long from now." example:"1h30m"`
		Resume bool     `json:"resume,omitempty" doc:"Instead of until and for: end the pause."`
		Note   string   `json:"note,omitempty" maxLength:"500" doc:"Why, for the audit; one line."`
	}
	maintenanceCommand struct {
		_      struct{} `json:"-" additionalProperties:"false"`
		Relays []string `json:"relays" minItems:"1" maxItems:"5000" nullable:"false" doc:"Relay URLs in any spelling."`
		From   string   `json:"from,omitempty" maxLength:"40" doc:"RFC 3339; now by default." example:"2006-01-02T15:04:05Z"`
		Until  string   `json:"until,omitempty" maxLength:"40" doc:"RFC 3339." example:"2006-01-02T16:04:05Z"`
		For    string   `json:"for,omitempty" maxLength:"40" doc:"Instead of until: how long." example:"2d"`
		Note   string   `json:"note,omitempty" maxLength:"500" doc:"Why; shown with the relay, and kept for the audit."`
	}
	releaseCommand struct {
		_      struct{} `json:"-" additionalProperties:"false"`
		Relays []string `json:"relays,omitempty" maxItems:"5000" nullable:"false" doc:"Relay URLs in any spelling."`
		All    bool     `json:"all,omitempty" doc:"Instead of relays: every departure that is held."`
		Note   string   `json:"note,omitempty" maxLength:"500" doc:"Why, for the audit; one line."`
	}
	reloadCommand struct {
		_ struct{} `json:"-" additionalProperties:"false"`
	}
)

// adminInput is an operation's input; what stands in the query is refused.
type adminInput[B any] struct {
	strict
	Body B
}

// commandResults is what became of each URL, in the order of the request:
// remove before add before import.
type commandResults struct {
	Results []commandResult `json:"results" nullable:"false"`
}

type commandResult struct {
	Input  string  `json:"input" doc:"The URL as it was sent; without password and query where it was refused."`
	URL    *string `json:"url" doc:"The relay that it names; null where it names none."`
	Done   bool    `json:"done"`
	Reason *string `json:"reason" doc:"Why it was not done. A refused URL: the word of the broken rule, a colon, and what it means."`
}

type reloadResult struct {
	Changed     []string `json:"changed" nullable:"false" doc:"Keys of the configuration that are in force now."`
	NeedRestart []string `json:"need_restart" nullable:"false" doc:"Keys that were changed, and count after a restart."`
}

// routeAdmin registers the operators' commands.
func (a *API) routeAdmin() {
	a.huma.OpenAPI().Components.SecuritySchemes = securitySchemes()
	const bad = " A URL that names no relay is told in its result and does not fail the others. Nothing is fetched while the request waits."
	command(a, "check", "Probe relays now, from every vantage", "The probes are begun, not awaited: /v1/relay tells their outcome."+bad,
		func(b *relaysCommand, _ time.Time) ([]step, string, []problemError) {
			return []step{{Kind: monitor.CommandCheck, inputs: b.Relays, at: "body.relays"}}, b.Note, nil
		})
	command(a, "reset", "Forget relays' records: their state is unknown, and they are eligible", "Their history is kept."+bad,
		func(b *relaysCommand, _ time.Time) ([]step, string, []problemError) {
			return []step{{Kind: monitor.CommandReset, inputs: b.Relays, at: "body.relays"}}, b.Note, nil
		})
	command(a, "relays", "Add, remove or import watched relays", "Added relays stay through restarts and reloads."+bad,
		func(b *watchCommand, _ time.Time) ([]step, string, []problemError) {
			return []step{
				{Kind: monitor.CommandRemove, inputs: b.Remove, at: "body.remove"},
				{Kind: monitor.CommandAdd, inputs: b.Add, at: "body.add"},
				{Kind: monitor.CommandAdd, inputs: urlLines(b.Import), at: "body.import"},
			}, b.Note, nil
		})
	command(a, "exclude", "Exclude relays from being probed, or end that", "They leave the lists, and are watched by no vantage."+bad,
		func(b *excludeCommand, _ time.Time) ([]step, string, []problemError) {
			return []step{
				{Kind: monitor.CommandInclude, inputs: b.Remove, at: "body.remove"},
				{Kind: monitor.CommandExclude, inputs: b.Add, at: "body.add"},
			}, b.Note, nil
		})
	command(a, "pause", "Do not probe relays for a while, or go on", "One of until, for and resume is needed. The verdict stays as it is."+bad,
		func(b *pauseCommand, now time.Time) ([]step, string, []problemError) {
			s := step{Kind: monitor.CommandPause, inputs: b.Relays, at: "body.relays"}
			if b.Resume {
				s.Kind = monitor.CommandResume
				if b.Until != "" || b.For != "" {
					return nil, "", []problemError{{"body.resume", "excludes until and for"}}
				}
				return []step{s}, b.Note, nil
			}
			var errs []problemError
			s.Until, errs = ending(b.Until, b.For, now)
			return []step{s}, b.Note, errs
		})
	command(a, "maintenance", "Declare a time in which what relays do is not held against them", "It changes uptimes, not verdicts. One of until and for is needed."+bad,
		func(b *maintenanceCommand, now time.Time) ([]step, string, []problemError) {
			s := step{Kind: monitor.CommandMaintenance, inputs: b.Relays, at: "body.relays", From: now}
			var errs []problemError
			if b.From != "" {
				var err error
				if s.From, err = when(b.From); err != nil {
					errs = append(errs, problemError{"body.from", err.Error()})
				}
			}
			until, more := ending(b.Until, b.For, s.From)
			s.Until = until
			return []step{s}, b.Note, append(errs, more...)
		})
	command(a, "release", "Let held departures go", "The brake holds relays that would leave the online set together. Name relays, or all."+bad,
		func(b *releaseCommand, _ time.Time) ([]step, string, []problemError) {
			if b.All == (len(b.Relays) > 0) {
				return nil, "", []problemError{{"body", "needs either relays or all"}}
			}
			return []step{{Kind: monitor.CommandRelease, inputs: b.Relays, at: "body.relays", all: b.All}}, b.Note, nil
		})

	huma.Register(a.huma, a.secure(huma.Operation{
		OperationID: "admin-reload", Method: http.MethodPost, Path: adminPath + "reload",
		Summary:     "Read the configuration anew",
		Description: "All of it is swapped, or, where it has a problem, nothing: then every problem is named. The body may be missing.",
		Errors:      []int{http.StatusConflict, http.StatusServiceUnavailable},
	}), func(ctx context.Context, _ *adminInput[*reloadCommand]) (*answer[reloadResult], error) {
		return a.reload(ctx)
	})
}

// step is one command of a request.
type step struct {
	Kind        monitor.CommandKind
	inputs      []string // URLs, in any spelling
	at          string   // where they stand
	all         bool     // no URLs are meant to be there
	From, Until time.Time
}

// command registers POST /v1/admin/name. read turns the body into steps, or
// tells its problems.
func command[B any](a *API, name, summary, description string, read func(b *B, now time.Time) ([]step, string, []problemError)) {
	huma.Register(a.huma, a.secure(huma.Operation{
		OperationID: "admin-" + name, Method: http.MethodPost, Path: adminPath + name,
		Summary: summary, Description: description,
		Errors: []int{http.StatusConflict, http.StatusServiceUnavailable},
	}), func(ctx context.Context, in *adminInput[B]) (*answer[commandResults], error) {
		steps, note, errs := read(&in.Body, time.Now().UTC())
		if len(errs) > 0 {
			return nil, invalid(errs...)
		}
		return a.carryOut(ctx, steps, note)
	})
}

// invalid is the 422 that names each problem.
func invalid(errs ...problemError) *problem {
	return newProblem(http.StatusUnprocessableEntity, countProblems(len(errs)), errs...)
}

// judged is what became of one URL of a request.
type judged struct {
	result commandResult
	relay  monitor.RelayURL // "" = it names none
}

// carryOut does the steps one after the other.
func (a *API) carryOut(ctx context.Context, steps []step, note string) (*answer[commandResults], error) {
	urls, err := a.judge(steps)
	if err != nil {
		return nil, err
	}
	who, _ := ctx.Value(actorKey{}).(string)
	out := commandResults{Results: []commandResult{}}
	happened := false
	for i, s := range steps {
		c := monitor.Command{Kind: s.Kind, Actor: who, From: s.From, Until: s.Until, Note: note}
		for _, u := range urls[i] {
			if u.relay != "" {
				c.Relays = append(c.Relays, u.relay)
			}
		}
		var results []monitor.CommandResult
		if len(c.Relays) > 0 || s.all { // a release of no relays would be one of all
			results, err = a.administer(ctx, c)
			if err != nil {
				err = a.fault(context.WithoutCancel(ctx), string(s.Kind), err)
				if !happened {
					return nil, err
				}
				// An earlier step is done, and must not look undone.
				results = make([]monitor.CommandResult, len(c.Relays))
				for k := range results {
					results[k].Why = err.Error()
				}
			}
			happened = happened || err == nil
		}
		if s.all {
			for _, r := range results {
				out.Results = append(out.Results, commandResult{Input: string(r.Relay), URL: orNull(string(r.Relay)), Done: r.Done, Reason: orNull(r.Why)})
			}
			continue
		}
		for _, u := range urls[i] {
			if u.relay != "" {
				r := results[0]
				results = results[1:]
				u.result.Done = r.Done
				if !r.Done {
					u.result.Reason = orNull(cmp.Or(r.Why, "there was nothing to do"))
				}
			}
			out.Results = append(out.Results, u.result)
		}
	}
	return &answer[commandResults]{out}, nil
}

// judge reads the URLs of each step by relay-url.md.
func (a *API) judge(steps []step) ([][]judged, error) {
	total := 0
	for _, s := range steps {
		total += len(s.inputs)
	}
	switch {
	case total > maxRelays:
		return nil, invalid(problemError{"body", fmt.Sprintf("names %d URLs; at most %d are taken at once", total, maxRelays)})
	case total == 0 && !slices.ContainsFunc(steps, func(s step) bool { return s.all }):
		var lists []string
		for _, s := range steps {
			lists = append(lists, strings.TrimPrefix(s.at, "body."))
		}
		return nil, invalid(problemError{"body", "names no relay; give " + strings.Join(lists, " or ")})
	}
	allow := a.settings.Load().AllowNetworks
	urls := make([][]judged, len(steps))
	kinds := make(map[monitor.RelayURL]step)
	var errs []problemError
	for i, s := range steps {
		for k, input := range s.inputs {
			u, err := monitor.ParseRelayURL(input, allow...)
			if err != nil {
				urls[i] = append(urls[i], judged{result: refusedURL(err)})
				continue
			}
			if other, ok := kinds[u]; ok && other.Kind != s.Kind {
				errs = append(errs, problemError{s.at + "[" + strconv.Itoa(k) + "]", "names a relay that " + strings.TrimPrefix(other.at, "body.") + " names too"})
			}
			kinds[u] = s
			shown, _, hasFragment := strings.Cut(input, "#")
			if hasFragment {
				shown += "…"
			}
			urls[i] = append(urls[i], judged{relay: u, result: commandResult{Input: shown, URL: orNull(string(u))}})
		}
	}
	if len(errs) > 0 {
		return nil, invalid(errs...)
	}
	return urls, nil
}

// refusedURL is the result of text that is no relay URL.
func refusedURL(err error) commandResult {
	var bad *monitor.URLError
	if !errors.As(err, &bad) {
		return commandResult{Reason: orNull(err.Error())}
	}
	return commandResult{Input: bad.Input, Reason: orNull(bad.Reason + ": " + bad.Words())}
}

// outlasting is the context of a command: once that has begun, it does not
// depend on whether the caller waits.
func outlasting(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), commandTimeout)
}

// administer hands a command to the core and logs it.
func (a *API) administer(ctx context.Context, c monitor.Command) ([]monitor.CommandResult, error) {
	ctx, cancel := outlasting(ctx)
	defer cancel()
	results, err := a.opts.Operator.Administer(ctx, c)
	if err != nil {
		return nil, err
	}
	done := 0
	for _, r := range results {
		if r.Done {
			done++
		}
	}
	a.log.Info("operator's command", "command", string(c.Kind), "actor", c.Actor, "relays", len(results), "done", done,
		"urls", c.Relays[:min(loggedURLs, len(c.Relays))], "note", c.Note)
	return results, nil
}

func (a *API) reload(ctx context.Context) (*answer[reloadResult], error) {
	work, cancel := outlasting(ctx)
	defer cancel()
	r, err := a.opts.Operator.Reload(work)
	var wrong *ReloadError
	if errors.As(err, &wrong) {
		errs := make([]problemError, len(wrong.Problems))
		for i, text := range wrong.Problems {
			errs[i].Message = text
		}
		return nil, newProblem(http.StatusUnprocessableEntity, "the configuration is wrong, and nothing was changed; errors names each problem", errs...)
	}
	if err != nil {
		return nil, a.fault(context.WithoutCancel(ctx), "reload", err)
	}
	return &answer[reloadResult]{reloadResult{Changed: append([]string{}, r.Changed...), NeedRestart: append([]string{}, r.NeedRestart...)}}, nil
}

// comment is one in a line of a file of relays.
var comment = regexp.MustCompile(`(^|\s)#.*`)

// urlLines reads a list of relays as a file of them is read.
func urlLines(text string) []string {
	var lines []string
	for line := range strings.Lines(strings.TrimPrefix(text, "\uFEFF")) {
		if line = strings.TrimSpace(comment.ReplaceAllString(line, "")); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// ending reads until, or for as of from; monitor.Command knows its bounds.
func ending(until, duration string, from time.Time) (t time.Time, errs []problemError) {
	var err error
	at := "body.until"
	switch {
	case until != "" && duration != "":
		return t, []problemError{{"body.for", "excludes until"}}
	case until != "":
		t, err = when(until)
	case duration != "":
		var d time.Duration
		at = "body.for"
		d, err = length(duration)
		t = from.Add(d)
	default:
		err = errors.New("is missing; give until or for")
	}
	if err != nil {
		return t, []problemError{{at, err.Error()}}
	}
	return t, nil
}

// when reads a time of a body.
func when(text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || t.Unix() < 0 || t.Unix() > latest {
		return time.Time{}, errors.New("is no time: use RFC 3339, such as 2006-01-02T15:04:05Z")
	}
	return t.UTC(), nil
}

// length reads a duration as the configuration does: Go's, with d for days.
func length(text string) (time.Duration, error) {
	days, rest, hasDays := strings.Cut(text, "d")
	if !hasDays {
		days, rest = "0", text
	}
	n, err := strconv.ParseUint(days, 10, 16)
	var d time.Duration
	if err == nil && rest != "" {
		d, err = time.ParseDuration(rest)
	}
	total := time.Duration(n)*24*time.Hour + d
	if err != nil || d < 0 || total <= 0 {
		return 0, errors.New("is no duration: use such as 90m, 1h30m or 2d")
	}
	return total, nil
}
