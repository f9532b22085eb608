package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.com/svc"
	"example.com/svc/ledger"
)

// check is one thing that doctor has checked.
type check struct {
	Name   string `json:"name"`
	Result string `json:"result"` // ok, problem, pending: not known yet, or skipped: an earlier problem is in the way, or there is nothing to check
	Detail string `json:"detail"`
	Advice string `json:"advice"` // what to do; empty if nothing
}

type doctorView struct {
	outcome
	Checks []check `json:"checks"`

	off time.Duration // how far the clock of this machine is ahead of the service's
}

func emptyDoctor() view { return &doctorView{Checks: []check{}} }

func (v *doctorView) table() table {
	t := table{header: []string{"CHECK", "RESULT", "DETAIL", "WHAT TO DO"}}
	for _, c := range v.Checks {
		t.rows = append(t.rows, []string{c.Name, c.Result, c.Detail, dash(c.Advice)})
	}
	return t
}

func (v *doctorView) names() []string { return nil }

func (v *doctorView) ok(name, format string, args ...any) {
	v.Checks = append(v.Checks, check{name, "ok", fmt.Sprintf(format, args...), ""})
}

func (v *doctorView) problem(name, detail, advice string) {
	v.Checks = append(v.Checks, check{name, "problem", detail, advice})
}

func (v *doctorView) skipped(names ...string) {
	for _, name := range names {
		v.Checks = append(v.Checks, check{name, "skipped", "", ""})
	}
}

func (t *tool) doctorCommand() *command {
	return &command{
		Command: &cobra.Command{
			Use: "doctor", Short: "check the settings, the service and the ledger; changes nothing",
			Long: `Checks the address, the token, the flavor list, the clock, the inference URL and the ledger, and
says what to do about each problem. It changes nothing: to try a ledger, it writes files in its
folder, or in the folder where the first create would make it, and removes them; into a database it
inserts no record. Ends with 1 if there is a problem.`,
		},
		stake: reads, empty: emptyDoctor,
		run: func(ctx context.Context, _ []string) (view, error) {
			v := emptyDoctor().(*doctorView)
			tried := t.tryLedger(ctx) // at the same time: each of the two may need all of it
			t.checkService(ctx, v)
			t.checkLedger(ctx, v, tried())
			problems := 0
			for _, c := range v.Checks {
				if c.Result == "problem" {
					problems++
				}
			}
			if problems > 0 {
				return v, fmt.Errorf("%w: %d", errProblem, problems)
			}
			return v, nil
		},
	}
}

// checkService checks everything from the settings to the clock of the service.
func (t *tool) checkService(ctx context.Context, v *doctorView) {
	rest := []string{"service", "token", "flavors", "clock", "inference URL"}
	if err := t.makeClient(ctx, &command{client: needsClient}, nil); err != nil {
		advice := t.wrongSettings(ctx)
		switch text := plainText(err); {
		case strings.HasPrefix(text, "SVC_INSECURE_HTTP"):
			advice = "set SVC_INSECURE_HTTP to 1, true, 0 or false, or unset it"
		case strings.Contains(text, "--insecure-http"):
			advice = "use the https:// address; only in a network where nobody can read along: SVC_INSECURE_HTTP=true, or --insecure-http here and with every command"
		}
		v.problem("settings", plainText(err), advice)
		v.skipped(rest...)
		return
	}
	v.ok("settings", "address %s", t.address)
	t.checkProxy(ctx, v)
	var response svc.Response
	flavors, err := t.client.Flavors.List(ctx, svc.WithResponse(&response))
	switch {
	case isA[tokenError](err):
		v.problem("token", plainText(err), "check SVC_API_TOKEN or --token-file")
		v.skipped("service", "flavors", "clock")
	case isA[*svc.TransportError](err) || errors.Is(err, context.DeadlineExceeded):
		v.problem("service", plainText(err), "check the address, the network, the proxy and the certificates (SSL_CERT_FILE)")
		v.skipped("token", "flavors", "clock")
	case errors.Is(err, svc.ErrUnauthorized) || errors.Is(err, svc.ErrForbidden):
		v.ok("service", "reached%s", securely(t.address))
		v.problem("token", plainText(err), "check SVC_API_TOKEN or --token-file")
		v.skipped("flavors")
		checkClock(v, response.Header)
	case err != nil:
		v.ok("service", "reached%s", securely(t.address))
		v.problem("flavors", plainText(err), "check that the address, with its path, is that of the service, and not of a proxy or a login page")
		v.skipped("token")
		checkClock(v, response.Header)
	default:
		v.ok("service", "reached%s", securely(t.address))
		v.ok("token", "accepted")
		checkFlavors(v, flavors)
		checkClock(v, response.Header)
	}
	t.checkInference(ctx, v)
}

// wrongSettings names the settings that keep a client from being made, each as it was given.
func (t *tool) wrongSettings(ctx context.Context) string {
	address := cmp.Or(t.flags.baseURL, os.Getenv("SVC_BASE_URL"))
	inference := cmp.Or(t.flags.inferenceURL, os.Getenv("SVC_INFERENCE_URL"))
	_, noToken := readToken(t.flags.tokenFile)(ctx)
	if isA[tokenError](noToken) {
		noToken = nil // the first request fails
	}
	refused := func(address, inference string) error {
		_, err := svc.NewClient(address, svc.WithToken("any"), svc.WithInsecureHTTP(), svc.WithInferenceURL(inference))
		return err
	}
	var lines []string
	for _, s := range []struct {
		wrong            error
		name, flag       string
		inFlag, anywhere bool
	}{
		{refused(cmp.Or(address, "none"), noAddress), "SVC_BASE_URL", "--base-url", t.flags.baseURL != "", address != ""},
		{noToken, "SVC_API_TOKEN", "--token-file", t.flags.tokenFile != "", t.flags.tokenFile != ""},
		{refused(noAddress, cmp.Or(inference, noAddress)), "SVC_INFERENCE_URL", "--inference-url", t.flags.inferenceURL != "", true},
	} {
		switch {
		case s.wrong == nil:
		case !s.anywhere:
			lines = append(lines, "set "+s.name+" or "+s.flag)
		case s.inFlag:
			lines = append(lines, "correct "+s.flag)
		default:
			lines = append(lines, "correct "+s.name)
		}
	}
	return strings.Join(lines, "; ")
}

func securely(address string) string {
	if strings.HasPrefix(strings.ToLower(address), "https:") {
		return ", its certificate is accepted"
	}
	return " without TLS"
}

func (t *tool) checkProxy(ctx context.Context, v *doctorView) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, t.address, nil)
	if err != nil {
		return // NewClient has checked the address
	}
	switch proxy, err := http.ProxyFromEnvironment(r); {
	case err != nil:
		v.problem("proxy", "HTTP_PROXY or HTTPS_PROXY is not a URL", "correct it; NO_PROXY lists the hosts to reach without a proxy")
	case proxy == nil:
		v.ok("proxy", "none")
	default:
		v.ok("proxy", "%s://%s", proxy.Scheme, proxy.Host)
	}
}

func checkFlavors(v *doctorView, flavors []svc.Flavor) {
	priced, stock := 0, 0
	for _, f := range flavors {
		if f.Billing.Price(svc.CurrencyUSD).Float64() > 0 {
			priced++
		}
		if f.AvailableNum > 0 {
			stock++
		}
	}
	switch {
	case len(flavors) == 0:
		v.problem("flavors", "the list is empty", "ask the provider which GPUs your account may rent")
	case priced == 0:
		v.problem("flavors", "no flavor has a price in USD, so the cheapest one is not known", "name a flavor with --flavor")
	default:
		v.ok("flavors", "%d, in stock: %d, with a price: %d", len(flavors), stock, priced)
	}
}

// checkClock compares the clock of this machine with the Date of a response.
func checkClock(v *doctorView, header http.Header) {
	date, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		v.problem("clock", "the responses have no Date", "leases cannot be enforced: \"svc sweep\" needs the service's clock")
		return
	}
	off := time.Since(date).Round(time.Second)
	v.off = off
	if off.Abs() > time.Minute {
		v.problem("clock", fmt.Sprintf("%v away from the service's clock", off), "set the clock of this machine (NTP)")
		return
	}
	v.ok("clock", "%v away from the service's clock", off)
}

// checkInference checks the base address of the endpoints. Any response is accepted.
func (t *tool) checkInference(ctx context.Context, v *doctorView) {
	const name = "inference URL"
	if _, err := t.client.InferenceServices.URL("any"); err != nil {
		v.Checks = append(v.Checks, check{name, "skipped", "not set", `set SVC_INFERENCE_URL or --inference-url if you use "svc url" or --probe`})
		return
	}
	address := cmp.Or(t.flags.inferenceURL, os.Getenv("SVC_INFERENCE_URL"))
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err == nil {
		var response *http.Response
		if response, err = http.DefaultTransport.RoundTrip(r); err == nil { // without the token, and no redirect is followed
			_ = response.Body.Close()
			v.ok(name, "%s responds", host(address))
			return
		}
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	v.problem(name, plainText(err), "check the address and the network")
}

// triedLedger is what came of a try of the ledger.
type triedLedger struct {
	place     place
	nowhere   error // it cannot be found
	unopened  error // it cannot be opened
	unmade    error // there is none at the default place, and it cannot be made
	records   []ledger.Record
	err       error // it cannot be read
	unwritten error // it cannot be written
}

// tryLedger begins to try the ledger, and returns a function that waits for what came of it. That does not outlast
// ctx for long, also if the store does.
func (t *tool) tryLedger(ctx context.Context) (result func() triedLedger) {
	p, err := t.findLedger()
	tried := make(chan triedLedger, 1)
	go func() {
		l := triedLedger{place: p, nowhere: err}
		if err == nil && p.driver != "none" {
			l.try(ctx)
		}
		tried <- l
	}()
	return func() triedLedger {
		select {
		case l := <-tried:
			return l
		case <-ctx.Done(): // a store that respects ctx ends now
		}
		select {
		case l := <-tried:
			return l
		case <-time.After(time.Second):
			return triedLedger{place: p, err: ctx.Err()}
		}
	}
}

const stalledLedger = "it did not respond in time: try again with a longer --timeout, and check its disk or its database"

// try opens the ledger, reads it, and tries to write to it.
func (l *triedLedger) try(ctx context.Context) {
	store, stop, err := openPlace(ctx, l.place, ledger.MustExist())
	if l.unopened = err; err != nil {
		if isA[noLedgerError](err) && !l.place.explicit {
			l.unmade = l.place.tryMake(ctx)
		}
		return
	}
	defer stop()
	l.records, l.err = store.List(ctx, "")
	l.unwritten = l.place.tryWrite(ctx)
}

// checkLedger reports whether the ledger can be read and written, and its open entries.
func (t *tool) checkLedger(ctx context.Context, v *doctorView, l triedLedger) {
	p, err := l.place, l.unopened
	t.note(func(f *facts) { f.Running = true }) // nobody knows until it is read
	if l.nowhere != nil {
		v.problem("ledger", plainText(l.nowhere), "set SVC_LEDGER or --ledger")
		return
	}
	t.place = p
	if p.driver == "none" {
		v.problem("ledger", "none", "without a ledger an endpoint is lost if its process is killed: unset SVC_LEDGER")
		return
	}
	switch {
	case isA[noLedgerError](err) && !p.explicit:
		if l.unmade != nil {
			v.problem("ledger", fmt.Sprintf("none yet, and %s cannot be made: %s", p.shown, plainText(l.unmade)), "until it can, nothing is created: check who may write there, or set HOME, XDG_STATE_HOME or SVC_LEDGER")
			return
		}
		v.ok("ledger", "none yet at %s: the first create makes it", p.shown)
		return
	case isA[noLedgerError](err):
		v.problem("ledger", plainText(err), "check the path, or make a ledger: "+t.cmd("ledger init"))
		return
	case isMalformed(err):
		v.problem("ledger", plainText(err), strings.Join(t.malformed(), " "))
		return
	case isA[stalledError](err):
		v.problem("ledger", plainText(err), stalledLedger)
		return
	case err != nil:
		v.problem("ledger", plainText(err), "check that it exists, that it is a ledger, and that you may read and write it")
		return
	}
	switch err = l.err; {
	case isMalformed(err):
		v.problem("ledger", plainText(err), strings.Join(t.malformed(), " "))
	case isA[stalledError](err) || isEnd(err):
		v.problem("ledger", plainText(err), stalledLedger)
	case err != nil:
		v.problem("ledger", plainText(err), "repair or restore it; until then nothing is created under a damaged key")
	case l.unwritten != nil:
		v.problem("ledger", "it cannot be written: "+plainText(l.unwritten), "until it can be written, nothing is created: check the space on its disk, its free inodes (df -i), and who may write there")
	default:
		v.ok("ledger", "%s: readable and writable, %d records", p.shown, len(l.records))
	}
	entries, damaged := ledger.Fold(l.records)
	if damaged != nil {
		v.problem("records", plainText(damaged), "look at the endpoints of the keys that are named, and delete what should not run")
	}
	t.checkAccount(ctx, v, entries)
	t.checkEntries(v, entries, errors.Join(err, damaged))
}

// tryMake tries to make the folder of a ledger that does not exist, and leaves nothing behind.
func (p place) tryMake(ctx context.Context) error {
	parent := p.name // the first of its folders that exists
	for _, err := os.Lstat(parent); errors.Is(err, fs.ErrNotExist) && parent != filepath.Dir(parent); _, err = os.Lstat(parent) {
		parent = filepath.Dir(parent)
	}
	dir, err := litter.folder(parent, ".ledger-doctor-")
	if err != nil {
		return err
	}
	defer func() { _ = litter.remove(dir) }()
	return place{driver: p.driver, name: dir}.tryWrite(ctx)
}

// triedFiles is how many files must fit into the folder of a ledger at once. A deployment has a record, which is a file, for the
// create, its outcome, the accepted delete and the deletion. SQLite has its journal in at most two.
const triedFiles = 4

// tryWrite tries to write to a ledger that exists, and leaves nothing behind. It writes files of the size of a large
// record, except for PostgreSQL.
func (p place) tryWrite(ctx context.Context) error {
	folder := p.name
	if p.driver != "folder" {
		if err := p.tryInsert(ctx); err != nil {
			return err
		}
		folder = filepath.Dir(p.name) // SQLite writes its journal there
	}
	if p.driver == "postgres" {
		return nil
	}
	for range triedFiles {
		f, err := litter.file(folder, ".ledger-doctor-")
		if err != nil {
			return err
		}
		defer func() { _ = litter.remove(f.Name()) }() // at the end: they must all fit at once
		_, err = f.Write(make([]byte, 16<<10))
		if err = cmp.Or(err, f.Sync(), f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// tryInsert tries to insert a record into a database that the ledger has already, so that nothing is inserted.
func (p place) tryInsert(ctx context.Context) error {
	store, stop, err := openPlace(ctx, p, ledger.MustExist())
	if err != nil {
		return err
	}
	defer stop()
	records, err := store.List(ctx, "")
	if len(records) > 0 {
		if err = store.Append(ctx, records[0]); errors.Is(err, fs.ErrExist) {
			return nil
		}
		return cmp.Or(err, errors.New("a record that it had is gone"))
	}
	if err == nil {
		_, stop, err = openPlace(ctx, p) // would make a ledger, if this one is gone meanwhile: it was empty
	}
	if err == nil {
		stop()
	}
	return err
}

// checkAccount checks whether the token is of the account that has created the open endpoints. A new
// token of the same account finds the endpoints that were created with another token.
func (t *tool) checkAccount(ctx context.Context, v *doctorView, entries []ledger.Entry) {
	if t.client == nil {
		return
	}
	if hidden := t.hidden(ctx, entries); len(hidden) > 0 {
		v.problem("account", "not found, and created with another token: "+strings.Join(hidden, ", "),
			"use the token of the account that created them; if it is a new token of that account, and they do not exist: "+t.cmd("forget KEY --other-token"))
	}
}

func (t *tool) checkEntries(v *doctorView, entries []ledger.Entry, failed error) {
	open, before, now := 0, len(v.Checks), time.Now()
	service := now.Add(-v.off) // leases end by the service's clock
	under := map[string]int{}
	for _, e := range entries {
		if !e.Open() {
			continue
		}
		open++
		if under[e.Key]++; under[e.Key] == 2 {
			v.problem("key", "the key "+e.Key+" has several open entries, so every command with it ends with 9", "to see them: "+t.cmd("ls")+". Keep one, and delete each other one by its ID: "+t.cmdOf(e, "delete ID"))
		}
		what := strings.TrimPrefix(e.ServiceID+" of the key "+e.Key, " of ")
		switch {
		case e.Doubt != "":
			v.problem("times", what+": "+e.Doubt, "set the clocks of the machines that share the ledger (NTP)")
		case slices.ContainsFunc(damages(failed), func(d *ledger.Error) bool { return d.Key == e.Key }): // see checkDamaged
		case e.InDoubt(now):
			v.problem("doubt", "the outcome of the create of the key "+e.Key+" is not known", fmt.Sprintf("look for %q at the provider, then: %s", e.Name, t.settle(e)))
		case e.ServiceID == "":
			v.Checks = append(v.Checks, check{
				"create", "pending", fmt.Sprintf("the create of the key %s has no outcome yet: it is under way, or its process has ended without one; in doubt from %s on", e.Key, clock(e.SettleBy.Add(ledger.SettleMargin))),
				fmt.Sprintf("if no command is creating it now: look for %q, with [svc:%s] in its description, at the provider, then: %s", e.Name, e.Intent, t.settle(e)),
			})
		case time.Since(deleteAccepted(e)) < deleteSettles:
			v.Checks = append(v.Checks, check{"delete", "pending", what + ": " + deletingText(e), "if nothing goes on with it: " + t.cmdOf(e, "sweep")})
		case !deleteAccepted(e).IsZero():
			v.problem("delete", what+": "+deletingText(e), t.cmdOf(e, "sweep")+", or: "+t.cmdOf(e, "delete %s", printable(e.ServiceID)))
		case leaseEnded(e, service):
			v.problem("lease", fmt.Sprintf("the lease of %s is over since %s", what, short(service.Sub(e.LeaseEnd))), t.remedy(e))
		}
		if t.address != "" && t.elsewhere(e) {
			v.problem("address", fmt.Sprintf("%s is at %s", what, e.BaseURL), "look at it there: --base-url "+shellWord(e.BaseURL))
		}
	}
	t.checkDamaged(v, entries, failed)
	t.note(func(f *facts) { f.Running = anyOpen(entries, failed) })
	switch {
	case failed != nil:
		v.Checks = append(v.Checks, check{"entries", "skipped", "the ledger could not be read whole: others may be open, or in doubt", ""})
	case len(v.Checks) == before:
		v.ok("entries", "%d open, none of them in doubt, overdue or at another address", open)
	}
}

// checkDamaged reports each key whose records are damaged. adopt and forget refuse it.
func (t *tool) checkDamaged(v *doctorView, entries []ledger.Entry, failed error) {
	said := map[string]bool{}
	for _, d := range damages(failed) {
		if !said[d.Key] {
			said[d.Key] = true
			v.problem("key", "the records of the key "+d.Key+" are damaged, and its endpoint may be running", strings.Join(t.damaged(failed, d.Key, entries), " "))
		}
	}
}

// remedy returns what deletes the endpoint of an entry whose lease is over.
func (t *tool) remedy(e ledger.Entry) string {
	what := t.cmdOf(e, "sweep") + ", and run it every few minutes"
	if e.Adopted {
		what += ". If it was adopted without the mark, no sweep deletes it: " + t.cmdOf(e, "delete %s", printable(e.ServiceID))
	}
	return what
}
