package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"example.com/svc"
	"example.com/svc/ledger"
)

// deleteView lists the result for each endpoint.
type deleteView struct {
	outcome
	Endpoints []deletion `json:"endpoints"`
}

// deletion is the result for one endpoint.
type deletion struct {
	ServiceID string `json:"service_id"`
	Key       string `json:"key"`     // in the ledger; empty if it does not have it
	Deleted   bool   `json:"deleted"` // the endpoint existed, and is known to be deleted, by this command or before
	Missing   bool   `json:"missing"` // the service did not find it from the first request on: deleted before (then deleted is true too), mistyped, or of another account
	Error     string `json:"error"`   // why it is not known to be deleted; empty if it is, or was missing

	proven bool // it is known that the endpoint does not run
	before bool // it was deleted before, by the ledger
}

// missed returns why a "not found" is not a failure.
func (d *deletion) missed(err error) string {
	if d.before {
		return plainText(err)
	}
	return printable(d.ServiceID) + " is not found: deleted, mistyped, or of another account"
}

func emptyDelete() view { return &deleteView{Endpoints: []deletion{}} }

func (v *deleteView) table() table {
	t := table{header: []string{"ID", "RESULT"}}
	for _, d := range v.Endpoints {
		result := "deleted"
		switch {
		case d.before:
			result = "deleted before"
		case d.Missing:
			result = "not found"
		case !d.Deleted:
			result = "NOT deleted"
		}
		t.rows = append(t.rows, []string{d.ServiceID, result})
	}
	return t
}

func (v *deleteView) names() (ids []string) {
	for _, d := range v.Endpoints {
		if d.Deleted && !d.before {
			ids = append(ids, d.ServiceID)
		}
	}
	return ids
}

func (t *tool) deleteCommand() *command {
	var missingOK bool
	c := &command{
		Command: &cobra.Command{
			Use: "delete ID...", SuggestFor: []string{"rm", "remove", "destroy"}, Short: "delete endpoints and wait until they are deleted",
			Long: `Deletes endpoints, repeats the delete while it has no effect, and ends when the deletions are
proved. Ends with 5 if there is no such endpoint, unless --missing-ok is given. If the service does not
find the endpoint from the beginning, that takes at least 40 s, and up to a minute, also if the ledger has
its create: a new endpoint may not be found at first. For one that the ledger has as deleted, one read is
enough.

An endpoint that has the mark of an entry in doubt, [svc:INTENT] in its description, is adopted first, so
that its deletion settles the entry.`,
			Example: "  svc delete svc-1 svc-2\n  svc delete --key chat --missing-ok",
		},
		client: needsClient, ledger: usesLedger, stake: changes, empty: emptyDelete,
	}
	t.takesKey(c, 0)
	c.Args = func(cmd *cobra.Command, args []string) error {
		if keyed := cmd.Flags().Changed("key"); keyed == (len(args) > 0) {
			return errors.New("give either IDs or --key KEY")
		}
		return nil
	}
	c.Flags().BoolVar(&missingOK, "missing-ok", false, "end with exit code 0, not 5, if there is no such endpoint")
	c.left = func(f facts) []string {
		return []string{fmt.Sprintf("%s may still be running and billed. To try again%s: %s", capital(f.subject()), f.withItsToken(), t.cmdOn(f, "delete"))}
	}
	c.run = func(ctx context.Context, args []string) (view, error) {
		if t.flags.key != "" {
			e, _, err := t.target(ctx, args)
			if isA[noEntryError](err) && missingOK {
				t.talk.say("%s", plainText(err))
				return emptyDelete(), nil
			}
			if err != nil {
				return nil, err
			}
			args = []string{e.ServiceID}
		}
		return t.deleteAll(ctx, args, missingOK)
	}
	return c
}

// deleteAll deletes endpoints, several at a time.
func (t *tool) deleteAll(ctx context.Context, ids []string, missingOK bool) (view, error) {
	t.talk.setDeleting(true)
	entries := t.recorded(ctx, ids)
	ids = slices.Clone(ids)
	for i, id := range ids { // as the service spells it: another case finds the entry, and not the endpoint
		ids[i] = cmp.Or(entries[strings.ToLower(id)].ServiceID, id)
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	t.note(func(f *facts) { f.ID = strings.Join(ids, " ") })
	v := &deleteView{Endpoints: make([]deletion, len(ids))}
	for i, id := range ids {
		v.Endpoints[i] = deletion{ServiceID: id, Key: entries[strings.ToLower(id)].Key, Error: "not known to be deleted when the program was ended"}
	}
	if len(ids) == 1 {
		t.note(func(f *facts) { f.Entry = v.Endpoints[0].Key })
	}
	t.note(func(*facts) {
		t.partial = func() view { return &deleteView{Endpoints: slices.Clone(v.Endpoints)} }
	})
	errs := make([]error, len(ids))
	slots := make(chan struct{}, 8)
	var all sync.WaitGroup
	for i, id := range ids {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			e := entries[strings.ToLower(id)]
			d, err := t.deleteOne(ctx, id, e)
			d.Key = cmp.Or(d.Key, e.Key)
			t.note(func(*facts) { v.Endpoints[i], errs[i] = d, err })
		})
	}
	all.Wait()
	var left []string
	for i, d := range v.Endpoints {
		if !d.Deleted && !d.Missing {
			left = append(left, d.ServiceID)
		}
		if d.Missing && missingOK && !isA[mixedUpError](errs[i]) {
			t.talk.say("%s", d.missed(errs[i]))
			errs[i] = nil
		}
	}
	t.note(func(f *facts) {
		f.Running = slices.ContainsFunc(v.Endpoints, func(d deletion) bool { return !d.proven })
		f.Left = len(left) > 0
		if f.Left {
			f.ID = strings.Join(left, " ")
		}
	})
	err := joined(errs)
	if err != nil && len(left) == 0 {
		err = coded{err, exitNotFound}
	}
	return v, err
}

// recorded returns the entries of the endpoints that the ledger has as created or deleted at this
// address, by their IDs in lower case. Failures of the ledger are ignored, so that endpoints can still
// be deleted. It says which of the IDs have an open entry at another address: that stays open.
func (t *tool) recorded(ctx context.Context, ids []string) map[string]ledger.Entry {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	entries, err := t.client.Ledger.Entries(ctx) // returns when ctx ends, even if the store hangs
	if err != nil && !errors.Is(err, svc.ErrNoLedger) {
		t.note(func(f *facts) { f.Unread = true })
		why, then := "the ledger cannot be read", "when it can"
		if key := damagedKey(err); key != "" {
			why, then = "the records of the key "+key+" are damaged", "when they are restored from a copy"
		}
		t.talk.warn("%s, so the entry of what is deleted may stay open; run the same command again %s: %s", why, then, plainText(err))
	}
	for _, e := range t.openElsewhereWith(entries, ids...) {
		t.talk.warn("the ledger has %s, of the key %s, at another address, and that entry stays open. If it is the same endpoint: %s", printable(e.ServiceID), e.Key, t.cmdOf(e, "delete --key %s", e.Key))
	}
	return t.byID(entries)
}

// openElsewhereWith returns the open entries at other addresses that have one of some IDs.
func (t *tool) openElsewhereWith(entries []ledger.Entry, ids ...string) []ledger.Entry {
	return slices.DeleteFunc(slices.Clone(entries), func(e ledger.Entry) bool {
		return !e.Open() || !t.elsewhere(e) || !slices.ContainsFunc(ids, func(id string) bool { return strings.EqualFold(id, e.ServiceID) })
	})
}

// byID returns the entries of the endpoints that the ledger has as created or deleted at this address, by their IDs in
// lower case.
func (t *tool) byID(entries []ledger.Entry) map[string]ledger.Entry {
	found := map[string]ledger.Entry{}
	for _, e := range slices.Backward(entries) { // an open entry counts, if there are several
		if known := e.State == ledger.Deleted || e.State == ledger.Created; known && !t.elsewhere(e) {
			found[strings.ToLower(e.ServiceID)] = e
		}
	}
	return found
}

// deletedError is returned for an endpoint that was deleted before, and that the service does not find.
type deletedError struct {
	id string
	at time.Time
}

func (e deletedError) Error() string {
	return fmt.Sprintf("%s is deleted already: the ledger has its deletion of %s, and the service does not find it", e.id, stamp(e.at))
}

// Is makes the error match [svc.ErrNotFound].
func (deletedError) Is(target error) bool { return target == svc.ErrNotFound }

// missing reports whether the service does not find an endpoint now. For an endpoint that was deleted
// before, that is sufficient.
func (t *tool) missing(ctx context.Context, id string) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := t.client.InferenceServices.Get(ctx, id, svc.WithMaxAttempts(1))
	return isNotFound(err)
}

// deleteOne deletes one endpoint and waits until the deletion is proven. If every response was
// "not found", there was no such endpoint. e is its entry; zero if the ledger does not have it.
func (t *tool) deleteOne(ctx context.Context, id string, e ledger.Entry) (deletion, error) {
	if e.State == ledger.Deleted && t.missing(ctx, id) {
		if t.facts().Listed { // the entry of --key was open when this command began
			t.talk.say("%s is deleted: another command has proved it", printable(id))
			return deletion{ServiceID: id, Deleted: true, proven: true}, nil
		}
		return deletion{ServiceID: id, Deleted: true, Missing: true, proven: true, before: true}, deletedError{id, e.DeletedAt}
	}
	if e.State == "" {
		entries := t.entriesBriefly(ctx)
		if err := t.notID(ctx, id, entries); err != nil {
			return deletion{ServiceID: id, Missing: true}, err
		}
		e = t.adoptMarked(ctx, id, entries)
	}
	d := deletion{ServiceID: id, Key: e.Key}
	err := t.deleteAndWait(ctx, id, e)
	d.proven = err == nil // "not found" alone proves nothing: the token may be of another account
	now := t.endpoint(id)
	existed := now.shown || now.maybe || e.State == ledger.Created
	if err == nil && !existed {
		err = fmt.Errorf("%s: %w", id, svc.ErrNotFound)
	} else {
		err = t.withoutProof(ctx, e, err)
	}
	d.Missing = isNotFound(err)
	if d.Deleted = err == nil; !d.Deleted && !d.Missing {
		d.Error = plainText(err)
	}
	return d, err
}

// adoptMarked adopts an endpoint that is to be deleted, and that no entry has, for the open entry whose mark it has, so
// that the deletion settles that entry. It returns the entry; zero if there is none. Nothing of that keeps the endpoint
// from being deleted.
func (t *tool) adoptMarked(ctx context.Context, id string, entries []ledger.Entry) ledger.Entry {
	entries = slices.DeleteFunc(slices.Clone(entries), func(e ledger.Entry) bool { return !e.Open() || e.ServiceID != "" })
	if len(entries) == 0 {
		return ledger.Entry{}
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	s, err := t.client.InferenceServices.Get(ctx, id)
	if err != nil {
		return ledger.Entry{}
	}
	mark, _ := ledger.FindMark(s.Description)
	i := slices.IndexFunc(entries, func(e ledger.Entry) bool { return e.Intent == mark })
	if i < 0 {
		return ledger.Entry{}
	}
	e := entries[i]
	if t.elsewhere(e) {
		t.talk.warn("%s has the mark of the entry in doubt of the key %s, which is at another address and stays in doubt. Once it is deleted: %s", printable(id), e.Key, t.cmdOf(e, "forget %s", e.Key))
		return ledger.Entry{}
	}
	if _, err := t.client.Ledger.Adopt(ctx, e, id, nil); err != nil {
		t.talk.warn("the entry of the key %s stays in doubt: its endpoint, %s, could not be adopted: %s. Once it is deleted: %s", e.Key, printable(id), plainText(err), t.cmd("forget %s", e.Key))
		return ledger.Entry{}
	}
	t.talk.say("%s has the mark of the entry in doubt of the key %s: it is adopted now, so that its deletion settles the entry", printable(id), e.Key)
	return t.byID(t.entriesBriefly(ctx))[strings.ToLower(id)]
}

// refusedLimit is how long a deletion continues while the service refuses the token.
const refusedLimit = 30 * time.Second

// deleteAndWait deletes an endpoint and waits until the deletion is proven, or until another process has
// recorded it in the ledger. e is its entry; zero if not known. It returns an error if the service
// refuses the token for refusedLimit. (DeleteAndWait of the client tries until ctx ends, since a token
// may be renewed.)
func (t *tool) deleteAndWait(ctx context.Context, id string, e ledger.Entry) error {
	e.ServiceID = id
	err := t.untilDeleted(ctx, e, t.client.InferenceServices.DeleteAndWait)
	if err != nil && !t.endpoint(id).tried && kindOf(err).name == "timeout" {
		return several{fmt.Sprintf("no delete of %s was sent: the time limit is over", printable(id)), []error{err}}
	}
	return err
}

// untilDeleted calls a function that waits until the endpoint of an entry is deleted. It ends like deleteAndWait.
func (t *tool) untilDeleted(ctx context.Context, e ledger.Entry, wait deletionWait) error {
	id := e.ServiceID
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	w := t.wait
	var refused error
	proven := false // by another process
	since := time.Duration(-1)
	w.OnPoll = func(p svc.Poll) {
		t.talk.poll(p)
		switch {
		case isNotFound(p.Err) && t.deletedSince(ctx, e):
			proven = true
			stop()
		case p.Err == nil || kindOf(p.Err).code != exitRefused:
			since = -1
		case since < 0:
			since = p.Elapsed
		case p.Elapsed >= since+refusedLimit:
			refused = p.Err
			stop()
		}
	}
	err := wait(ctx, id, &w)
	if err != nil && proven {
		t.talk.say("%s is deleted: another command has proved it", printable(id))
		t.noteEndpoint(id, func(e *endpoint) { e.shown = true }) // the ledger has its create
		return nil
	}
	if err != nil && t.endpoint(id).accepted {
		t.tellMarked(ctx, id)
	}
	if err != nil && refused != nil {
		return fmt.Errorf("the service did not accept the token for %v: %w", refusedLimit, refused)
	}
	return err
}

// deletedSince reports whether the ledger has an entry as deleted that was open before.
func (t *tool) deletedSince(ctx context.Context, e ledger.Entry) bool {
	if e.State != ledger.Created {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if open, err := t.client.Ledger.Entry(ctx, e.Key); err != nil || open != nil && open.Intent == e.Intent {
		return false
	}
	entries, _ := t.client.Ledger.Entries(ctx)
	return slices.ContainsFunc(entries, func(now ledger.Entry) bool { return now.Intent == e.Intent && now.State == ledger.Deleted })
}

// joined joins errors in one line. It returns a single error unchanged.
func joined(errs []error) error {
	errs = slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return err == nil })
	if len(errs) <= 1 {
		return errors.Join(errs...)
	}
	texts := make([]string, len(errs))
	for i, err := range errs {
		texts[i] = plainText(err)
	}
	return several{strings.Join(texts, "; "), errs}
}

// several is one error or several, in one line.
type several struct {
	text string
	errs []error
}

func (e several) Error() string { return e.text }

func (e several) Unwrap() []error { return e.errs }
