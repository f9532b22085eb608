package svc

import (
	"cmp"
	"context"
	"fmt"
	"go/version"
	"slices"
	"strings"
	"time"

	"example.com/svc/internal/rules"
)

// A Flavor is a GPU offering that an inference service can run on.
type Flavor struct {
	FlavorID        string         `json:"flavor_id"`         // ID of the flavor, for a create request
	DisplayName     string         `json:"display_name"`      // the GPU's type
	ClusterID       string         `json:"cluster_id"`        // ID of the cluster that has the GPUs; not documented further
	ClusterFlavorID string         `json:"cluster_flavor_id"` // ID of the flavor in its cluster; not documented further
	MetaInfo        FlavorMetaInfo `json:"meta_info"`         // CUDA version and region
	Billing         FlavorBilling  `json:"billing"`           // prices
	CreatedAt       Time           `json:"created_at"`        // when the flavor was first offered
	UpdatedAt       Time           `json:"updated_at"`        // when the record last changed
	DeletedAt       Time           `json:"deleted_at"`        // when the flavor was withdrawn; zero if it is offered; prefer IsDeleted
	IsDeleted       bool           `json:"is_deleted"`        // the flavor is no longer offered
	AvailableNum    Int            `json:"available_num"`     // instances that are available now
	NodeMaxGPU      Int            `json:"node_max_gpu"`      // the largest number of GPUs that one instance can have
}

func (f *Flavor) identity() (field, id string) { return "flavor_id", f.FlavorID }

// FlavorMetaInfo holds the CUDA version and the region of a flavor.
type FlavorMetaInfo struct {
	CUDA   string `json:"cuda"`   // CUDA version, such as "12.4"; if the service sends another type than a string, its JSON text
	Region Region `json:"region"` // where the GPUs are
}

// FlavorBilling holds the price of one unit of use. The service does not document what one
// unit is.
type FlavorBilling struct {
	CNYPriceUnit   Price `json:"cny_price_unit"`   // price in Chinese yuan
	USDPriceUnit   Price `json:"usd_price_unit"`   // price in US dollars
	TokenPriceUnit Price `json:"token_price_unit"` // price in the service's own tokens
}

// Price returns the price in the currency c. For an unknown currency it returns a price that
// is not set: see [Price.IsZero].
func (b FlavorBilling) Price(c Currency) Price {
	return map[Currency]Price{CurrencyUSD: b.USDPriceUnit, CurrencyCNY: b.CNYPriceUnit, CurrencyToken: b.TokenPriceUnit}[c]
}

// A FlavorClient lists GPU offerings: see [Client.Flavors].
type FlavorClient struct{ client *Client }

type flavorList struct {
	Flavors []Flavor `json:"flavor_list"`
}

func (l *flavorList) grow(body []byte) { l.Flavors = room[Flavor](body, "flavor_id") }

func (l *flavorList) check(body []byte) (string, error) {
	return checkList("flavor_list", l.Flavors, body, false)
}

// List returns all flavors, in the order of the service.
//
// GET /v1/inference-service/flavor
func (c *FlavorClient) List(ctx context.Context, opts ...RequestOption) ([]Flavor, error) {
	list, err := do[flavorList](ctx, c.client, get("/v1/inference-service/flavor", "", opts))
	return orZero(list).Flavors, err
}

// A FlavorQuery selects flavors. A zero field matches every flavor.
type FlavorQuery struct {
	Name           string   // a part of DisplayName, case-insensitive
	Region         Region   // exactly this region
	MinCUDA        string   // minimum CUDA version, compared as numbers: 12.10 is later than 12.4
	MinAvailable   int      // minimum number of instances that are available now
	MinGPUsPerNode int      // minimum number of GPUs that one instance can have
	MaxPrice       Price    // maximum price in Currency; if set, flavors without a price in Currency do not match
	Currency       Currency // the currency of MaxPrice, and of the prices that the result is sorted by; if empty, it is USD
}

// Find returns the flavors that match q, the cheapest first. Flavors without a price in the
// currency come last. If no flavor has a price, the first result has none: see
// [FlavorBilling.Price]. Deleted flavors and flavors without an ID are not returned. If no
// flavor matches, the result is empty and the error is nil. The service has no search: Find
// calls [FlavorClient.List] and selects from the list.
//
// GET /v1/inference-service/flavor
func (c *FlavorClient) Find(ctx context.Context, q FlavorQuery, opts ...RequestOption) ([]Flavor, error) {
	if err := q.problems().err(); err != nil {
		return nil, err
	}
	all, err := c.List(ctx, opts...)
	return q.choose(all), err
}

// WaitForStock waits until at least one flavor matches q and has an instance available
// ([FlavorQuery.MinAvailable] may ask for more), and returns these flavors as
// [FlavorClient.Find] does, the cheapest first. The stock may be taken in the meantime, so a
// create can still be refused. A status of this wait, in a [Poll] or a [WaitError], is a string
// such as "0 of 3 fitting flavors in stock". Failed polls end the wait by the rules of
// [InferenceServiceClient.WaitUntilAvailable], and "not found" ends it after
// [WaitOptions.NotFoundGrace]. If [WaitOptions.Probe] is set, the error is a [ValidationError].
//
// GET /v1/inference-service/flavor repeatedly
func (c *FlavorClient) WaitForStock(ctx context.Context, q FlavorQuery, opts *WaitOptions) ([]Flavor, error) {
	type stock struct {
		found   []Flavor
		fitting int // number of flavors that match, with or without stock
	}
	o := opts.withDefaults()
	p := q.problems()
	p.add(o.Probe != nil, "Probe", "cannot be used with WaitForStock: a flavor has no URL")
	wanted := q
	wanted.MinAvailable = max(q.MinAvailable, 1)
	q.MinAvailable = min(q.MinAvailable, 0) // a negative number stays, so that it is refused
	w := &waiter[stock]{
		opts: o, client: c.client, start: time.Now(), unfit: p.err(), outcome: WaitError{Want: "in stock", subject: "a flavor"},
		poll: func(ctx context.Context) (*stock, rules.Verdict, error) {
			fitting, err := c.Find(ctx, q, polling(o.RequestOptions)...)
			if err != nil {
				return nil, rules.Unproven, err
			}
			return &stock{wanted.choose(slices.Clone(fitting)), len(fitting)}, rules.Unproven, nil
		},
		status: func(s *stock) string {
			return fmt.Sprintf("%d of %d fitting flavors in stock", len(s.found), s.fitting)
		},
	}
	s, err := w.run(ctx, func(s *stock) (bool, error) { return len(s.found) > 0, nil })
	if err != nil {
		return nil, err
	}
	return s.found, nil
}

// choose returns the flavors that match q, the cheapest first.
func (q *FlavorQuery) choose(all []Flavor) []Flavor {
	found := slices.DeleteFunc(all, func(f Flavor) bool { return !q.matches(&f) })
	slices.SortStableFunc(found, func(a, b Flavor) int {
		x, y := q.price(&a), q.price(&b)
		if x.IsZero() != y.IsZero() {
			return y.Cmp(x)
		}
		return x.Cmp(y)
	})
	return found
}

func (q *FlavorQuery) price(f *Flavor) Price {
	return f.Billing.Price(cmp.Or(q.Currency, CurrencyUSD))
}

func (q *FlavorQuery) problems() (p problems) {
	p.add(q.MinCUDA != "" && !version.IsValid(goForm(q.MinCUDA)), "MinCUDA", "must be a version such as 12.4")
	p.add(q.MinAvailable < 0, "MinAvailable", "must not be negative")
	p.add(q.MinGPUsPerNode < 0, "MinGPUsPerNode", "must not be negative")
	p.add(q.MaxPrice.IsZero() && q.MaxPrice.Raw() != "", "MaxPrice", "must be a number")
	p.add(q.MaxPrice.Float64() < 0, "MaxPrice", "must not be negative")
	p.add(!slices.Contains([]Currency{"", CurrencyUSD, CurrencyCNY, CurrencyToken}, q.Currency), "Currency", "must be usd, cny or token")
	return p
}

func (q *FlavorQuery) matches(f *Flavor) bool {
	switch cuda := goForm(f.MetaInfo.CUDA); {
	case f.IsDeleted || f.FlavorID == "":
	case !strings.Contains(strings.ToLower(f.DisplayName), strings.ToLower(q.Name)):
	case q.Region != "" && f.MetaInfo.Region != q.Region:
	case q.MinCUDA != "" && (!version.IsValid(cuda) || version.Compare(cuda, goForm(q.MinCUDA)) < 0):
	case int64(f.AvailableNum) < int64(q.MinAvailable):
	case int64(f.NodeMaxGPU) < int64(q.MinGPUsPerNode):
	case !q.MaxPrice.IsZero() && (q.price(f).IsZero() || q.price(f).Cmp(q.MaxPrice) > 0):
	default:
		return true
	}
	return false
}

// goForm writes a CUDA version as a Go version, such as "go12.4", so that package
// [go/version] can compare it.
func goForm(cuda string) string {
	return "go" + strings.TrimPrefix(strings.ToLower(strings.TrimSpace(cuda)), "v")
}
