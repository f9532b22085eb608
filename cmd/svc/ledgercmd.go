package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"example.com/svc/ledger"
)

// ledgerView is the location of a ledger.
type ledgerView struct {
	outcome
	Ledger  string `json:"ledger"`  // place of the ledger, without secrets
	Created bool   `json:"created"` // this command made it; false if there was one, or another command made it at the same moment
}

func (v *ledgerView) table() table    { return line(v.Ledger) }
func (v *ledgerView) names() []string { return nil }

func (t *tool) ledgerGroup() *cobra.Command {
	g := group("ledger", "make and prune the ledger, which records what may be running")
	t.add(g, t.ledgerInitCommand())
	t.add(g, t.ledgerPruneCommand())
	return g
}

func (t *tool) ledgerInitCommand() *command {
	return &command{
		Command: &cobra.Command{
			Use: "init", Short: "make the ledger of --ledger or SVC_LEDGER",
			Long: `Makes the ledger of --ledger or SVC_LEDGER, or the default one. Other commands never make a
ledger at a place that was named: a volume that is not mounted, or a typing error, would look
like an account where nothing runs. If there is a ledger already, it stays as it is.`,
			Example: "  svc ledger init --ledger /srv/svc-ledger\n  svc ledger init --ledger sqlite:/srv/ledger.db\n  SVC_LEDGER=postgres://db.example/svc svc ledger init",
		},
		empty: func() view { return &ledgerView{} },
		run: func(ctx context.Context, _ []string) (view, error) {
			p, err := t.findLedger()
			if err != nil {
				return nil, usageError{err}
			}
			t.place = p
			if p.driver == "none" {
				return nil, usageError{errLedgerNone}
			}
			v := &ledgerView{Ledger: p.shown}
			_, stop, err := openPlace(ctx, p, ledger.MustExist())
			if isA[noLedgerError](err) {
				_, stop, v.Created, err = makePlace(ctx, p)
			}
			if err != nil {
				return nil, err
			}
			stop()
			if !v.Created {
				t.talk.say("there is a ledger at %s already", p.shown)
			}
			return v, nil
		},
	}
}

// pruneView is the result of prune.
type pruneView struct {
	outcome
	Ledger  string `json:"ledger"`  // place of the ledger, without secrets
	Before  string `json:"before"`  // RFC 3339: keys whose entries have all ended before that time were removed
	Removed int    `json:"removed"` // number of entries that were removed
}

func (v *pruneView) table() table    { return line(fmt.Sprintf("%d entries removed", v.Removed)) }
func (v *pruneView) names() []string { return nil }

func (t *tool) ledgerPruneCommand() *command {
	var olderThan string
	c := &command{
		Command: &cobra.Command{
			Use: "prune", Short: "remove what has ended from the ledger",
			Long: `Removes the keys whose entries have all ended before a time, and nothing else. An entry whose
endpoint may be running is never removed.`,
			Example: "  svc ledger prune --older-than 90d",
		},
		client: wantsClient, ledger: readsLedger, stake: reads, empty: func() view { return &pruneView{} },
	}
	c.Flags().StringVar(&olderThan, "older-than", "", "age of the last record of a key, such as 90d or 12h; required")
	c.run = func(ctx context.Context, _ []string) (view, error) {
		age, err := parseDays(olderThan)
		if err != nil || age <= 0 {
			if olderThan == "" {
				return nil, usageError{errors.New("--older-than is required, such as --older-than 90d")}
			}
			return nil, usageError{fmt.Errorf("--older-than must be a positive duration, such as 90d or 12h, not %q", olderThan)}
		}
		entries, err := t.client.Ledger.Entries(ctx)
		if err != nil {
			return nil, err
		}
		before := time.Now().Add(-age)
		if err := t.client.Ledger.Prune(ctx, before); err != nil {
			return nil, err
		}
		left, err := t.client.Ledger.Entries(ctx)
		t.note(func(f *facts) { f.Running = anyOpen(left, err) })
		return &pruneView{Ledger: t.place.shown, Before: stamp(before), Removed: len(entries) - len(left)}, err
	}
	return c
}
