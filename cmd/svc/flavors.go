package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"example.com/svc"
)

// flavorView is a flavor in a document.
type flavorView struct {
	FlavorID  string          `json:"flavor_id"`
	GPU       string          `json:"gpu"` // type of the GPU
	Region    string          `json:"region"`
	CUDA      string          `json:"cuda"`
	Available int64           `json:"available"`                               // instances in stock
	MaxGPUs   int64           `json:"max_gpus"`                                // GPUs that one instance can have
	USD       json.RawMessage `json:"usd" jsonschema:"oneof_type=number;null"` // price per unit of the price list, a number; null: there is none
	CNY       json.RawMessage `json:"cny" jsonschema:"oneof_type=number;null"` // the same in Chinese yuan
}

// flavorsView lists flavors, the cheapest first.
type flavorsView struct {
	outcome
	Flavors []flavorView `json:"flavors"`
}

func emptyFlavors() view { return &flavorsView{Flavors: []flavorView{}} }

func newFlavorsView(flavors []svc.Flavor) *flavorsView {
	v := &flavorsView{Flavors: []flavorView{}}
	for _, f := range flavors {
		v.Flavors = append(v.Flavors, flavorView{
			f.FlavorID, f.DisplayName, string(f.MetaInfo.Region), f.MetaInfo.CUDA, int64(f.AvailableNum), int64(f.NodeMaxGPU),
			price(f.Billing.USDPriceUnit), price(f.Billing.CNYPriceUnit),
		})
	}
	return v
}

// price is the exact number that the service sent, or null.
func price(p svc.Price) json.RawMessage {
	if p.IsZero() {
		return json.RawMessage("null")
	}
	return json.RawMessage(p.String())
}

func (v *flavorsView) table() table {
	t := table{header: []string{"ID", "GPU", "REGION", "CUDA", "AVAILABLE", "MAX GPUS", "USD"}}
	for _, f := range v.Flavors {
		usd := string(f.USD)
		if usd == "null" {
			usd = "-"
		}
		t.rows = append(t.rows, []string{
			f.FlavorID, dash(f.GPU), dash(f.Region), dash(f.CUDA), fmt.Sprint(f.Available), fmt.Sprint(f.MaxGPUs), usd,
		})
	}
	return t
}

func (v *flavorsView) names() (ids []string) {
	for _, f := range v.Flavors {
		ids = append(ids, f.FlavorID)
	}
	return ids
}

func (t *tool) flavorsCommand() *command {
	var filter flavorFilter
	var minAvailable, gpus int
	var wait bool
	c := &command{
		Command: &cobra.Command{
			Use: "flavors", Short: "list the GPUs on offer, the cheapest first",
			Long: `Lists the flavors that fit, the cheapest first. Ends with 5 if none fits. With --wait, it waits
until one that fits is in stock, for --timeout at most. If none on offer fits at all, it warns, and
waits, since one may be offered later.`,
			Example: `  svc flavors --gpu a100 --min-available 2 --max-price 2.50
  svc flavors --wait --gpu h100 --timeout 12h -o name | head -n 1`,
		},
		client: needsClient, empty: emptyFlavors,
	}
	f := c.Flags()
	filter.add(f)
	f.IntVar(&minAvailable, "min-available", 0, "least number of instances in stock")
	f.IntVar(&gpus, "gpus", 0, "least number of GPUs that one instance can have")
	f.BoolVar(&wait, "wait", false, "wait until a flavor that fits is in stock")
	c.run = func(ctx context.Context, _ []string) (view, error) {
		query, err := filter.query()
		if err != nil {
			return nil, err
		}
		query.MinAvailable, query.MinGPUsPerNode = minAvailable, gpus
		if wait {
			anyStock := query
			anyStock.MinAvailable = min(query.MinAvailable, 0) // a negative number is refused
			if fit, err := t.client.Flavors.Find(ctx, anyStock, svc.WithMaxAttempts(1)); err == nil && len(fit) == 0 {
				t.talk.warn("no flavor on offer fits, in stock or not: to see all: %s. The wait goes on, since one may be offered later", t.cmd("flavors"))
			}
			flavors, err := t.client.Flavors.WaitForStock(ctx, query, &t.wait)
			return newFlavorsView(flavors), err
		}
		flavors, err := t.client.Flavors.Find(ctx, query)
		if err == nil && len(flavors) == 0 {
			err = errNoFlavor
		}
		return newFlavorsView(flavors), err
	}
	return c
}
