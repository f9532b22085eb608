package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.com/svc"
	"example.com/svc/ledger"
)

// takesKey gives a command the flag --key, which stands for the ID: the command takes one
// argument less when the flag is given.
func (t *tool) takesKey(c *command, others int) *command {
	c.before = func(args []string) {
		if t.flags.key == "" {
			t.note(func(f *facts) { f.ID = strings.Join(args[:len(args)-others], " ") })
		}
	}
	c.Flags().Var(new(once), "key", "the endpoint that the ledger has under this key ("+keyRule+"), in place of ID")
	c.Args = func(cmd *cobra.Command, args []string) error {
		want := others + 1
		if cmd.Flags().Changed("key") {
			want = others
		}
		if len(args) != want {
			return fmt.Errorf("got %d arguments, want %d: %s (with --key KEY, omit the ID)", len(args), want, cmd.UseLine())
		}
		return nil
	}
	return c
}

// target returns the entry of the endpoint that a command is about, with its ID, and the other arguments. With an ID in
// place of --key it is zero but for the ID if the ledger does not have it.
func (t *tool) target(ctx context.Context, args []string) (e ledger.Entry, rest []string, err error) {
	if t.flags.key == "" {
		e = ledger.Entry{ServiceID: args[0]}
		entries := t.entriesBriefly(ctx)
		if known, ok := t.byID(entries)[strings.ToLower(args[0])]; ok {
			e = known
			t.noteEntry(e)
			t.note(func(f *facts) { f.ID, f.Entry = args[0], e.Key })
		}
		return e, args[1:], t.notID(ctx, args[0], entries)
	}
	if e, err = t.entryOf(ctx, t.flags.key); err != nil {
		return e, nil, err
	}
	t.noteEntry(e)
	t.note(func(f *facts) { f.Intent = e.Intent })
	if e.ServiceID == "" {
		return e, nil, t.inDoubt(e)
	}
	return e, args, nil
}

// cmdOn returns a command line about the endpoint of this command, for an advice: with its ID, or with its key if the ID is
// not known.
func (t *tool) cmdOn(f facts, verb string, more ...any) string {
	name, words := strings.Fields(f.ID), strings.Repeat(" %v", len(more))
	if f.ID == "" && f.Key != "" {
		name, words = []string{f.Key}, " --key %s"+words
	} else {
		words = " %s" + words
	}
	return t.cmd(verb+words, append([]any{name}, more...)...)
}

// subject names the endpoint of a command in a sentence.
func (f facts) subject() string {
	if f.ID == "" && f.Key != "" {
		return "the endpoint of the key " + f.Key
	}
	return f.ID
}

// capital begins a sentence with what subject returns. An ID stays as it is.
func capital(subject string) string {
	if rest, ok := strings.CutPrefix(subject, "the "); ok {
		return "The " + rest
	}
	return subject
}

// noteEntry records what the ledger knows about the endpoint.
func (t *tool) noteEntry(e ledger.Entry) {
	t.note(func(f *facts) {
		f.ID, f.Name, f.Flavor, f.Instances, f.Listed = e.ServiceID, e.Name, e.FlavorID, e.Instances, e.State == ledger.Created
		f.DeleteFrom = deleteAccepted(e)
	})
}

// noteUnsettled notes the create in doubt that a failure of the command is about, if it is the only one of the entries.
func (t *tool) noteUnsettled(entries ...entryView) {
	var doubts []*unknownCreate
	for _, e := range entries {
		if e.Open && e.ForgetFrom != "" {
			doubts = append(doubts, &unknownCreate{e.Key, e.Intent, e.Name, e.ForgetFrom})
		}
	}
	if len(doubts) == 1 {
		t.note(func(f *facts) { f.Doubt = doubts[0] })
	}
}

// noteKnown notes, after a failure, what the ledger knows about the endpoint of the command, if it was not read before, or
// if the key has another one by now.
func (t *tool) noteKnown(ctx context.Context, err error) {
	if e, ok := t.entryInUse(err); ok {
		t.noteEntry(e)
		t.note(func(f *facts) { f.Running = f.Running || e.Open() }) // another command may have created it after this one has read the key
	}
	t.noteLatest(ctx, err)
	f := t.facts()
	if err == nil || f.Name != "" || f.ID == "" && f.Key == "" || strings.Contains(f.ID, " ") {
		return
	}
	entries := t.entriesBriefly(context.WithoutCancel(ctx))
	e, known := t.byID(entries)[strings.ToLower(f.ID)]
	if open := openUnder(entries, f.Key); f.ID == "" && len(open) == 1 {
		e, known = open[0], true
	}
	if known {
		t.note(func(f *facts) { f.Name, f.Flavor, f.Instances = e.Name, e.FlavorID, e.Instances })
	}
}

// noteLatest notes, for the document of a command about one endpoint that has failed, whether the ledger has an accepted delete
// of it now, and its record, if that was not read before and can be.
func (t *tool) noteLatest(ctx context.Context, err error) {
	if _, is := t.current.empty().(interface{ endpoint() *serviceView }); !is || err == nil || isA[elsewhereError](err) {
		return
	}
	t.latest(ctx)
	f := t.facts()
	if f.ID == "" || f.Deleted || f.Seen != nil && strings.EqualFold(f.Seen.ServiceID, f.ID) || !readable(err) {
		return
	}
	ctx, cancel := briefly(ctx)
	defer cancel()
	if s, err := t.client.InferenceServices.Get(ctx, f.ID, svc.WithMaxAttempts(1)); err == nil {
		t.saw(s)
	}
}

// readable reports whether a command has failed for a reason that does not keep it from reading the record of its endpoint.
func readable(err error) bool {
	code := kindOf(err).code
	return slices.Contains([]int{exitFailed, exitLedger, exitRunning}, code) && !isA[*svc.DecodeError](err)
}

// entriesBriefly returns the entries that the ledger shows within two seconds. Failures of the ledger are ignored.
func (t *tool) entriesBriefly(ctx context.Context) []ledger.Entry {
	if t.client == nil {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	entries, _ := t.client.Ledger.Entries(limited)
	return entries
}

// inDoubt returns the error for an entry without an ID.
func (t *tool) inDoubt(e ledger.Entry) error {
	t.note(func(f *facts) { f.Name, f.Intent, f.SettleBy = e.Name, e.Intent, e.SettleBy.Add(time.Minute) })
	text := fmt.Sprintf("the ledger has no ID for the key %s, since the outcome of its create is not known", e.Key)
	return several{text, []error{&svc.OutcomeUnknownError{Name: e.Name, Key: e.Key, Intent: e.Intent, Err: errors.New(text)}}}
}

// noEntry returns the error for a key without an open entry. It may be the ID of an endpoint that is running.
func (t *tool) noEntry(entries []ledger.Entry, key string) error {
	for _, e := range entries {
		if e.Open() && strings.EqualFold(e.ServiceID, key) {
			return coded{mixedUpError{fmt.Sprintf("%s is not a key: it is the ID of the endpoint of the key %s, which may be running", key, e.Key)}, exitNotFound}
		}
	}
	t.note(func(f *facts) { f.Running = false })
	return noEntryError{key: key, look: t.cmd("ls")}
}

// notID returns an error if the service does not find an ID, and it is a key of the ledger with an open entry.
func (t *tool) notID(ctx context.Context, id string, entries []ledger.Entry) error {
	i := slices.IndexFunc(entries, func(e ledger.Entry) bool { return e.Key == id && e.Open() })
	if i < 0 || !t.missing(ctx, id) {
		return nil
	}
	return coded{mixedUpError{fmt.Sprintf("%s is not an ID: it is the key of an endpoint that may be running (%s); use --key %[1]s", id, dash(entries[i].ServiceID))}, exitNotFound}
}
