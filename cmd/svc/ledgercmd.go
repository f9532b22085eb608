package main

import (
	"context"

	"github.com/spf13/cobra"
)

// ledgerView is where a ledger is.
type ledgerView struct {
	outcome
	Ledger  string `json:"ledger"`  // place of the ledger, without secrets
	Created bool   `json:"created"` // this command made it; false: there was one
}

func (v *ledgerView) table() table    { return line(v.Ledger) }
func (v *ledgerView) names() []string { return nil }

func (t *tool) ledgerGroup() *cobra.Command {
	g := group("ledger", "make and prune the ledger, which records what may be running")
	t.add(g, t.ledgerInitCommand())
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
			p, err := findLedger(t.flags.ledger)
			if err != nil {
				return nil, usageError{err}
			}
			t.place = p
			if p.driver == "none" {
				return nil, usageError{errLedgerNone}
			}
			v := &ledgerView{Ledger: p.shown}
			_, stop, err := openPlace(ctx, p, false)
			if isA[noLedgerError](err) {
				v.Created = true
				_, stop, err = openPlace(ctx, p, true)
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
