package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.com/svc"
	"example.com/svc/ledger"
)

func (t *tool) adoptCommand() *command {
	var unmarked, undo bool
	c := &command{
		Command: &cobra.Command{
			Use: "adopt KEY ID", Short: "settle an entry in doubt: this is its endpoint",
			Long: `Records the ID of the endpoint that you found for an entry in doubt. The endpoint must have the
name of the entry, and its description must hold [svc:INTENT]. Then it can be scaled, swept and
deleted like any other. An entry that was forgotten by mistake can be adopted too.

With --unmarked, an endpoint without the mark is accepted; "svc sweep" never deletes it. If you adopted
the wrong one, "svc adopt KEY --undo" puts the entry in doubt again. It deletes nothing, and is refused
if the endpoint has the mark, which proves that it is the right one.`,
			Example: "  svc adopt chat svc-1\n  svc adopt chat --undo",
			Args: func(cmd *cobra.Command, args []string) error {
				if undo && len(args) != 1 {
					return fmt.Errorf("wrong number of arguments (%d): svc adopt KEY --undo", len(args))
				}
				if undo {
					return nil
				}
				return cobra.ExactArgs(2)(cmd, args)
			},
		},
		client: needsClient, ledger: readsLedger, stake: reads, success: isThere, empty: emptyService,
		apart: [][]string{{"undo", "unmarked"}},
	}
	c.advise = t.adoptAdvice
	c.Flags().BoolVar(&unmarked, "unmarked", false, "accept an endpoint without the mark; check first that it is yours")
	c.Flags().BoolVar(&undo, "undo", false, "undo the adoption of a wrong endpoint: the entry of KEY is in doubt again, and nothing is deleted")
	c.run = func(ctx context.Context, args []string) (view, error) {
		if undo {
			return nil, t.undoAdoption(ctx, args[0])
		}
		s, err := t.adopt(ctx, args[0], args[1], unmarked)
		return t.read(s), err
	}
	return c
}

// adoptAdvice returns what to do after an adoption that was refused; nil if the general advice is right.
func (t *tool) adoptAdvice(err error) []string {
	if !isA[*ledger.Error](err) || isA[changedError](err) || isA[elsewhereError](err) || damagedKey(err) != "" {
		return nil
	}
	if e, ok := errors.AsType[markedError](err); ok {
		return []string{fmt.Sprintf("%[1]s is the right endpoint, so nothing was undone. If you do not need it: %s", printable(e.entry.ServiceID), t.cmd("delete --key %s", e.entry.Key))}
	}
	if e, ok := errors.AsType[unmarkedError](err); ok {
		return []string{fmt.Sprintf("Check that %[1]s is of this create, by the time when it was created, its flavor and instances: %s. If it is: %s", printable(e.id), t.cmd("get %s", printable(e.id)), t.cmd("adopt %s %s --unmarked", e.key, printable(e.id)))}
	}
	return []string{fmt.Sprintf("Check KEY and ID. To see the entry: %s. To see the endpoint: %s. To see whether the ledger itself is damaged: %s", t.cmd("ls -o json"), t.cmd("get ID"), t.cmd("doctor"))}
}

// adopt records an ID for the entry of a key.
func (t *tool) adopt(ctx context.Context, key, id string, unmarked bool) (*svc.InferenceService, error) {
	e, err := t.adoptable(ctx, key, id)
	if err == nil {
		err = t.isHere(e)
	}
	if err != nil {
		return nil, err
	}
	t.noteEntry(e)
	t.noteUnsettled(newEntryView(e))
	t.note(func(f *facts) { f.ID = id })
	if e.State == ledger.Created {
		t.talk.say("the key %s has %s already", key, printable(e.ServiceID))
		return t.client.InferenceServices.Get(ctx, e.ServiceID)
	}
	s, err := t.client.Ledger.Adopt(ctx, e, id, &svc.AdoptOptions{Unmarked: unmarked})
	if err = t.meanwhile(ctx, e, err); isChanged(err, func(now ledger.Entry) bool {
		return now.State == ledger.Created && strings.EqualFold(now.ServiceID, id)
	}) {
		t.talk.say("%s", plainText(err))
		s, err = t.client.InferenceServices.Get(ctx, id)
	}
	if errors.Is(err, ledger.ErrMark) && t.hasNoMark(ctx, id) {
		err = unmarkedError{err, key, id}
	}
	if isNotFound(err) && id == e.Key {
		err = mixedUpError{fmt.Sprintf("%s is the key, and the service has no endpoint with that ID. With the ID that the service shows: %s", id, t.cmd("adopt %s ID", id))}
	}
	open := t.openUnder(ctx, key)
	if i := slices.IndexFunc(open, func(e ledger.Entry) bool { return strings.EqualFold(e.ServiceID, id) }); err == nil && i >= 0 {
		t.tellLease(open[i], s)
	}
	if err == nil && len(open) > 1 {
		t.talk.warn("the key %s has %d open entries now, and no command with --key works until one is left. To see them: %s. Delete each other one by its ID: %s", key, len(open), t.cmd("ls"), t.cmd("delete ID"))
	}
	return s, err
}

// unmarkedError is returned for an endpoint without a mark, which --unmarked accepts.
type unmarkedError struct {
	error
	key, id string
}

func (e unmarkedError) Unwrap() error { return e.error }

// hasNoMark reports whether the description of an endpoint has no mark of a ledger. One that has the mark of
// another entry is never adopted.
func (t *tool) hasNoMark(ctx context.Context, id string) bool {
	s, err := t.client.InferenceServices.Get(ctx, id)
	return err == nil && isUnmarked(s)
}

// undoAdoption puts the entry of a key in doubt again, since its endpoint is not the one that its create
// made.
func (t *tool) undoAdoption(ctx context.Context, key string) error {
	t.note(func(f *facts) { f.Key = key })
	open := slices.DeleteFunc(t.openUnder(ctx, key), func(e ledger.Entry) bool { return !e.Adopted })
	if len(open) != 1 {
		e, err := t.entryOf(ctx, key)
		if err != nil {
			return err
		}
		if undone(e) {
			t.talk.say("the key %s is in doubt already: its adoption was undone before", key)
			return nil
		}
		return usageError{fmt.Errorf("the key %q has not adopted an endpoint. To see its entry: %s", key, t.cmd("ls"))}
	}
	e := open[0]
	if err := t.isHere(e); err != nil {
		return err
	}
	t.noteEntry(e)
	err := t.meanwhile(ctx, e, t.client.Ledger.UndoAdopt(ctx, e))
	if err != nil && !isChanged(err, undone) {
		if marked, _ := t.hasItsMark(ctx, e); marked {
			err = markedError{err, e}
		}
		return err
	}
	t.note(func(f *facts) { f.ID = "" })
	is := "as before"
	if !deleteAccepted(e).IsZero() {
		is = "being deleted"
	}
	t.talk.say("the key %s is in doubt again, and %s is %s. If there is an endpoint of the key: %s. If there is none: %s", key, printable(e.ServiceID), is, t.cmd("adopt %s ID", key), t.cmd("forget %s", key))
	return nil
}

// mayBeWrong returns how to undo the adoption of an entry, or that it is the right one, by its mark.
func (t *tool) mayBeWrong(ctx context.Context, e ledger.Entry) string {
	undo := t.cmdOf(e, "adopt %s --undo", e.Key)
	switch marked, err := t.hasItsMark(ctx, e); {
	case marked:
		return ", whose mark proves that the create of this entry made it"
	case err != nil:
		return ". If its description does not have the mark, and that is the wrong endpoint: " + undo
	}
	return ". If that is the wrong endpoint: " + undo
}

// hasItsMark reports whether the endpoint of an entry has the mark of the entry. One that is not found has none.
func (t *tool) hasItsMark(ctx context.Context, e ledger.Entry) (bool, error) {
	if err := t.isHere(e); err != nil {
		return false, err
	}
	s, err := t.client.InferenceServices.Get(ctx, e.ServiceID, svc.WithMaxAttempts(1))
	if err != nil {
		if isNotFound(err) {
			err = nil
		}
		return false, err
	}
	mark, _ := ledger.FindMark(s.Description)
	return mark == e.Intent, nil
}

// markedError is returned for the adoption of an endpoint with the mark of the entry, which is not undone.
type markedError struct {
	error
	entry ledger.Entry
}

func (e markedError) Unwrap() error { return e.error }

// undone reports whether an entry is in doubt because an adoption was undone.
func undone(e ledger.Entry) bool {
	return e.State == ledger.Unknown && slices.ContainsFunc(e.Records, func(r ledger.Record) bool { return r.Event == ledger.Unknown && r.Adopted })
}

func (t *tool) forgetCommand() *command {
	var otherToken bool
	var id once
	c := &command{
		Command: &cobra.Command{
			Use: "forget KEY", Short: "settle an entry in doubt: it has no endpoint",
			Long: `Records that you looked for the endpoint of an entry in doubt, and that there is none. If you are
wrong, the endpoint runs and is billed, and the next "svc deploy" with the key creates a second
one. In a document (-o json), may_be_running is false then: on your word, which nothing checks. The
command waits until the create can certainly no longer take effect: six minutes at most.

An entry whose endpoint the service does not find any more can be settled too. It needs the same proof as
with "svc delete", which takes 40 s to a minute, since an endpoint that runs may not be found at times. Then
the ledger has the endpoint as deleted. If the ledger has it as created with another token, that is
refused: the token of another account does not find an endpoint that runs. --other-token is for a new token
of the same account: one "not found" is enough then, on your word.`,
			Example: "  svc forget chat",
			Args:    cobra.ExactArgs(1),
		},
		client: needsClient, ledger: readsLedger, stake: reads, empty: emptyMessage,
	}
	c.advise = func(err error) []string {
		if key := t.facts().Key; kindOf(err).code == exitTimeout {
			return []string{fmt.Sprintf("The entry of the key %s is as before. To go on: %s", key, t.cmd("forget %s", key))}
		}
		return nil
	}
	c.Flags().BoolVar(&otherToken, "other-token", false, "forget it although another token created it; check first that this one is of the same account")
	c.Flags().Var(&id, "id", "ID of the endpoint, if the key has several open entries")
	c.run = func(ctx context.Context, args []string) (view, error) {
		t.note(func(f *facts) { f.Key = args[0] })
		e, err := t.forgettable(ctx, args[0], id.text)
		if err != nil {
			return nil, err
		}
		if e.State == ledger.Forgotten {
			t.talk.say("there is nothing to forget: the latest entry of the key %s is forgotten already", args[0])
			t.note(func(f *facts) { f.Running = len(t.openUnder(ctx, args[0])) > 0 })
			return emptyMessage(), nil
		}
		t.noteEntry(e)
		t.noteUnsettled(newEntryView(e))
		onWord, err := t.settleMissing(ctx, e, otherToken)
		if err != nil {
			return nil, err
		}
		left := t.openUnder(ctx, args[0])
		t.note(func(f *facts) { f.Running = len(left) > 0 })
		switch {
		case len(left) == 0 && onWord:
			t.talk.say("the key %s is free again: on your word, no endpoint of it is running", args[0])
		case len(left) == 0:
			t.talk.say("the key %s is free again", args[0])
		}
		return emptyMessage(), nil
	}
	return c
}

// settleMissing settles an entry without an endpoint, and reports whether the only proof of that is the word of the user.
// The deletion of an endpoint that the ledger has as created is proved, unless the user says that another token created it.
func (t *tool) settleMissing(ctx context.Context, e ledger.Entry, otherToken bool) (onWord bool, err error) {
	if e.State != ledger.Created {
		return true, t.forget(ctx, e)
	}
	other := t.otherToken(ctx, e)
	switch err := t.missingNow(ctx, e); {
	case err != nil:
		return false, err
	case other && !otherToken:
		return false, otherTokenError{e}
	case other:
		return true, t.forget(ctx, e)
	}
	t.talk.say("%s is not found now, which proves nothing yet: checking that it is deleted, for 40 s to a minute", printable(e.ServiceID))
	err = t.proveDeleted(ctx, e)
	if err != nil && !isNotFound(err) { // that is the verdict on an endpoint of which the ledger does not have the token
		return false, err
	}
	now, unread := t.client.Ledger.Entry(ctx, e.Key)
	if stays := now != nil && now.Intent == e.Intent; err != nil || unread != nil || stays {
		return err != nil, t.forget(ctx, e)
	}
	t.talk.say("%s is deleted, and the ledger has that now", printable(e.ServiceID))
	return false, nil
}

// missingNow returns an error unless the service does not find the endpoint of an entry, or has it as deleted.
func (t *tool) missingNow(ctx context.Context, e ledger.Entry) error {
	s, err := t.client.InferenceServices.Get(ctx, e.ServiceID)
	switch {
	case isNotFound(err), err == nil && s.IsDeleted:
		return nil
	case err != nil:
		return err
	}
	return t.running(s)
}

// running returns the error for an endpoint that the service shows.
func (t *tool) running(s *svc.InferenceService) error {
	t.note(func(f *facts) { f.Running = mayRun(s) })
	return runningError{s.ServiceID}
}

// proveDeleted waits until it is proved that the endpoint of an entry is deleted, as "svc delete" does, and sends no
// delete. It ends if the service shows the endpoint.
func (t *tool) proveDeleted(ctx context.Context, e ledger.Entry) error {
	var shown *svc.InferenceService
	t.talk.setDeleting(true)
	defer t.talk.setDeleting(false)
	err := t.untilDeleted(ctx, e, func(ctx context.Context, id string, opts *svc.WaitOptions) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		w := *opts
		w.OnPoll = func(p svc.Poll) {
			if opts.OnPoll(p); p.Service != nil && !p.Service.IsDeleted {
				shown = p.Service
				stop()
			}
		}
		return t.client.InferenceServices.WaitUntilDeleted(ctx, id, &w)
	})
	if err != nil && shown != nil {
		return t.running(shown)
	}
	return err
}

// forget forgets an entry, and writes how long that may take.
func (t *tool) forget(ctx context.Context, e ledger.Entry) error {
	now, err := t.serviceTime(ctx)
	if err != nil {
		return err
	}
	if left := e.SettlesIn(now); left > 0 && e.State != ledger.Created {
		t.talk.say("waiting until the create can certainly no longer take effect, for %v at most; look again meanwhile, and press Ctrl-C if the endpoint is there", left.Round(time.Second))
	}
	err = t.client.Ledger.Forget(ctx, e)
	if err = t.meanwhile(ctx, e, err); isChanged(err, func(now ledger.Entry) bool { return !now.Open() }) {
		t.talk.say("%s", plainText(err))
		return nil
	}
	return err
}

// changedError is returned for an entry that another command has changed before this one could.
type changedError struct {
	error
	now ledger.Entry
}

func (e changedError) Error() string {
	text := fmt.Sprintf("another command has settled the entry of the key %s meanwhile: it is %s", e.now.Key, e.now.State)
	if e.now.ServiceID != "" {
		text += ", with the endpoint " + printable(e.now.ServiceID)
	}
	return text
}

func (e changedError) Unwrap() error { return e.error }

// isChanged reports whether an error is a changedError, and the entry is as wanted now.
func isChanged(err error, wanted func(ledger.Entry) bool) bool {
	e, ok := errors.AsType[changedError](err)
	return ok && wanted(e.now)
}

// meanwhile returns a changedError in place of the refusal of a change if the entry has another state than it had
// before: nothing is wrong with the ledger.
func (t *tool) meanwhile(ctx context.Context, e ledger.Entry, err error) error {
	if !isA[*ledger.Error](err) {
		return err
	}
	entries := t.entriesBriefly(context.WithoutCancel(ctx))
	for _, now := range entries {
		if now.Intent == e.Intent && now.State != e.State {
			t.note(func(f *facts) { f.ID, f.Running = now.ServiceID, len(openUnder(entries, e.Key)) > 0 })
			return changedError{err, now}
		}
	}
	return err
}

// runningError is returned for an endpoint that cannot be forgotten, since the service has just shown it.
type runningError struct{ id string }

func (e runningError) Error() string {
	return "the endpoint " + printable(e.id) + " exists: an entry can be forgotten only if its endpoint does not exist"
}

// forgettable returns the entry of a key that is to be forgotten. If the key has several open entries,
// it is the entry with the ID, or else the entry whose create has no known outcome. If there is none, it is the latest
// entry of the key, if that is forgotten already.
func (t *tool) forgettable(ctx context.Context, key, id string) (found ledger.Entry, err error) {
	if _, err := t.openEntry(ctx, key); err != nil && !errors.Is(err, svc.ErrKeyInUse) {
		return found, err
	}
	entries, err := t.client.Ledger.Entries(ctx)
	open := openUnder(entries, key)
	if len(open) > 1 || id != "" {
		open = slices.DeleteFunc(open, func(e ledger.Entry) bool {
			if id == "" {
				return e.State == ledger.Created
			}
			return !strings.EqualFold(e.ServiceID, id)
		})
	}
	forgotten := slices.DeleteFunc(slices.Clone(entries), func(e ledger.Entry) bool {
		return e.Key != key || id != "" && !strings.EqualFold(e.ServiceID, id)
	})
	switch last := len(forgotten) - 1; {
	case len(open) == 1:
		return open[0], t.isHere(open[0])
	case len(open) == 0 && last >= 0 && forgotten[last].State == ledger.Forgotten:
		return forgotten[last], nil
	case len(openUnder(entries, key)) == 0 && err == nil:
		return found, t.noEntry(entries, key)
	case id != "":
		return found, noEntryError{key, t.cmd("ls"), id}
	}
	return t.entryOf(ctx, key) // why there is not one
}

// serviceTime returns the service's time, or zero if it is not known. It returns an error if the time of the
// command is over before the service has responded.
func (t *tool) serviceTime(ctx context.Context) (time.Time, error) {
	var response svc.Response
	err := t.reach(ctx, svc.WithMaxAttempts(1), svc.WithResponse(&response))
	if ctx.Err() == nil {
		err = nil
	}
	date, _ := http.ParseTime(response.Header.Get("Date"))
	return date, err
}

// adoptable returns the entry of a key that has the endpoint already, or whose create has no known outcome, or else the
// latest entry of the key that was forgotten. id is the endpoint.
func (t *tool) adoptable(ctx context.Context, key, id string) (found ledger.Entry, err error) {
	t.note(func(f *facts) { f.Key = key })
	if _, err := t.openEntry(ctx, key); err != nil && !errors.Is(err, svc.ErrKeyInUse) {
		return found, err
	}
	entries, _ := t.client.Ledger.Entries(ctx) // damaged records of other keys do not matter
	if i := slices.IndexFunc(entries, func(e ledger.Entry) bool {
		return e.Key == key && e.State == ledger.Created && strings.EqualFold(e.ServiceID, id)
	}); i >= 0 {
		return entries[i], nil
	}
	for _, e := range entries { // open entries come first, and then the others from old to new
		if e.Key == key && e.Open() && e.State != ledger.Created {
			return e, nil
		}
		if e.Key == key && e.State == ledger.Forgotten {
			found = e
		}
	}
	if found.Key != "" {
		return found, nil
	}
	return found, t.notInDoubt(ctx, entries, key, id)
}

// notInDoubt returns why an endpoint cannot be adopted under a key, and the command line that may have been
// meant. A key that the ledger does not have is not found, as for each other command; an entry that is not in doubt is a
// usage error.
func (t *tool) notInDoubt(ctx context.Context, entries []ledger.Entry, key, id string) error {
	text, next := "", ". To see all entries: "+t.cmd("ls --all")
	var doubts []string
	for _, e := range entries {
		switch {
		case e.Open() && e.State != ledger.Created:
			doubts = append(doubts, e.Key)
		case e.Open() && e.Key == key:
			text = fmt.Sprintf("the entry of the key %q is not in doubt: its endpoint is %s", key, printable(e.ServiceID))
			if e.Adopted {
				text = fmt.Sprintf("the entry of the key %q is not in doubt: it has adopted %s%s", key, printable(e.ServiceID), t.mayBeWrong(ctx, e))
			}
		}
	}
	if unknown := text == ""; unknown && slices.Contains(doubts, id) {
		return mixedUpError{fmt.Sprintf("%q is not a key in doubt, but %q is: KEY comes before ID; run: %s", key, id, t.cmd("adopt %s %s", id, key))}
	} else if unknown {
		err := t.noEntry(entries, key)
		t.note(func(f *facts) { f.Running = true }) // the endpoint with the ID
		return several{plainText(err) + t.inItsPlace(doubts, id), []error{err}}
	}
	return usageError{errors.New(text + cmp.Or(t.inItsPlace(doubts, id), next))}
}

// inItsPlace returns which keys are in doubt, of an ID that is not adopted under another key; or an empty string.
func (t *tool) inItsPlace(doubts []string, id string) string {
	switch len(doubts) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("; if %s is the endpoint of the entry in doubt: %s", shellWord(id), t.cmd("adopt %s %s", doubts[0], id))
	}
	return "; in doubt are " + strings.Join(doubts, ", ")
}

func (t *tool) extendCommand() *command {
	return &command{
		Command: &cobra.Command{
			Use: "extend KEY DURATION", Short: "set the lease of an endpoint, counted from now",
			Long: `Sets the end of the lease of the endpoint of a key: "svc sweep" deletes it after that. DURATION,
such as 8h or 2d, counts from now, and may shorten the lease. 0 means that there is no lease: then
nothing deletes the endpoint until somebody does. No sweep deletes an endpoint that was adopted without
the mark (svc adopt --unmarked), whatever its lease. Ends with 10 if the service has accepted a delete
of the endpoint in the last five minutes, or a sweep has begun to delete it in the last minute: no lease
keeps it then.`,
			Example: "  svc extend chat 8h",
			Args:    cobra.ExactArgs(2),
		},
		client: needsClient, ledger: readsLedger, stake: reads, success: stays, empty: func() view { return &entriesView{Entries: []entryView{}} },
		run: func(ctx context.Context, args []string) (view, error) {
			t.note(func(f *facts) { f.Key = args[0] })
			d, err := parseDays(args[1])
			if err != nil || d < 0 {
				return nil, usageError{fmt.Errorf("DURATION must be a duration, such as 8h or 2d, and at most %dd, or 0 for no lease, not %q", maxDays, args[1])}
			}
			return t.extend(ctx, args[0], d)
		},
	}
}

// extend sets the lease of the endpoint of a key, counted from now.
func (t *tool) extend(ctx context.Context, key string, d time.Duration) (view, error) {
	e, err := t.entryOf(ctx, key)
	if err != nil {
		return nil, err
	}
	t.note(func(f *facts) { f.ID = e.ServiceID })
	t.noteUnsettled(newEntryView(e))
	if err := t.mayKeep(e); err != nil {
		return nil, err
	}
	if !deleteAccepted(e).IsZero() {
		t.talk.warn("%s: it may be deleted at any time, also with a new lease", deletingText(e))
	}
	if err := t.reach(ctx); err != nil { // the lease counts from the service's time
		return nil, err
	}
	end := time.Now().Add(d)
	if d == 0 {
		end = time.Time{}
	}
	if err := t.meanwhile(ctx, e, t.client.Ledger.Extend(ctx, e, end)); err != nil {
		return nil, err
	}
	now, err := t.entryOf(ctx, key)
	if isA[noEntryError](err) {
		err = t.meanwhile(ctx, e, &ledger.Error{Op: "extend", Key: e.Key, Err: err})
	}
	if err != nil {
		return nil, err
	}
	if d > 0 {
		t.warnOfNoSweep(ctx, now)
		t.warnOfAccount(ctx, []ledger.Entry{now})
	}
	return &entriesView{Entries: []entryView{newEntryView(now)}, off: t.off()}, nil
}
