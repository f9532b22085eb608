package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"example.com/svc/ledger"
)

// accepted is what markDelete records: that the service has accepted a delete.
const accepted = ledger.Event("accepted")

// unrecorded warns, once for each endpoint and event, that the ledger could not record what has happened, whatever the
// reason: the command itself does not fail then.
func (t *tool) unrecorded(id string, event ledger.Event, err error) {
	why := plainText(err)
	told := !t.first("unrecorded " + string(event) + " of " + id)
	if event == ledger.Deleted {
		t.noteEndpoint(id, func(e *endpoint) { e.proved = time.Now() })
	}
	key, f := t.endpoint(id).key, t.facts()
	if told || key == "" && (f.Unread || f.Posted) { // it is said that nothing can be recorded, or the entry has no ID
		return
	}
	entry := "its entry (key " + key + ")"
	if key == "" {
		entry = "its entry, if it has one,"
	}
	shown := printable(id)
	switch event {
	case ledger.Deleted:
		t.talk.warn("the ledger cannot record that %s is deleted, so %s stays open: %s. When it can: %s", shown, entry, why, t.cmd("delete %s --missing-ok", shown))
	case ledger.Scaled:
		t.talk.warn("the ledger cannot record that %s has %s, so %s keeps the number from before: %s. When it can: %s", shown, count(f.Target), entry, why, t.cmd("scale %s %d", shown, f.Target))
	default:
		t.talk.warn("the ledger cannot record that the service has accepted the delete of %s, so no sweep goes on with %s if this program is killed: %s. Then: %s", shown, entry, why, t.cmd("delete %s --missing-ok", shown))
	}
}

// noteOwners notes which keys have which endpoints of this address, and which have damaged records.
func (t *tool) noteOwners(records []ledger.Record) {
	entries, err := ledger.Fold(records)
	t.noteDamaged(err)
	for _, e := range t.byID(entries) {
		t.noteEndpoint(e.ServiceID, func(now *endpoint) { now.key = e.Key })
	}
}

// records is the handler of the client's log. It takes what the ledger could not record.
type records struct{ tool *tool }

// Enabled implements [slog.Handler].
func (records) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

// Handle implements [slog.Handler].
func (r records) Handle(_ context.Context, line slog.Record) error {
	fields := map[string]string{}
	line.Attrs(func(a slog.Attr) bool {
		fields[a.Key] = a.Value.String()
		return true
	})
	if line.Message == "svc: the ledger could not be updated" {
		r.tool.unrecorded(fields["id"], ledger.Event(fields["event"]), errors.New(fields["error"]))
	}
	return nil
}

// WithAttrs implements [slog.Handler].
func (r records) WithAttrs([]slog.Attr) slog.Handler { return r }

// WithGroup implements [slog.Handler].
func (r records) WithGroup(string) slog.Handler { return r }
