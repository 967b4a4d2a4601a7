package api

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"github.com/pharos-nostr/pharos/monitor"
)

// Roster is which vantages on other machines there are. Its errors wrap
// monitor's kinds; after each of them nothing has changed.
type Roster interface {
	// Vantage returns one by its name, a revoked one too.
	Vantage(name string) (monitor.Vantage, error)
	// Invite returns the invitation with the group that it came to.
	Invite(ctx context.Context, inv monitor.Invitation) (monitor.Invitation, error)
	Invitations(ctx context.Context) ([]monitor.Invitation, error) // open ones
	// Enrol may be asked again by the same key, and answers the same.
	Enrol(ctx context.Context, in monitor.Enrolment) (monitor.Vantage, error)
	Revoke(ctx context.Context, name, actor string) error
}

// inviteTokenBytes is how much randomness the token of an invitation holds.
const inviteTokenBytes = 32

type vantagesCommand struct {
	_      struct{}    `json:"-" additionalProperties:"false"`
	Invite *invitation `json:"invite,omitempty" doc:"A machine may become the vantage of this name."`
	Revoke string      `json:"revoke,omitempty" maxLength:"63" doc:"Instead of invite: the vantage of this name stops counting at once; an open invitation is withdrawn."`
}

type invitation struct {
	_     struct{} `json:"-" additionalProperties:"false"`
	Name  string   `json:"name" maxLength:"63" doc:"1 to 63 small letters, digits, dots, hyphens and underscores."`
	Group string   `json:"group,omitempty" maxLength:"63" doc:"Vantages of one provider or network share a group, and have one vote. By default that of the vantage of this name, else its name."`
}

// vantagesResult is what an invitation or a revocation came to.
type vantagesResult struct {
	Name    string `json:"name"`
	Group   string `json:"group,omitempty"`
	Token   string `json:"token,omitempty" doc:"Told once, here: only its hash is kept. It can be used once."`
	Command string `json:"command,omitempty" doc:"What to run on that machine, once."`
	Expires string `json:"expires,omitempty" format:"date-time" doc:"The token is of no use afterwards."`
	Revoked bool   `json:"revoked,omitempty"`
}

type vantageList struct {
	Vantages    []listedVantage    `json:"vantages" nullable:"false" doc:"Of this process, enrolled ones on other machines, and revoked ones."`
	Invitations []listedInvitation `json:"invitations" nullable:"false" doc:"Open ones."`
}

type listedVantage struct {
	vantageStatus
	Pubkey *string `json:"pubkey" doc:"That it signs with; null for one of this process."`
}

type listedInvitation struct {
	Name    string `json:"name"`
	Group   string `json:"group"`
	Created string `json:"created" format:"date-time"`
	Expires string `json:"expires" format:"date-time"`
	Actor   string `json:"actor" doc:"Who invited: a pubkey, or token."`
}

// routeVantages registers what operators and vantages on other machines use.
func (a *API) routeVantages() {
	command := a.secure(huma.Operation{
		OperationID: "admin-vantages", Method: http.MethodPost, Path: adminPath + "vantages",
		Summary: "Invite a vantage on another machine, or revoke one",
		Description: fmt.Sprintf("The command of an invitation works once, within %d hours. Inviting the name of an enrolled vantage gives it a new key; its records stay. "+
			"409: the name is one of this process's own, or is enrolled in another group.", int(monitor.InvitationLife.Hours())),
		Errors: []int{http.StatusNotFound, http.StatusConflict, http.StatusServiceUnavailable},
	})
	command.Middlewares = append(command.Middlewares, withHost)
	huma.Register(a.huma, command, a.commandVantages)
	list := a.secure(huma.Operation{
		OperationID: "admin-list-vantages", Method: http.MethodGet, Path: adminPath + "vantages",
		Summary: "List vantages and open invitations",
	})
	list.Errors = []int{
		http.StatusUnauthorized, http.StatusForbidden, http.StatusUnprocessableEntity, http.StatusTooManyRequests,
		http.StatusInternalServerError, http.StatusServiceUnavailable,
	}
	huma.Register(a.huma, list, a.listVantages)
	a.routeDesk()
}

func (a *API) commandVantages(ctx context.Context, in *adminInput[vantagesCommand]) (*answer[vantagesResult], error) {
	b := &in.Body
	if (b.Invite == nil) == (b.Revoke == "") {
		return nil, invalid(problemError{"body", "needs either invite or revoke"})
	}
	who, _ := ctx.Value(actorKey{}).(string)
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), commandTimeout)
	defer cancel()
	if b.Revoke != "" {
		if err := a.opts.Roster.Revoke(work, b.Revoke, who); err != nil {
			return nil, a.fault(context.WithoutCancel(ctx), "revoke a vantage", err)
		}
		a.log.Info("operator's command", "command", "revoke", "actor", who, "vantage", b.Revoke)
		return &answer[vantagesResult]{vantagesResult{Name: b.Revoke, Revoked: true}}, nil
	}
	secret := make([]byte, inviteTokenBytes)
	if _, err := rand.Read(secret); err != nil {
		return nil, a.fault(context.WithoutCancel(ctx), "invite a vantage", err)
	}
	token, now := base64.RawURLEncoding.EncodeToString(secret), time.Now().UTC()
	inv, err := a.opts.Roster.Invite(work, monitor.Invitation{
		Name: b.Invite.Name, Group: b.Invite.Group, Token: monitor.HashToken(token),
		Created: now, Expires: now.Add(monitor.InvitationLife), Actor: who,
	})
	if err != nil {
		return nil, a.fault(context.WithoutCancel(ctx), "invite a vantage", err)
	}
	a.log.Info("operator's command", "command", "invite", "actor", who, "vantage", inv.Name, "group", inv.Group)
	host, _ := ctx.Value(hostKey{}).(string)
	return &answer[vantagesResult]{vantagesResult{
		Name: inv.Name, Group: inv.Group, Token: token, Expires: utc(inv.Expires),
		Command: "pharos vantage --core " + a.coreURL(host) + " --token " + token,
	}}, nil
}

// hostKey is where an operation finds the Host that it was asked by.
type hostKey struct{}

// coreURL is where vantages find this core: below public_url, else where the
// operator asked.
func (a *API) coreURL(host string) string {
	if u, err := url.Parse(a.settings.Load().PublicURL); err == nil && u.Host != "" {
		return httpScheme(u) + "://" + u.Host + strings.TrimSuffix(u.EscapedPath(), "/")
	}
	return "http://" + host
}

// httpScheme is the scheme of HTTP beside a WebSocket's.
func httpScheme(u *url.URL) string {
	if s := strings.ToLower(u.Scheme); s == "ws" || s == "http" {
		return "http"
	}
	return "https"
}

// withHost notes the request's Host for the operation.
func withHost(ctx huma.Context, next func(huma.Context)) {
	r, _ := humachi.Unwrap(ctx)
	next(huma.WithValue(ctx, hostKey{}, r.Host))
}

func (a *API) listVantages(ctx context.Context, _ *struct{ strict }) (*answer[vantageList], error) {
	work, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	open, err := a.opts.Roster.Invitations(work)
	if err != nil {
		return nil, a.fault(ctx, "list invitations", err)
	}
	vantages := a.opts.Core.Status().Vantages
	out := vantageList{Vantages: make([]listedVantage, len(vantages)), Invitations: make([]listedInvitation, len(open))}
	for i := range vantages {
		out.Vantages[i] = listedVantage{newVantageStatus(&vantages[i]), orNull(vantages[i].Pubkey)}
	}
	for i, inv := range open {
		out.Invitations[i] = listedInvitation{inv.Name, inv.Group, utc(inv.Created), utc(inv.Expires), inv.Actor}
	}
	return &answer[vantageList]{out}, nil
}
