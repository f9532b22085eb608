package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"

	"example.com/svc"
	"example.com/svc/internal/valid"
	"example.com/svc/ledger"
)

// connect opens the ledger and the client, as far as a command needs them.
func (t *tool) connect(ctx context.Context, c *command) (stop func(), err error) {
	if c.ledger == makesLedger { // none is made for a command that cannot begin
		if err := t.makeClient(ctx, c, nil); err != nil {
			return nil, err
		}
	}
	store, closeLedger, err := t.openLedger(ctx, c)
	if err != nil {
		return nil, err
	}
	if err = t.makeClient(ctx, c, store); err != nil {
		closeLedger()
	}
	return closeLedger, err
}

func (t *tool) makeClient(ctx context.Context, c *command, store ledger.Store) error {
	if c.client == noClient && store == nil {
		return nil
	}
	opts := []svc.Option{svc.WithUserAgent("svc-tool/" + version()), svc.WithAttemptHook(t.attempt), svc.WithLogger(slog.New(records{t})),
		svc.WithTransportWrapper(func(next http.RoundTripper) http.RoundTripper { return dates{gate{next, t.giveUp}, t} })}
	if store != nil {
		opts = append(opts, svc.WithLedger(store))
	}
	if c.onBegin != nil {
		opts = append(opts, svc.WithCallContext(func(ctx context.Context, call svc.Call) context.Context {
			c.onBegin(call)
			return ctx
		}))
	}
	if c.onCall != nil {
		opts = append(opts, svc.WithCallHook(func(_ context.Context, call svc.Call) { c.onCall(call) }))
	}
	address, token, err := t.account(ctx)
	t.address = spelling(address)
	if err == nil {
		err = t.connectTo(c, address, append(opts, svc.WithTokenSource(token)))
	}
	if err != nil && c.client != needsClient && !isEnd(err) { // the client reads the ledger only; an address that is refused may hold a password
		t.address = ""
		t.client, err = svc.NewClient(noAddress, opts...)
	}
	if err != nil {
		return badInput(err)
	}
	if store != nil {
		t.note(func(*facts) {
			t.store = store
			t.journal = ledger.NewJournal(store, t.address, func(err error) error { return err })
		})
	}
	return nil
}

// connectTo makes the client. Its errors are mistakes in the settings. A mistake in SVC_INFERENCE_URL keeps only those commands
// from running that are about a URL.
func (t *tool) connectTo(c *command, address string, opts []svc.Option) error {
	insecure, err := t.insecure()
	if err != nil {
		return err
	} else if insecure {
		opts = append(opts, svc.WithInsecureHTTP())
	}
	if u := cmp.Or(t.flags.inferenceURL, os.Getenv("SVC_INFERENCE_URL")); u != "" {
		with := append(slices.Clip(opts), svc.WithInferenceURL(u))
		shows := c.Command == nil || slices.Contains(showsURL, c.Name())
		if t.client, err = svc.NewClient(address, with...); err == nil || shows || t.flags.inferenceURL != "" {
			return err
		}
		if _, failed := svc.NewClient(address, opts...); failed == nil && t.first("inference URL") {
			t.talk.warn("SVC_INFERENCE_URL is not used: %s", plainText(err))
		}
	}
	t.client, err = svc.NewClient(address, opts...)
	return err
}

// insecure reports whether plain http to another machine is allowed: by --insecure-http if it is given, and else by
// SVC_INSECURE_HTTP.
func (t *tool) insecure() (bool, error) {
	text := os.Getenv("SVC_INSECURE_HTTP")
	switch {
	case t.root.PersistentFlags().Changed("insecure-http"):
		return t.flags.insecureHTTP, nil
	case text == "1" || text == "true":
		return true, nil
	case text == "" || text == "0" || text == "false":
		return false, nil
	}
	return false, errors.New("SVC_INSECURE_HTTP must be 1, true, 0 or false")
}

// reach returns an error if the service cannot be reached, or does not accept the token. A token may
// be allowed to delete endpoints and not to list flavors.
func (t *tool) reach(ctx context.Context, opts ...svc.RequestOption) error {
	_, err := t.client.Flavors.List(ctx, opts...)
	if errors.Is(err, svc.ErrForbidden) {
		return nil
	}
	return err
}

// elsewhere reports whether an entry is about another service than this one.
func (t *tool) elsewhere(e ledger.Entry) bool {
	return e.BaseURL != "" && spelling(e.BaseURL) != t.address
}

// spelling returns an address in the form that the client uses.
func spelling(address string) string {
	base, problem := valid.ParseBase(address, true)
	if problem != "" { // the client refuses it
		return address
	}
	return base.String()
}

// account returns the address of the service and the source of the token. The token is never a
// flag: a command line can be read by every user of a machine.
func (t *tool) account(ctx context.Context) (address string, token func(context.Context) (string, error), err error) {
	address, token = cmp.Or(t.flags.baseURL, os.Getenv("SVC_BASE_URL")), readToken(t.flags.tokenFile)
	_, err = token(ctx)
	if isA[tokenError](err) {
		err = nil // like a token that the service does not accept: the first request fails
	}
	if address == "" {
		err = joined([]error{errors.New("no address: set SVC_BASE_URL or --base-url"), err})
	}
	return address, token, err
}

// tokenError is returned for a token that is not valid, such as one with a line break.
type tokenError struct{ error }

func (e tokenError) Unwrap() error { return e.error }

const maxTokenFile = 64 << 10

// noAddress is the address of a client that sends nothing.
const noAddress = "https://no.address.invalid"

// readToken returns a function that reads the token. A file is read for each attempt, since
// its token may be replaced while the program runs.
func readToken(file string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		if file == "" {
			if token := os.Getenv("SVC_API_TOKEN"); token != "" {
				return token, checkToken("SVC_API_TOKEN", token)
			}
			return "", errors.New("no token: set SVC_API_TOKEN or --token-file")
		}
		b, err := readFile(ctx, file, maxTokenFile)
		if err != nil {
			return "", fmt.Errorf("--token-file: %w", err)
		}
		if token := strings.TrimSpace(string(b)); token != "" {
			return token, checkToken("--token-file", token)
		}
		return "", fmt.Errorf("--token-file: %s is empty", file)
	}
}

// checkToken returns a tokenError if the client would not send the token.
func checkToken(source, token string) error {
	if _, err := svc.NewClient(noAddress, svc.WithToken(token)); err != nil {
		return tokenError{fmt.Errorf("%s: %s", source, plainText(err))}
	}
	return nil
}

// attempt is the function for [svc.WithAttemptHook]. It records whether a create was sent, and
// whether the endpoint existed.
func (t *tool) attempt(ctx context.Context, a svc.Attempt) {
	isDelete, absent := a.Method == http.MethodDelete, a.StatusCode == http.StatusNotFound || a.StatusCode == http.StatusGone
	t.note(func(f *facts) {
		f.Posted = f.Posted || a.Method == http.MethodPost
		f.Changed, f.Changing = f.Changed || a.Method == http.MethodPut && !refuses(a.StatusCode), false
	})
	took := isDelete && a.StatusCode/100 == 2
	t.noteEndpoint(a.ID, func(e *endpoint) {
		e.shown = e.shown || a.StatusCode/100 == 2
		e.maybe = e.maybe || isDelete && !absent
		e.accepted = e.accepted || took
	})
	t.talk.attempt(a)
	if took && strings.HasPrefix(a.Route, "/v1/inference-service/") {
		t.markDelete(ctx, a.ID, *t.deletedAt.Load())
	}
}

// refuses reports whether a response with a status certainly had no effect. Some gateways send a 408 or a
// 499 after the service has acted.
func refuses(status int) bool {
	return status/100 == 4 && status != http.StatusRequestTimeout && status != 499
}
