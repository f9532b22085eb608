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

const lsHelp = `If the state of an entry is created, intended or unknown, its endpoint may be running and billed.
An entry is in doubt if its state is unknown, or has been intended for more than six minutes.
Look for its endpoint where the service shows what your account runs: by the name, or by
[svc:INTENT] in the description (--json shows the intent). Then settle the entry: with
"deploy adopt KEY ID" if the endpoint exists, or with "deploy forget KEY" if it does not.
TIME is the number of instances times the longest time that they may have run.`

// defaultLedger returns the default folder of the ledger: svc-ledger, in the folder where the
// system keeps the state of programs. It returns "" if that folder is not known.
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
		return ""
	}
	return filepath.Join(dir, "svc-ledger")
}

// noLedger is a ledger that could not be opened: each use returns err. Commands that lower the
// bill, such as "delete", still work with it.
type noLedger struct{ err error }

func (l noLedger) Append(context.Context, ledger.Record) error { return l.err }

func (l noLedger) List(context.Context, string) ([]ledger.Record, error) { return nil, l.err }

func openLedger(dir string) ledger.Store {
	if dir == "" {
		return noLedger{errors.New("the default folder is not known: set SVC_LEDGER or --ledger")}
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
			Name: "ls", Usage: "list the entries of the ledger, first those whose endpoint may be running",
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
	Seconds   float64   `json:"instance_seconds"` // an upper bound
	LeaseEnd  time.Time `json:"lease_end,omitzero"`
	Intent    string    `json:"intent"`
	BaseURL   string    `json:"base_url"`
	Result    string    `json:"result,omitempty"` // what "deploy sweep" did with the endpoint
}

func (t *tool) addEntry(e ledger.Entry, outcome string) {
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
