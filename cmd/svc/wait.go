package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.com/svc"
	"example.com/svc/ledger"
)

func (t *tool) waitCommand() *command {
	var path string
	c := t.takesKey(&command{
		Command: &cobra.Command{
			Use: "wait ID", Short: "wait until an endpoint is available",
			Long: `Waits until an endpoint is available. Ends with 8 if it is unavailable or stopped, and with 5 if
it is not found for 40 s to a minute: a new endpoint may not be found at first. If --timeout is over
before that, it ends with 3. One that the ledger has as deleted is read once. Ends with 10 if the service has accepted a delete of the endpoint in the last five
minutes, also if it is available.`,
			Example: "  svc wait svc-1 --timeout 10m\n  svc wait --key chat --probe /health",
		},
		client: needsClient, ledger: usesLedger, stake: reads, success: stays, empty: emptyService,
	}, 0)
	c.Flags().StringVar(&path, "probe", "", "path of the endpoint, which begins with /: it is available when a GET of it has a 2xx status")
	c.run = func(ctx context.Context, args []string) (view, error) {
		e, _, err := t.target(ctx, args)
		if err != nil {
			return nil, err
		}
		t.warnOfDelete(e)
		if e.State == ledger.Deleted { // another read adds nothing to what the ledger has
			if s, err := t.client.InferenceServices.Get(ctx, e.ServiceID); isNotFound(err) {
				return t.read(s), err
			}
		}
		w := t.wait
		if path != "" {
			if _, err := t.client.InferenceServices.URL(e.ServiceID); err != nil {
				return nil, usageError{fmt.Errorf("--probe: %w", err)}
			}
			w.Probe = t.probe(path)
		}
		s, err := t.client.InferenceServices.WaitUntilAvailable(ctx, e.ServiceID, &w)
		return t.read(s), err
	}
	return c
}

// urlView is the address of an endpoint.
type urlView struct{ serviceView }

func (v *urlView) table() table { return line(v.URL) }

func (t *tool) urlCommand() *command {
	return t.takesKey(&command{
		Command: &cobra.Command{
			Use: "url ID", Short: "print the address of an endpoint that is available",
			Long: `Prints the address of an endpoint. Ends with 8, and prints nothing, if the endpoint is not
available. It needs --inference-url or SVC_INFERENCE_URL.`,
			Example: "  curl \"$(svc url --key chat)/health\"",
		},
		client: needsClient, ledger: usesLedger, stake: reads, success: isThere, empty: func() view { return &urlView{} },
		run: func(ctx context.Context, args []string) (view, error) {
			if _, err := t.client.InferenceServices.URL("any"); err != nil {
				return nil, usageError{err}
			}
			e, _, err := t.target(ctx, args)
			if err != nil {
				return nil, err
			}
			t.warnOfDelete(e)
			s, err := t.client.InferenceServices.Get(ctx, e.ServiceID)
			v, ok := t.read(s).(*serviceView)
			if !ok {
				return nil, err
			}
			if v.URL == "" {
				err = fmt.Errorf("%s %w while it is %s", v.ServiceID, errNotReachable, v.Status)
			}
			return &urlView{*v}, err
		},
	}, 0)
}

func (t *tool) scaleCommand() *command {
	c := t.takesKey(&command{
		Command: &cobra.Command{
			Use: "scale ID INSTANCES", Short: "set the number of instances and wait until they run",
			Long: `Sets the number of instances and waits until they run. If another command sets another number
meanwhile, and the ledger has that, it ends at once: with 10, or with 1 if the endpoint is stopped and
has 0 instances. Ends with 10, and changes nothing, if the service has accepted a delete of the endpoint
in the last five minutes. After that it works, and warns: instances do not keep an endpoint that is being
deleted, only "svc extend" does. Ends with 10, too, if a delete is accepted while it waits, and if the
service refuses the change, for example since the flavor is out of stock: the endpoint runs as before.`,
			Example: "  svc scale svc-1 3\n  svc scale --key chat 0",
		},
		client: needsClient, ledger: usesLedger, stake: changes, success: stays, empty: emptyService,
	}, 1)
	c.left = t.scaleLeft
	c.advise = t.scaleAdvice
	c.run = func(ctx context.Context, args []string) (view, error) {
		n, err := strconv.Atoi(args[len(args)-1])
		if err != nil || n < 0 || n > math.MaxInt32 {
			return nil, usageError{fmt.Errorf("INSTANCES must be a whole number from 0 to 2147483647, not %q", args[len(args)-1])}
		}
		e, _, err := t.target(ctx, args)
		if err != nil {
			return nil, err
		}
		t.note(func(f *facts) { f.Target = n })
		if err := t.mayKeep(e); err != nil {
			return nil, err
		}
		t.warnOfDelete(e)
		t.warnOfOldNumber(ctx, e.ServiceID, n)
		s, err := t.scaleAndWait(ctx, e, n)
		t.note(func(f *facts) {
			f.Changed = f.Changed || isForeign(err)
			switch {
			case err == nil, f.Overtaken:
				f.Running = mayRun(s)
			case s != nil && s.IsDeleted:
				f.Running = false
			}
		})
		if hadNoEndpoint(err) { // which does not prove that it is not running: the token may be of another account
			err = coded{err, exitNotFound}
		}
		return t.service(s), err
	}
	return c
}

// scaleAdvice returns what to do if the ledger cannot record more instances.
func (t *tool) scaleAdvice(err error) []string {
	if t.flags.key != "" || !isA[*ledger.Error](err) || kindOf(err).code != exitLedger {
		return nil
	}
	return append([]string{"More instances need a record. The same command with --ledger none works without one: then the ledger keeps the number from before."}, t.ledgerAdvice(err, t.facts())...)
}

// warnOfOldNumber warns if the ledger has the endpoint of an ID in a way in which it cannot record another number of instances: at another
// address, or with records that are damaged.
func (t *tool) warnOfOldNumber(ctx context.Context, id string, n int) {
	if t.flags.key != "" {
		return
	}
	ctx, cancel := briefly(ctx)
	defer cancel()
	entries, err := t.client.Ledger.Entries(ctx)
	for _, e := range t.openElsewhereWith(entries, id) {
		t.talk.warn("the ledger has %s, of the key %s, at another address, and that entry keeps its number of instances. If it is the same endpoint: %s", printable(id), e.Key, t.cmdOf(e, "scale --key %s %d", e.Key, n))
	}
	for _, e := range t.damagedEntries(ctx, entries, err) {
		if e.Open && strings.EqualFold(e.ServiceID, id) {
			t.talk.warn("the records of the key %s, which has %s, are damaged: the ledger cannot record its number of instances", e.Key, printable(id))
		}
	}
}

// overtakenError is returned if another command has set another number of instances after this one.
type overtakenError struct{ text string }

func (e overtakenError) Error() string { return e.text }

// scaleAndWait sets the number of instances of the endpoint of an entry and waits until they run, or until another
// command has set another number.
func (t *tool) scaleAndWait(ctx context.Context, e ledger.Entry, n int) (s *svc.InferenceService, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	w := t.wait
	var overtaken *svc.InferenceService // the record that shows the other number
	w.OnPoll = func(p svc.Poll) {
		t.polled(p)
		if t.overtaken(ctx, e, n, p.Service) {
			overtaken = p.Service
			stop()
		}
	}
	s, err = t.client.InferenceServices.ScaleAndWait(ctx, e.ServiceID, n, &w)
	if err == nil || overtaken == nil {
		return s, err
	}
	has := int(overtaken.ResourceMetadata.TargetInstanceNumber)
	t.note(func(f *facts) { f.Target, f.Overtaken = has, true })
	return overtaken, overtakenError{fmt.Sprintf("another command has set the number of instances of %s to %d, after this one set it to %d", printable(e.ServiceID), has, n)}
}

// overtaken reports whether a record shows a number of instances that another command has recorded in the ledger after
// this one began, and not the number n of this one.
func (t *tool) overtaken(ctx context.Context, e ledger.Entry, n int, s *svc.InferenceService) bool {
	if s == nil || len(e.Records) == 0 || int(s.ResourceMetadata.TargetInstanceNumber) == n {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	now, err := t.client.Ledger.Entry(ctx, e.Key)
	if err != nil || now == nil || now.Intent != e.Intent || now.Instances != int(s.ResourceMetadata.TargetInstanceNumber) {
		return false
	}
	began := e.Records[len(e.Records)-1].Seq
	return slices.ContainsFunc(now.Records, func(r ledger.Record) bool {
		return r.Event == ledger.Scaled && r.Seq > began && r.Instances == now.Instances
	})
}

// scaleLeft returns what may be running after a change of the number of instances that failed.
func (t *tool) scaleLeft(f facts) []string {
	if !f.Changed && !f.Changing {
		return []string{"The number of instances was not changed: as many as before may be running and billed. To see how many: " + t.cmdOn(f, "get")}
	}
	text := fmt.Sprintf("Up to %s of %s may be running and billed, or as many as before.", count(f.Target), f.subject())
	switch {
	case f.Overtaken:
		text = fmt.Sprintf("%s has %s, by another command, which may be running and billed.", f.subject(), count(f.Target))
	case f.Unwritten:
		text = fmt.Sprintf("The number of instances was changed to %d. They may be running and billed.", f.Target)
	case f.Target == 0:
		text = fmt.Sprintf("As many instances of %s as before may be running and billed, or 0.", f.subject())
	}
	return []string{text + " To see how many: " + t.cmdOn(f, "get")}
}

// hadNoEndpoint reports whether err proves that an update changed nothing, because there is no
// such endpoint. The proof is a "not found" in the response to the first attempt of the PUT, if
// the service sent it and not a proxy. A later "not found", to another attempt or to a poll,
// proves nothing: the first attempt may have taken effect.
func hadNoEndpoint(err error) bool {
	e, ok := errors.AsType[*svc.Error](err)
	return ok && errors.Is(e, svc.ErrNotFound) && e.Method == http.MethodPut && e.Attempts == 1 && !isForeign(err)
}

// isForeign reports whether a proxy or a portal may have sent the response of an error, in place of that to a
// request that took effect.
func isForeign(err error) bool {
	e, ok := errors.AsType[*svc.Error](err)
	return ok && len(e.Body) > 0 && !json.Valid(e.Body)
}
