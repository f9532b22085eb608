package main

import (
	"context"

	"github.com/spf13/cobra"
)

func (t *tool) getCommand() *command {
	return t.takesKey(&command{
		Command: &cobra.Command{
			Use:     "get ID",
			Short:   "show an endpoint",
			Example: "  svc get svc-1\n  svc get --key chat -o json",
		},
		client: needsClient, ledger: usesLedger, stake: reads, success: isThere, empty: emptyService,
		run: func(ctx context.Context, args []string) (view, error) {
			e, _, err := t.target(ctx, args)
			if err != nil {
				return nil, err
			}
			t.warnOfDelete(e)
			s, err := t.client.InferenceServices.Get(ctx, e.ServiceID)
			return t.read(s), err
		},
	}, 0)
}
