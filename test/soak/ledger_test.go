package soak_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"example.com/svc"
	"example.com/svc/ledger"
)

// process is a program that uses the library. It may be killed: then nothing that it does has an
// effect any more.
type process struct {
	next  http.RoundTripper
	store ledger.Store
	left  atomic.Int64 // steps until it is killed; 0: it is not
	dead  atomic.Bool
	stop  context.CancelFunc // ends the call that is under way
}

var errDead = errors.New("the process was killed")

// arm lets the process be killed at a step of its next call; 0: it lives on.
func (p *process) arm(steps int, stop context.CancelFunc) {
	p.stop = stop
	p.left.Store(int64(steps)) // last: what the call before has left running may step now
}

// step is called before and after whatever has an effect. It returns errDead if the process is dead.
func (p *process) step() error {
	if p.left.Load() > 0 && p.left.Add(-1) == 0 {
		p.dead.Store(true)
		p.stop()
	}
	if p.dead.Load() {
		return errDead
	}
	return nil
}

func (p *process) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := p.step(); err != nil {
		return nil, err
	}
	resp, err := p.next.RoundTrip(req)
	if dead := p.step(); dead != nil {
		return nil, dead
	}
	return resp, err
}

func (p *process) Append(ctx context.Context, r ledger.Record) error {
	if err := p.step(); err != nil {
		return err
	}
	return cmp.Or(p.store.Append(ctx, r), p.step())
}

func (p *process) List(ctx context.Context, key string) ([]ledger.Record, error) {
	if err := p.step(); err != nil {
		return nil, err
	}
	return p.store.List(ctx, key)
}

// client is the index of the client that makes a call.
func (k *call) client() int {
	if k.fresh {
		return 1
	}
	return 0
}

// start starts the process of a client anew.
func (c *conversation) start(i int) {
	p := &process{next: strip{c.world}, store: c.store}
	c.processes[i] = p
	opts := append(c.opts[:len(c.opts):len(c.opts)], svc.WithHTTPClient(&http.Client{Transport: p}))
	if c.store != nil {
		opts = append(opts, svc.WithLedger(p))
	}
	client, err := svc.NewClient("https://api.example.com/base", opts...)
	if err != nil {
		panic(err)
	}
	c.clients[i] = servicesOf(client)
	if c.lie != nil {
		c.clients[i] = c.lie(c.clients[i], c)
	}
}

// openLedger gives one conversation in three a ledger. There, no response to a create shows somebody
// else's record: the ledger would hold its ID.
func (c *conversation) openLedger() {
	if !hasLedger(c.seed) {
		return
	}
	c.store, c.world.stranger = losing{ledger.Memory(), &c.forgetful}, 0
}

func hasLedger(seed uint64) bool { return rand.New(rand.NewPCG(seed, 2)).IntN(3) == 0 }

// losing is a store that loses the records that it gets, if forgetful is true.
type losing struct {
	ledger.Store
	forgetful *bool
}

func (l losing) Append(ctx context.Context, r ledger.Record) error {
	if *l.forgetful {
		return nil
	}
	return l.Store.Append(ctx, r)
}

// withLedger makes some calls of a conversation with a ledger into ones that need it.
func (c *conversation) withLedger(k *call) *call {
	d := rand.New(rand.NewPCG(c.seed, 1000+uint64(k.number)))
	if c.store == nil {
		return k
	}
	switch d.IntN(6) {
	case 0:
		k.op, k.limit, k.cancels, k.antics = "Reap", 20*time.Minute, false, antics{}
	case 1:
		k.op, k.limit, k.cancels, k.antics = "Settle", time.Hour, false, antics{}
	case 2, 3:
		k.op = "Deploy"
	}
	if k.op != "Deploy" {
		return k
	}
	k.key = fmt.Sprint("app-", d.IntN(2)) // the request of a key is always the same
	k.request.Name, k.request.ResourceMetadata.TargetInstanceNumber = fmt.Sprintf("Endpoint %d of %s", c.seed, k.key), 2
	k.lease = []time.Duration{0, 20 * time.Second, 2 * time.Minute, 10 * time.Minute}[d.IntN(4)]
	if d.IntN(4) == 0 {
		k.dies = 1 + d.IntN(14)
	}
	return k
}

// settle settles the entries in doubt as an honest person does, who looks when no create can be under
// way any more: Adopt if the endpoint exists, or else Forget.
func (c *conversation) settle(ctx context.Context, s services) error {
	entries, err := s.Entries(ctx)
	time.Sleep(7 * time.Minute)
	for _, e := range entries {
		if !e.Open() || e.State == ledger.Created {
			continue
		}
		if there := c.marked(e.Intent); there != "" {
			err = errors.Join(err, s.Adopt(ctx, e, there))
		} else {
			err = errors.Join(err, s.Forget(ctx, e))
		}
	}
	return err
}

// marked returns the ID of the endpoint that carries the mark of an intent; empty: there is none.
func (c *conversation) marked(intent string) string {
	c.world.mu.Lock()
	defer c.world.mu.Unlock()
	c.world.advance()
	for _, e := range c.world.endpoints {
		if strings.Contains(e.about, intent) && !e.at(time.Now(), false).deleted {
			return e.id
		}
	}
	return ""
}

// entries returns what the ledger holds.
func (c *conversation) entries() []ledger.Entry {
	records, err := c.store.List(context.Background(), "")
	if err != nil {
		panic(err)
	}
	entries, err := ledger.Fold(records)
	if err != nil {
		c.fail(nil, "the ledger is damaged: %v", err)
	}
	return entries
}

// checkKeys checks that at most one endpoint of a key is billed.
func checkKeys(c *conversation, k *call) {
	billed := map[string]string{}
	for _, e := range c.world.endpoints {
		if e.by == nil || e.by.key == "" || c.world.isDeleted(e.id) {
			continue
		}
		if other := billed[e.by.key]; other != "" {
			c.fail(k, "%s and %s are billed under %s", other, e.id, e.by.key)
		}
		billed[e.by.key] = e.id
	}
}

// checkKnown checks that an open entry has the ID or the mark of every endpoint that is billed.
func checkKnown(c *conversation, _ *call) {
	if c.store == nil {
		return
	}
	known := c.entries()
	for _, e := range c.world.endpoints {
		if e.by == nil || c.world.isDeleted(e.id) {
			continue
		}
		found := false
		for _, entry := range known {
			mine := same(entry.ServiceID, e.id) || entry.ServiceID == "" && strings.Contains(e.about, entry.Intent)
			found = found || entry.Open() && mine
		}
		if !found {
			c.fail(e.by, "%s is billed, and no open entry of the ledger knows it", e.id)
		}
	}
}

// checkReap checks that Reap deletes only endpoints whose lease is over, and that it deletes all of
// these if it says so or if the service has no troubles. Copies of a cache may hold an old Date, and
// the created_at of an adopted endpoint does not fit the Date if that is wrong: then a lease may end at
// another time.
func checkReap(c *conversation, k *call) {
	if k.op != "Reap" {
		return
	}
	told := slices.ContainsFunc(k.exchanges, func(x *exchange) bool { return x.id == flavorList && x.whole }) // the time of the service
	sure := c.world.calm || told && k.err == nil && c.world.cacheTTL == 0
	unfit := map[string]bool{}
	leases := map[string]time.Time{} // from the ID to the true end of the lease; zero: there is none
	for _, entry := range c.entries() {
		e := c.world.find(entry.ServiceID)
		if e == nil {
			continue
		}
		unfit[e.id] = entry.Adopted && c.world.offset != 0
		if leases[e.id] = (time.Time{}); entry.Lease > 0 {
			leases[e.id] = e.created.Add(entry.Lease)
		}
		late := 2 * time.Second // a lease counts from the Date of the response
		if e.by != nil && creation(e.by, e) != nil {
			x := creation(e.by, e)
			late += x.ended.Sub(x.sent)
		}
		over := entry.Lease > 0 && leases[e.id].Add(late).Before(k.began)
		if sure && over && !entry.Adopted && !c.world.isDeleted(e.id) {
			c.fail(k, "the lease of %s ended %s, but it is not deleted: %v", e.id, c.since(leases[e.id]), k.err)
		}
	}
	for _, x := range k.exchanges {
		e := c.world.find(x.id)
		if x.method != "DELETE" || unfit[e.id] {
			continue
		}
		if end := leases[e.id]; end.IsZero() || x.sent.Add(time.Second).Before(end) {
			c.fail(k, "a delete of %s was sent, but its lease ends %s", x.id, c.since(end))
		}
	}
}

// checkEndurance checks that a cleanup which did not prove the deletion went on for its 30 s. It may
// end earlier only if the endpoint may be somebody else's, or if a function of the caller forbids it.
func checkEndurance(c *conversation, k *call) {
	for _, end := range k.cleanups {
		switch {
		case end.Err == nil, end.Elapsed >= 29*time.Second:
		case k.antics.what == "permanent", k.antics.what == "panic", k.antics.what == "exit":
		case strings.Contains(end.Err.Error(), "it may be somebody else's endpoint"):
		default:
			c.fail(k, "the cleanup of %s gave up after %v: %v", end.ID, end.Elapsed, end.Err)
		}
	}
}

// excused reports whether a call to a service without troubles may fail because of the ledger: a
// create is in doubt, or another call has changed the endpoint of its key.
func (c *conversation) excused(k *call) bool {
	deploy, failed := errors.AsType[*svc.DeployError](k.err)
	switch {
	case k.op == "Reap", k.op == "Settle":
		return true
	case k.key == "":
		return false
	}
	return failed && deploy.Resumed || errors.Is(k.err, svc.ErrOutcomeUnknown)
}
