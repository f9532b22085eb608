package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v3"

	"example.com/svc"
	"example.com/svc/ledger"
)

// settleCommands returns the commands adopt and forget. With them a person records the outcome
// of a create that the ledger does not know.
func (t *tool) settleCommands(connected func(cli.ActionFunc) cli.ActionFunc) []*cli.Command {
	key := &cli.StringArg{Name: "KEY", Required: true}
	return []*cli.Command{
		{
			Name: "adopt", Usage: "for an entry in doubt, record the ID of the endpoint that you found; prints the status of the endpoint",
			Description: `The endpoint with this ID must have the name of the entry, and its description must hold the
mark of the entry, [svc:INTENT]. An adopted endpoint can be scaled, swept and deleted like any other.
With --unmarked, "deploy sweep" never deletes it: delete it yourself. An entry that was
forgotten by mistake can be adopted too. Adopt an endpoint before you delete it.`,
			Arguments: []cli.Argument{key, &cli.StringArg{Name: "ID", Required: true}},
			Flags:     []cli.Flag{&cli.BoolFlag{Name: "unmarked", Usage: "accept an endpoint whose description has no mark; check first that the endpoint is yours"}},
			Action: connected(func(ctx context.Context, cmd *cli.Command) error {
				e, err := t.unsettled(ctx, cmd.StringArg("KEY"), ledger.Forgotten)
				if err != nil {
					return err
				}
				return t.endpoint(t.client.Ledger.Adopt(ctx, e, cmd.StringArg("ID"), &svc.AdoptOptions{Unmarked: cmd.Bool("unmarked")}))
			}),
		},
		{
			Name: "forget", Usage: "for an entry in doubt, record that you looked for its endpoint, and that there is none",
			Description: `If you are wrong, the endpoint runs and is billed, and the next "deploy" with the key creates
a second one. The command is refused until six minutes after the create.`,
			Arguments: []cli.Argument{key},
			Action: connected(func(ctx context.Context, cmd *cli.Command) error {
				e, err := t.unsettled(ctx, cmd.StringArg("KEY"), "")
				if err != nil {
					return err
				}
				return t.client.Ledger.Forget(ctx, e)
			}),
		},
	}
}

// unsettled returns the entry of a key whose create has no known outcome, or else the latest
// entry of the key in the other state.
func (t *tool) unsettled(ctx context.Context, key string, other ledger.State) (found ledger.Entry, err error) {
	entries, err := t.client.Ledger.Entries(ctx)
	if err != nil {
		return found, err
	}
	for _, e := range entries { // open entries come first, and then the others from old to new
		if e.Key == key && e.Open() && e.State != ledger.Created {
			return e, nil
		}
		if e.Key == key && e.State == other {
			found = e
		}
	}
	if found.Key != "" {
		return found, nil
	}
	return found, usageError{fmt.Errorf("no entry of the key %q is in doubt; \"deploy ls\" shows all entries", key)}
}
