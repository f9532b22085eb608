package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v3"

	"example.com/svc"
	"example.com/svc/ledger"
)

const lsHelp = `An endpoint may be running and billed in the states created, intended and unknown. An entry
that is unknown, or intended for more than six minutes, is in doubt. Look for its name, or for
[svc:INTENT] in the description (--json shows the intent), where the service shows what your
account runs. Then settle it, with "deploy adopt KEY ID" or "deploy forget KEY".
TIME is the number of instances times how long they may have run.`

// defaultLedger is the folder of the ledger where the system keeps the state of programs.
func defaultLedger() string {
	dir, err := os.Getenv("XDG_STATE_HOME"), error(nil)
	switch {
	case filepath.IsAbs(dir):
	case runtime.GOOS == "windows" || runtime.GOOS == "darwin":
		dir, err = os.UserConfigDir()
	default:
		dir, err = os.UserHomeDir()
		dir = filepath.Join(dir, ".local", "state")
	}
	if err != nil {
		return "" // nobody says where
	}
	return filepath.Join(dir, "svc-ledger")
}

// noLedger stands for a ledger that cannot be opened. What lowers the bill, such as
// "delete", works without one.
type noLedger struct{ err error }

func (l noLedger) Append(context.Context, svc.LedgerRecord) error { return l.err }

func (l noLedger) List(context.Context, string) ([]svc.LedgerRecord, error) { return nil, l.err }

func openLedger(dir string) svc.LedgerStore {
	if dir == "" {
		return noLedger{errors.New("no folder for it: set SVC_LEDGER or --ledger")}
	}
	store, err := ledger.Dir(dir)
	if err != nil {
		return noLedger{err}
	}
	return store
}

func (t *tool) ledgerCommands(connected func(cli.ActionFunc) cli.ActionFunc) []*cli.Command {
	return []*cli.Command{
		{
			Name: "ls", Usage: "list the entries of the ledger; those that may be running come first",
			Description: lsHelp,
			Action:      connected(t.ls),
		},
		{
			Name: "sweep", Usage: "delete the endpoints whose lease is over, and wait until they are deleted",
			Description: "Run it every few minutes from one place: nothing else enforces a lease.",
			Flags:       []cli.Flag{&cli.BoolFlag{Name: "dry-run", Usage: "only say what would be deleted"}},
			Action:      connected(t.sweep),
		},
	}
}

func (t *tool) ls(ctx context.Context, _ *cli.Command) error {
	entries, err := t.client.Ledger.Entries(ctx)
	for _, e := range entries {
		t.addEntry(e, "")
	}
	return errors.Join(err, t.printEntries())
}

func (t *tool) sweep(ctx context.Context, cmd *cli.Command) error {
	dryRun, done := cmd.Bool("dry-run"), "deleted"
	if dryRun {
		done = "would be deleted"
	}
	reaped, err := t.client.Ledger.Reap(ctx, &svc.ReapOptions{DryRun: dryRun})
	t.result.running = err != nil || dryRun && len(reaped) > 0
	for _, r := range reaped {
		outcome := done
		if r.Err != nil {
			outcome, t.result.unswept = "NOT deleted: "+r.Err.Error(), true
		}
		t.addEntry(r.Entry, outcome)
	}
	return errors.Join(err, t.printEntries())
}

// entryLine is an entry of the ledger, for --json.
type entryLine struct {
	Key       string    `json:"key"`
	State     string    `json:"state"`
	Name      string    `json:"name"`
	ServiceID string    `json:"service_id,omitempty"`
	Instances int       `json:"instances"`
	Seconds   float64   `json:"instance_seconds"` // at most
	LeaseEnd  time.Time `json:"lease_end,omitzero"`
	Intent    string    `json:"intent"`
	BaseURL   string    `json:"base_url"`
	Result    string    `json:"result,omitempty"` // of "deploy sweep"
}

func (t *tool) addEntry(e svc.LedgerEntry, outcome string) {
	t.result.Entries = append(t.result.Entries, entryLine{
		e.Key, string(e.State), e.Name, e.ServiceID, e.Instances, e.InstanceTime(time.Now()).Seconds(),
		e.LeaseEnd, e.Intent, e.BaseURL, outcome,
	})
}

// printEntries prints the entries as a table, unless they are printed as JSON.
func (t *tool) printEntries() error {
	if t.json || len(t.result.Entries) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(t.stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "KEY\tSTATE\tNAME\tID\tINSTANCES\tTIME\tLEASE END")
	for _, e := range t.result.Entries {
		lease := "-"
		if !e.LeaseEnd.IsZero() {
			lease = e.LeaseEnd.Format(time.RFC3339)
		}
		line := fmt.Sprintf("%s\t%s\t%s\t%s\t%d\t%v\t%s\t%s",
			e.Key, e.State, e.Name, cmp.Or(e.ServiceID, "-"), e.Instances, time.Duration(e.Seconds)*time.Second, lease, e.Result)
		_, _ = fmt.Fprintln(w, strings.TrimRight(line, "\t"))
	}
	return w.Flush()
}
