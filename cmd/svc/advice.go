package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.com/svc"
	"example.com/svc/ledger"
)

// advice returns what to do about an error, one line each. If an endpoint may be running, the
// last line says so.
func (t *tool) advice(err error, code int, c *command, f facts) (lines []string) {
	lines = t.reasons(err, f)
	if f.Replaced != "" && !f.Created {
		lines = append(lines, fmt.Sprintf("%s, which the key %s had, is deleted (--replace), and this command has created no other one.", printable(f.Replaced), f.Key))
	}
	if c.advise != nil {
		if own := c.advise(err); len(own) > 0 {
			return append(lines, own...)
		}
	}
	switch code {
	case exitUsage:
		return append(lines, c.seeHelp())
	case exitDeleted:
		lines = append(lines, t.unrecordedOutcome(f)...)
		if f.Replaced != "" && kindOf(err).code == exitLedger {
			lines = append(lines, t.ledgerAdvice(err, f)...)
		}
		return append(lines, "Nothing is left running.")
	case exitUnknown:
		return append(lines, t.unknownOutcome(err, f)...)
	case exitLedger:
		return append(lines, t.ledgerAdvice(err, f)...)
	case exitNotFound:
		return append(lines, t.notFound(err, f)...)
	case exitUnusable:
		return append(lines, t.restart(f)...)
	case exitRunning:
		if c.left != nil {
			return append(lines, c.left(f)...)
		}
		return append(lines, t.stillRuns(f)...)
	}
	return append(lines, t.unrecordedOutcome(f)...)
}

// unrecordedOutcome returns what to do if the ledger could not record the outcome of a create of which nothing is left.
func (t *tool) unrecordedOutcome(f facts) []string {
	if !f.Unrecorded {
		return nil
	}
	if t.hasDamaged(f.Entry) {
		return []string{"The ledger could not record that: " + damagedText(f.Entry)}
	}
	return []string{fmt.Sprintf("The ledger could not record that. If it still has the entry of the key %s, that stays in doubt until you run: %s", f.Entry, t.cmd("forget %s", f.Entry))}
}

// seeHelp names the help of the command.
func (c *command) seeHelp() string {
	if c.Command != nil && c.Name() != "help" {
		return fmt.Sprintf("See: %s --help", c.CommandPath())
	}
	return "See: svc --help"
}

// notFound returns what to check after a "not found" of the service.
func (t *tool) notFound(err error, f facts) []string {
	if noRoute(err) {
		return []string{t.checkPath()}
	}
	if f.Running && len(f.Hidden) == 0 && kindOf(err).name == "not_found" && !isA[mixedUpError](err) && !isA[noEntryError](err) { // else it is known that nothing is
		lines := []string{"Check the ID, and the account of the token: the service has no such endpoint in it, or has deleted it. " + t.checkPath()}
		if f.Listed {
			lines = append(lines, fmt.Sprintf("If it is deleted, its entry stays open until that is recorded: %s", t.cmdOn(f, "delete")))
		}
		return lines
	}
	return nil
}

// checkPath returns the advice after a "not found" of the service: its address may be wrong too.
func (t *tool) checkPath() string {
	return fmt.Sprintf("Check the path of the address: %s (SVC_BASE_URL or --base-url).", t.address)
}

// noRoute reports whether the service responded "not found" to a request without an ID.
func noRoute(err error) bool {
	refused, ok := errors.AsType[*svc.Error](err)
	return ok && refused.ID == "" && !ofStorage(refused) && isNotFound(refused)
}

// reasons returns what may be the reason of an error, whatever the exit code, one line each.
func (t *tool) reasons(err error, f facts) (lines []string) {
	if wait := retryAfter(err); wait > 0 {
		lines = append(lines, fmt.Sprintf("The service asks to wait %v before the next try.", wait.Round(time.Second)))
	}
	if kindOf(err).code == exitRefused {
		lines = append(lines, "Check the token: SVC_API_TOKEN or --token-file.")
	}
	if errors.Is(err, errNoFlavor) && !isA[soldOutError](err) {
		lines = append(lines, "To see all flavors: "+t.cmd("flavors"))
	}
	lines = append(lines, t.otherTokenAdvice(err, f)...)
	if failed, ok := errors.AsType[*svc.WaitError](err); ok && kindOf(err).code == exitTimeout && isNotFound(failed.LastErr) && len(f.Hidden) == 0 {
		lines = append(lines, fmt.Sprintf("The service did not find %s at the last poll. That proves nothing yet: if it is deleted, or the ID is wrong, that is known after a minute at most. Try again with a longer --timeout.", printable(failed.ID)))
	}
	if f.NoPath && isA[*svc.WaitError](err) {
		lines = append(lines, "The endpoint was available, and has refused the probe: check the path of --probe.")
	}
	return lines
}

func (t *tool) stillRuns(f facts) (lines []string) {
	switch {
	case f.Unrecorded: // a delete would not settle it
		lines = append(lines, fmt.Sprintf("The ledger could not record its ID, so the entry of the key %s is in doubt. Run first, when the ledger can be written: %s", f.Entry, t.cmd("adopt %s %s", f.Entry, f.ID)))
	case f.Entry != "":
		lines = append(lines, fmt.Sprintf("Its entry in the ledger, of the key %s, stays open until its deletion is proved. To see it: %s", f.Entry, t.cmd("ls")))
	}
	return append(lines, fmt.Sprintf("%s may still be running and billed. To delete it: %s", capital(f.subject()), t.cmdOn(f, "delete")))
}

// ledgerAdvice returns what to do after exitLedger.
func (t *tool) ledgerAdvice(err error, f facts) (lines []string) {
	switch why := kindOf(err); {
	case isA[elsewhereError](err):
		lines = append(lines, "Each name of a host is an address of its own, such as localhost and 127.0.0.1: repeat the command with that of the entry (--base-url). To see it as ADDRESS: "+t.cmd("ls"))
	case why.name == "key_in_use" && len(f.Several) > 1:
		lines = append(lines, fmt.Sprintf("Open under the key %s: %s. To see them: %s. Keep one, and delete each other one by its ID: %s. If the endpoint of one does not exist: %s. If one is in doubt: %s, or: %s", f.Key, strings.Join(f.Several, ", "),
			t.cmd("ls"), t.cmd("delete ID"), t.cmd("forget %s --id ID", f.Key), t.cmd("adopt %s ID", f.Key), t.cmd("forget %s", f.Key)))
	case why.name == "key_in_use":
		lines = append(lines, t.otherRequest(err, f)...)
	case damagedKey(err) != "":
		lines = append(lines, t.damaged(err, damagedKey(err), t.entriesBriefly(context.WithoutCancel(t.ctx)))...)
	case why.name == "no_ledger":
		lines = append(lines, "If there should be one, check --ledger and SVC_LEDGER; if it is lost, restore a copy of it, since a new one does not show what is running.", "To make one: "+t.cmd("ledger init"))
	case isMalformed(err):
		lines = append(lines, t.malformed()...)
	case isA[runningError](err):
		state := "it may be running and billed"
		if !f.Running {
			state = "it exists, with 0 instances: nothing of it is running or billed"
		}
		return append(lines, fmt.Sprintf("%s is not forgotten: %s. To delete it: %s", capital(f.subject()), state, t.cmdOn(f, "delete")))
	case isA[changedError](err):
		lines = append(lines, "Nothing is wrong with the ledger. To see the entry: "+t.cmd("ls --all"))
		if f.Running && f.ID != "" {
			lines = append(lines, fmt.Sprintf("To delete the endpoint: %s", t.cmd("delete %s", f.ID)))
		}
	case t.place.shown != "":
		lines = append(lines, fmt.Sprintf("The ledger is %s. To find out what is wrong with it: %s", t.place.shown, t.cmd("doctor")))
	}
	proved := t.endpointsThat(func(e endpoint) bool { return !e.proved.IsZero() })
	deleted := t.endpointsThat(func(e endpoint) bool { return e.accepted && e.proved.IsZero() })
	done := ""
	if len(proved) > 0 {
		done = fmt.Sprintf("Deleted: %s. ", printable(strings.Join(proved, ", ")))
	}
	if len(deleted) > 0 {
		done += fmt.Sprintf("The service has accepted the delete of %s. ", printable(strings.Join(deleted, ", ")))
	}
	switch {
	case f.Running && done != "":
		lines = append(lines, done+"Other endpoints may still be running and billed.")
	case f.Running:
		lines = append(lines, "Nothing was created or changed. Endpoints that ran before may still be running and billed.")
	case done == "" && f.Request != nil && !f.Posted:
		lines = append(lines, "Nothing was created.")
	}
	return lines
}

// malformed returns what to do if the file of the ledger is damaged.
func (t *tool) malformed() []string {
	return []string{
		fmt.Sprintf("%s is damaged, or is not a ledger. Keep the file, and restore a copy in its place: until then nothing is created, and the ledger shows nothing.", t.place.shown),
		"What may be running is shown by the service's console: the description of each endpoint of a ledger begins with [svc:. To delete one without the ledger: " + t.cmd("delete ID"),
	}
}

// entryInUse returns the entry that an error names as the one that uses the key.
func (t *tool) entryInUse(err error) (ledger.Entry, bool) {
	inUse, ok := errors.AsType[*ledger.Error](err)
	if !ok || !errors.Is(err, svc.ErrKeyInUse) || inUse.Intent == "" {
		return ledger.Entry{}, false
	}
	entries := t.entriesBriefly(context.WithoutCancel(t.ctx))
	i := slices.IndexFunc(entries, func(e ledger.Entry) bool { return e.Key == inUse.Key && e.Intent == inUse.Intent })
	if i < 0 {
		return ledger.Entry{}, false
	}
	return entries[i], true
}

// damagedKey returns the key whose records are damaged, if an error is about that, and else an empty string.
func damagedKey(err error) string {
	if e := damages(err); len(e) > 0 {
		return e[0].Key
	}
	return ""
}

// damages returns the errors about damaged records that are joined in err.
func damages(err error) (found []*ledger.Error) {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range all.Unwrap() {
			found = append(found, damages(one)...)
		}
		return found
	}
	if e, ok := errors.AsType[*ledger.Error](err); ok && e.Op == "list" && e.Key != "" {
		return []*ledger.Error{e}
	}
	return nil
}

// isDamaged reports whether an error says that records of a key are damaged.
func isDamaged(err error, key string) bool {
	return slices.ContainsFunc(damages(err), func(e *ledger.Error) bool { return e.Key == key })
}

// damaged returns what to do about a key whose records are damaged. No command with the key works, and neither do adopt
// and forget: what works is an ID. Without its first record a create has no entry, but err has its intent and its ID.
func (t *tool) damaged(err error, key string, entries []ledger.Entry) []string {
	var name, intent, id string
	for _, e := range damages(err) {
		if e.Key == key {
			intent, id = cmp.Or(e.Intent, intent), cmp.Or(e.ServiceID, id)
		}
	}
	for _, e := range entries {
		if e.Key == key && e.Open() {
			name, intent, id = fmt.Sprintf(" named %q", e.Name), e.Intent, e.ServiceID
		}
	}
	look := fmt.Sprintf("an endpoint%s, with [svc:%s] in its description", name, printable(intent))
	if intent == "" {
		look = "one that is in no other entry of the ledger: its description begins with [svc:"
	}
	return []string{
		fmt.Sprintf("The records of the key %s are damaged, so no command with the key works, not even adopt and forget. Restore them from a copy, or use another key.", key),
		fmt.Sprintf("Its endpoint may be running: look for %s, where the service shows what your account runs. To delete it: %s", look, t.cmd("delete %s", cmp.Or(printable(id), "ID"))),
	}
}

// unknownOutcome returns how to settle a create whose outcome is not known. An endpoint without the mark must be
// adopted before it is deleted, since a delete does not settle the entry.
func (t *tool) unknownOutcome(err error, f facts) []string {
	lines := []string{"It is not known whether the endpoint was created. It may be running and billed."}
	unknown, _ := errors.AsType[*svc.OutcomeUnknownError](err)
	key, mark := f.Key, ""
	if unknown != nil && unknown.Intent != "" {
		key, mark = unknown.Key, fmt.Sprintf(", with [svc:%s] in its description", unknown.Intent)
	}
	if unknown != nil && unknown.ID != "" {
		mark += ", perhaps with the ID " + printable(unknown.ID)
	}
	look := fmt.Sprintf("  1. Look for an endpoint named %q%s, where the service shows what your account runs.", f.Name, mark)
	switch {
	case key == "" && t.place.driver == "none":
		return append(lines, look, "  2. If it is there, keep it or run: "+t.cmd("delete ID"), "Running the same command again would create another endpoint.")
	case key == "":
		key = "KEY"
		lines = append(lines, "To see its KEY in the ledger: "+t.cmd("ls"))
	}
	from := ""
	if !f.SettleBy.IsZero() {
		from = fmt.Sprintf(" (from %s on)", clock(f.SettleBy))
	}
	lines = append(lines, look,
		fmt.Sprintf("  2. If it is there: %s (works at once if the mark is there). Then keep it, or run: %s", t.cmd("adopt %s ID", key), t.cmd("delete ID")),
		fmt.Sprintf("  3. If it is not there: %s%s", t.cmd("forget %s", key), from))
	if f.Key != "" {
		return append(lines, "Until that is settled, the same command sends nothing: it can be run again.")
	}
	return append(lines, "Running the same command again would create another endpoint.")
}
