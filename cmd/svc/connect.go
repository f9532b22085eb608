package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"example.com/svc"
	"example.com/svc/ledger"
)

// connect opens what a command needs: the ledger and the client.
func (t *tool) connect(ctx context.Context, c *command) (stop func(), err error) {
	store, closeLedger, err := t.openLedger(ctx, c)
	if err != nil {
		return nil, err
	}
	if err = t.makeClient(c, store); err != nil {
		closeLedger()
	}
	return closeLedger, err
}

func (t *tool) makeClient(c *command, store ledger.Store) error {
	if c.client == noClient && store == nil {
		return nil
	}
	opts := []svc.Option{svc.WithUserAgent("svc-tool/" + version()), svc.WithAttemptHook(t.attempt)}
	if store != nil {
		opts = append(opts, svc.WithLedger(store))
	}
	address, token, err := t.account()
	t.address = strings.TrimRight(address, "/")
	if err != nil && c.client == needsClient {
		return usageError{err}
	} else if err != nil { // the client reads the ledger only
		address, token = "https://no.address.invalid", nil
	}
	if token != nil {
		opts = append(opts, svc.WithTokenSource(token))
	}
	if u := cmp.Or(t.flags.inferenceURL, os.Getenv("SVC_INFERENCE_URL")); u != "" {
		opts = append(opts, svc.WithInferenceURL(u))
	}
	if t.flags.insecureHTTP {
		opts = append(opts, svc.WithInsecureHTTP())
	}
	t.client, err = svc.NewClient(address, opts...)
	if err != nil {
		return usageError{err}
	}
	return nil
}

// elsewhere reports whether an entry is about another service than this one.
func (t *tool) elsewhere(e ledger.Entry) bool {
	return e.BaseURL != "" && strings.TrimRight(e.BaseURL, "/") != t.address
}

// account returns the address of the service and the source of the token. The token is never a
// flag: a command line can be read by every user of a machine.
func (t *tool) account() (address string, token func(context.Context) (string, error), err error) {
	address = cmp.Or(t.flags.baseURL, os.Getenv("SVC_BASE_URL"))
	if address == "" {
		return "", nil, errors.New("no address: set SVC_BASE_URL or --base-url")
	}
	token = readToken(t.flags.tokenFile)
	_, err = token(context.Background())
	return address, token, err
}

// readToken returns a function that reads the token. A file is read for each attempt, since
// its token may be replaced while the program runs.
func readToken(file string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		if file == "" {
			if token := os.Getenv("SVC_API_TOKEN"); token != "" {
				return token, nil
			}
			return "", errors.New("no token: set SVC_API_TOKEN or --token-file")
		}
		b, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("--token-file: %w", err)
		}
		if token := strings.TrimSpace(string(b)); token != "" {
			return token, nil
		}
		return "", fmt.Errorf("--token-file: %s is empty", file)
	}
}

// attempt is the function for [svc.WithAttemptHook]. It notes whether a create was sent, and
// whether the endpoint existed.
func (t *tool) attempt(_ context.Context, a svc.Attempt) {
	absent := a.StatusCode == http.StatusNotFound || a.StatusCode == http.StatusGone
	t.note(func(f *facts) {
		f.Posted = f.Posted || a.Method == http.MethodPost
		// A DELETE without a response may have taken effect.
		if a.StatusCode/100 == 2 || a.Method == http.MethodDelete && !absent {
			t.seen[a.ID] = true
		}
	})
	t.talk.attempt(a)
}
