package soak_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/svc"
)

// field has the troubles that were reported from the field. A conversation has at most two of
// them.
type field struct {
	foreign   window // the token source returns the token of another account
	fickle    bool   // it returns the token of another account right after a delete that failed
	tokenless window // the token source fails
	limited   window // the rate limiter refuses or hangs
	untrusted window // the certificate of the service is not accepted

	router     window // all paths of endpoints get "not found", from a router
	again      window // and once more, after a time in which a wait reads the endpoint, unless it is offline
	offline    window // the network of the client is down
	routerBody string
	mixes      fault // and this happens to every second read of an endpoint; empty: the same as to the others

	cacheTTL     time.Duration // how long a cache keeps responses; zero: there is no cache
	cacheIgnores bool          // the cache ignores Cache-Control
	cacheMisses  bool          // the cache keeps "not found" too
	cacheSigns   int           // what a copy shows: 0: Age, request ID and Date; 1: Age; 2: request ID; 3: Date

	offset     time.Duration // how far the clock of the service is ahead
	dateless   bool          // responses have no Date
	echoes     bool          // all responses have the request ID of the program
	notANumber bool          // records contain NaN and -Infinity
}

// window is a time within a conversation.
type window struct{ from, to time.Duration }

func (w window) has(since time.Duration) bool { return since >= w.from && since < w.to }

// drawField chooses troubles that a client can cope with.
func (t *traits) drawField(d *rand.Rand) {
	seconds := func(most float64) time.Duration { return time.Duration(d.Float64() * most * float64(time.Second)) }
	some := func(most ...float64) window {
		from := seconds(90)
		return window{from, from + seconds(most[d.IntN(len(most))])}
	}
	for range d.IntN(3) {
		switch d.IntN(9) {
		case 0:
			t.foreign, t.stranger = some(30, 300, 1000), 0 // the response to a create must be true for one of the two to be noticed
		case 1:
			t.tokenless = some(5, 60, 1000)
		case 2:
			t.limited = some(5, 60, 1000)
		case 3:
			t.untrusted = some(5, 60, 1000)
		case 4, 7:
			t.drawRouter(d)
		case 5:
			t.cacheTTL, t.cacheIgnores, t.cacheMisses, t.cacheSigns = time.Second+seconds(120), d.IntN(2) == 0, d.IntN(2) == 0, d.IntN(4)
		case 6:
			t.naming, t.notANumber = 3, true
		case 8:
			t.fickle, t.trouble = true, max(t.trouble, 0.2)
		}
	}
	quiet := t.field == field{router: t.router, routerBody: t.routerBody, echoes: t.echoes} && t.trouble+t.slow+t.refusing == 0
	if length := t.router.to - t.router.from; quiet && length > 0 {
		from := t.router.to + 17*time.Second + seconds(10)
		if d.IntN(2) == 0 { // no response tells the one from the other, except that it takes long
			from += 14 * time.Second
			t.offline = window{t.router.to, from}
		}
		t.again = window{from, from + length}
		t.deploying = 3 * time.Minute // so that one wait sees both
	}
	if t.mixes != noFault {
		t.cacheTTL = 0 // a cache would hide what is between two "not found"
	}
	t.echoes = t.echoes && t.cacheTTL == 0 // a copy without any other sign cannot be detected
	t.offset = []time.Duration{0, 24 * time.Hour, -24 * time.Hour}[d.IntN(3)]
	t.dateless = d.IntN(4) == 0 && t.cacheSigns != 3
}

// drawRouter chooses a router that hides the endpoints. A client believes a "not found" in JSON
// after 10 s, and any other after 60 s. After a delete that the service accepted, it believes them
// earlier: README says so.
func (t *traits) drawRouter(d *rand.Rand) {
	if t.outageTo > 0 {
		return // one after the other looks like one long router
	}
	i := d.IntN(len(outageBodies))
	json := strings.HasPrefix(outageBodies[i], "{")
	most := 60.0
	switch weak := t.deaf > 0 || t.deleting > 0; {
	case json && weak:
		most = 3
	case json:
		most = 10
	case weak:
		most = 25
	}
	from := time.Duration(d.Float64() * 40 * float64(time.Second))
	length := time.Duration((0.5 + d.Float64()/2) * most * float64(time.Second))
	t.trouble = 0 // a page of a proxy right before it would make it longer
	if d.IntN(3) == 0 {
		t.slow, length, t.mixes = 0, time.Duration(d.Float64()*300*float64(time.Second)), cutBody
		if !json && d.IntN(4) > 0 { // a client may believe "not found" in JSON although other responses fail
			t.mixes = status503
		}
	}
	t.router, t.routerBody = window{from, from + length}, outageBodies[i]
}

const foreignToken = "key-of-another-account"

// token is the token source of the program.
func (w *world) token(ctx context.Context) (string, error) {
	k, since := w.call, time.Since(w.start)
	err := k.perform(ctx, "token")
	if w.tokenless.has(since) {
		err = errors.New("the token service is down")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case err != nil:
		k.tokenless = append(k.tokenless, time.Now())
		return "", err
	case w.foreign.has(since), w.fickle && w.failedDelete(k):
		return foreignToken, nil
	}
	if !w.calm {
		k.rotation++
	}
	return fmt.Sprintf("key-%d", k.rotation/3), nil
}

// failedDelete reports whether the latest request of a call is a delete that failed.
func (w *world) failedDelete(k *call) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(k.exchanges)
	return n > 0 && k.exchanges[n-1].method == http.MethodDelete && k.exchanges[n-1].fault != noFault
}

// limiter is the rate limiter of the program.
type limiter struct{ *world }

func (l limiter) Wait(ctx context.Context) error {
	since := time.Since(l.start)
	if !l.limited.has(since) {
		return ctx.Err()
	}
	switch l.seed % 3 {
	case 0:
		return errors.New("rate: Wait(n=1) would exceed context deadline")
	case 1:
		return errors.New("rate: the limiter is out of order")
	default:
		return pause(ctx, l.limited.to-since)
	}
}

// suspend stops the process until after the end of ctx.
func (k *call) suspend() {
	if left := time.Until(k.end()); left > 0 {
		time.Sleep(left + time.Minute)
		k.woke = time.Now()
	}
}

func slug(name string) string { return strings.ReplaceAll(strings.ToLower(name), " ", "-") }

func cacheKey(x *exchange, req *http.Request) string {
	if x.method != http.MethodGet {
		return ""
	}
	return req.URL.Path + " " + req.Header.Get("Authorization")
}

// cachedResponse returns what the cache has for a request. It returns nil if the request goes
// to the service.
func (w *world) cachedResponse(x *exchange, req *http.Request) *http.Response {
	w.mu.Lock()
	defer w.mu.Unlock()
	old := w.stored[cacheKey(x, req)]
	fresh := req.Header.Get("Cache-Control") == "no-cache" && !w.cacheIgnores
	if old == nil || fresh || x.sent.Sub(old.ended) >= w.cacheTTL {
		return nil
	}
	x.fault, x.cached, x.whole, x.shown = noFault, true, old.whole, old.shown
	r := x.answer(old.status, old.body)
	r.Header = maps.Clone(old.header)
	signs := w.cacheSigns
	if r.Header.Get("X-Request-Id") == "" {
		signs = min(signs, 1) // a copy without any sign cannot be detected
	}
	if signs <= 1 {
		r.Header.Set("Age", strconv.Itoa(1+int(x.sent.Sub(old.ended).Seconds())))
	}
	if signs == 1 || signs == 2 {
		r.Header.Set("Date", w.date(x.sent))
	}
	if signs == 1 || signs == 3 {
		r.Header.Del("X-Request-Id")
	}
	return r
}

func (w *world) date(t time.Time) string { return t.Add(w.offset).UTC().Format(http.TimeFormat) }

// stamp adds the headers of a response, and lets the cache keep it.
func (w *world) stamp(x *exchange, r *http.Response, req *http.Request) {
	if !w.dateless {
		r.Header.Set("Date", w.date(time.Now()))
	}
	switch {
	case w.echoes:
		r.Header.Set("X-Request-Id", "job-1")
	case !x.handled.IsZero():
		r.Header.Set("X-Request-Id", fmt.Sprintf("request-%d-%d", x.call.number, x.number))
	}
	complete := x.whole || x.fault == outageFor || x.fault == routerFor
	keeps := x.status == 200 || w.cacheMisses && (x.status == 404 || x.status == 410)
	if key := cacheKey(x, req); w.cacheTTL > 0 && key != "" && complete && keeps {
		w.mu.Lock()
		defer w.mu.Unlock()
		x.header, x.ended = maps.Clone(r.Header), time.Now()
		w.stored[key] = x
	}
}

// checkCleanup checks that a failed deployment sent a delete if a cleanup was wanted. It need
// not if the token source failed for the whole time of the cleanup, or if the endpoint is known
// to be deleted.
func checkCleanup(c *conversation, k *call) {
	deploy, failed := errors.AsType[*svc.DeployError](k.err)
	if !k.returned || !failed || !k.removes || k.antics.what == "panic" || cleanup(deploy) == "deleted" || tried(k, deploy.ServiceID) {
		return
	}
	if k.antics.where == "token" && (k.antics.what == "permanent" || k.antics.what == "hang" && k.antics.again) {
		return
	}
	if deploy.Resumed && (!k.decides || !k.read(deploy.ServiceID)) {
		return // the creator may use it, or its name is not known as long as no read shows it
	}
	for _, x := range k.exchanges {
		if x.fault == stranger || x.fault == strangerCut { // the endpoint is somebody else's
			return
		}
		if x.made != nil && hopeless(k, x, x.made) {
			return
		}
	}
	if k.hadNoToken() {
		return
	}
	c.fail(k, "the cleanup of %s ended as %q without a delete", deploy.ServiceID, cleanup(deploy))
}

// read reports whether a read of the call showed the endpoint.
func (k *call) read(id string) bool {
	return slices.ContainsFunc(k.exchanges, func(x *exchange) bool {
		return x.method == http.MethodGet && same(x.id, id) && x.whole && x.shown != nil
	})
}

// hadNoToken reports whether the token source failed for the whole time of a cleanup.
func (k *call) hadNoToken() bool {
	n := len(k.tokenless)
	return n > 0 && k.ended.Sub(k.tokenless[0]) >= 15*time.Second && k.ended.Sub(k.tokenless[n-1]) < 16*time.Second
}

// checkSuspended checks that a process that was suspended beyond its deadline read the endpoint
// before it judged, and that it did not delete an endpoint that was available then.
func checkSuspended(c *conversation, k *call) {
	if c.world.limited != (window{}) || len(k.tokenless) > 0 {
		return // it may be unable to read
	}
	deploys := k.op == "Deploy" || k.op == "WaitUntilAvailable"
	if k.woke.IsZero() || !k.returned || !deploys || k.antics.where != "OnPoll" || !errors.Is(k.err, context.DeadlineExceeded) {
		return
	}
	for _, x := range k.exchanges {
		if x.sent.Before(k.woke) {
			continue
		}
		if x.method != http.MethodGet {
			c.fail(k, "after it was suspended, it sent a %s before a read", x.method)
		} else if x.whole && x.shown != nil && x.shown.status == "available" && !x.shown.deleted && !k.probes && k.err != nil {
			c.fail(k, "after it was suspended, a read showed available, but the call failed")
		}
		return
	}
	c.fail(k, "after it was suspended, it sent nothing")
}
