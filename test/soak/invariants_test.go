package soak_test

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"example.com/svc"
)

// invariant is one promise. Its check compares what the client reported with the true
// state of the service.
type invariant struct {
	name  string
	check func(c *conversation, k *call)
}

const inTime = "I6 a call ends in time"

// afterCall are checked after each call, atEnd at the end of the conversation.
var (
	afterCall = []invariant{
		{"I0 no panic of the client's own", checkPanic},
		{"I3 deleted is true", checkDeleted},
		{"I4 scaled is true", checkScaled},
		{"I5 only its own endpoint is deleted", checkDeletes},
		{inTime, checkTime},
		{"I7 available is true", checkAvailable},
		{"I7 available is true", checkAll},
		{"I8 no create is repeated that may have acted", checkRepeats},
		{"I9 a calm service is served", checkCalm},
		{"I10 a cleanup sends a delete", checkCleanup},
		{"I11 a process that was suspended looks first", checkSuspended},
		{"I12 a cleanup endures", checkEndurance},
		{"I13 one key, one endpoint", checkKeys},
		{"I15 a lease is kept", checkReap},
		{"I16 a refusal ends a wait only if it lasts", checkRefusals},
		{"I17 a deletion is not proven during an outage", checkProof},
	}
	afterKill = []invariant{
		{"I8 no create is repeated that may have acted", checkRepeats},
		{"I13 one key, one endpoint", checkKeys},
	}
	atEnd = []invariant{
		{"I1 one create makes one endpoint", checkDoubles},
		{"I2 no ID is lost", checkLost},
		{"I5 only its own endpoint is deleted", checkNeighbours},
		{"I13 one key, one endpoint", checkKeys},
		{"I14 the ledger knows what is billed", checkKnown},
	}
)

func checkPanic(c *conversation, k *call) {
	if _, own := k.panicked.(mischief); k.panicked != nil && !own {
		c.fail(k, "the call panicked: %v", k.panicked)
	}
	if k.exited && k.antics.what != "exit" {
		c.fail(k, "the call ended its goroutine")
	}
}

func checkDoubles(c *conversation, _ *call) {
	made := map[*call]int{}
	for _, e := range c.world.endpoints {
		if e.by == nil {
			continue
		}
		if made[e.by]++; made[e.by] == 2 {
			c.fail(e.by, "the call created two endpoints")
		}
	}
}

// checkLost looks for endpoints whose ID the caller did not get.
func checkLost(c *conversation, _ *call) {
	for _, e := range c.world.endpoints {
		k := e.by
		if k == nil || k.killed || has(k.learned(), e.id) && k.returned {
			continue
		}
		post := creation(k, e)
		switch unknown, ok := errors.AsType[*svc.OutcomeUnknownError](k.err); {
		case post.fault == stranger, post.fault == strangerCut: // no client can know the ID here
		case k.returned && (!errors.Is(k.err, svc.ErrOutcomeUnknown) || !ok || unknown.Name != k.request.Name):
			c.fail(k, "%s was created (fault %q), but the error does not say so: %v", e.id, post.fault, k.err)
		case !k.returned && k.op != "Create" && shows(post, e.id):
			if k.tells && !has(k.told, e.id) {
				c.fail(k, "%s was created, but OnCreate was not called after a %s in %s, call %d", e.id, k.antics.what, k.antics.where, k.antics.nth)
			}
			if (k.removes || k.decides) && !tried(k, e.id) && e.deleted.IsZero() && !hopeless(k, post, e) {
				c.fail(k, "%s was created, but no delete was sent after a %s in %s, call %d", e.id, k.antics.what, k.antics.where, k.antics.nth)
			}
		}
	}
}

// same compares IDs without letter case, because a UUID may be written in both.
func same(a, b string) bool { return strings.EqualFold(a, b) }

func has(ids []string, id string) bool {
	return slices.ContainsFunc(ids, func(other string) bool { return same(other, id) })
}

// hopeless reports whether the client could not send a delete. It had no token for the
// delete, or no response showed that the endpoint is its own.
func hopeless(k *call, post *exchange, e *endpoint) bool {
	panics := k.antics.again && k.antics.where == "hook" && len(k.tokenless) > 0
	if k.antics.again && k.antics.where == "token" || panics || k.hadNoToken() {
		return true
	}
	read := slices.ContainsFunc(k.exchanges, func(x *exchange) bool { return x.method == "GET" && x.whole && x.shown != nil })
	return !shows(post, e.name) && !shows(post, slug(e.name)) && (!read || k.antics.again && k.antics.where == "hook")
}

// creation returns the exchange that created the endpoint.
func creation(k *call, e *endpoint) *exchange {
	for _, x := range k.exchanges {
		if x.made == e {
			return x
		}
	}
	return nil
}

// shows reports whether the response to a create contains text as the end of a complete
// field.
func shows(x *exchange, text string) bool {
	body := strings.ReplaceAll(strings.ToLower(x.body), ` "`, `"`)
	return x.status != 0 && strings.Contains(body, strings.ToLower(text)+`"`) && x.fault != stall
}

// tried reports whether a delete of the endpoint was sent, or could not be sent because
// the token was refused.
func tried(k *call, id string) bool {
	return slices.ContainsFunc(k.exchanges, func(x *exchange) bool {
		return x.method == "DELETE" && same(x.id, id) || x.fault == json401 || x.fault == json403
	})
}

// checkDeleted checks that every endpoint that was reported as deleted is deleted.
func checkDeleted(c *conversation, k *call) {
	if !k.returned {
		return
	}
	deploy, failed := errors.AsType[*svc.DeployError](k.err)
	id := deletes(k)
	switch {
	case id != "" && !c.world.isDeleted(id):
		c.fail(k, "%s is reported as deleted, but it is not", id)
	case failed && cleanup(deploy) == "accepted" && !accepted(k, deploy.ServiceID):
		c.fail(k, "the cleanup is reported as accepted, but no delete was accepted")
	case k.op == "Delete" && k.err == nil && !accepted(k, k.id) && c.young(k) && !c.world.isDeleted(k.id):
		c.fail(k, "the call returned nil after a 404 for a new ID, but %s is not deleted", k.id)
	case k.op == "Delete" && k.err == nil && !accepted(k, k.id) && k.foreignAtLast() && !c.world.isDeleted(k.id):
		c.fail(k, "the call returned nil after a 404 of another account, but %s is not deleted", k.id)
	}
}

// foreignAtLast reports whether only the last request was sent with the token of another account.
func (k *call) foreignAtLast() bool {
	first := slices.IndexFunc(k.exchanges, func(x *exchange) bool { return x.foreign })
	return first >= 0 && first == len(k.exchanges)-1
}

// deletes returns the ID of the endpoint that a call reports as deleted; empty if there is none.
func deletes(k *call) string {
	deploy, failed := errors.AsType[*svc.DeployError](k.err)
	switch {
	case !k.returned:
	case (k.op == "WaitUntilDeleted" || k.op == "DeleteAndWait") && k.err == nil:
		return k.id
	case k.op == "Use" && k.err == nil:
		return k.record.ServiceID
	case failed && cleanup(deploy) == "deleted":
		return deploy.ServiceID
	}
	return ""
}

// checkProof checks that a deletion is reported after two "not found" only if the flavor list was
// answered between them: an outage may hide all paths for any time.
func checkProof(c *conversation, k *call) {
	id := deletes(k)
	if id == "" || c.world.cacheIgnores && c.world.cacheSigns >= 2 { // a copy without Age is known only after its original
		return
	}
	var missing []*exchange // what a client can tell from a copy, by its Date
	for _, x := range k.exchanges {
		switch {
		case x.method != http.MethodGet || !same(x.id, id):
		case x.whole && x.shown != nil && x.shown.deleted:
			return
		case x.status != 404 && x.status != 410, x.cached:
		case !c.world.dateless && slices.ContainsFunc(missing, func(before *exchange) bool { return c.world.date(before.ended) == c.world.date(x.ended) }):
		default:
			missing = append(missing, x)
		}
	}
	n := len(missing)
	if n < 2 {
		c.fail(k, "%s is reported as deleted after fewer than two responses", id)
		return
	}
	from, to := missing[n-2].ended, missing[n-1].sent
	if !slices.ContainsFunc(k.exchanges, func(x *exchange) bool { return x.lists() && !x.sent.Before(from) && x.sent.Before(to) }) {
		c.fail(k, "%s is reported as deleted, but the flavor list was not answered between the last two responses", id)
	}
}

// lists reports whether the service answered with the flavor list, or with a 403.
func (x *exchange) lists() bool {
	answered := x.whole && strings.HasPrefix(x.body, `{"flavor_list"`) || x.status == 403 && x.fault != page403
	return x.id == flavorList && !x.cached && answered
}

// accepted reports whether a delete reached the service and got a 2xx response.
func accepted(k *call, id string) bool {
	return slices.ContainsFunc(k.exchanges, func(x *exchange) bool {
		return x.method == "DELETE" && same(x.id, id) && x.status/100 == 2 && !x.handled.IsZero()
	})
}

// sinceStart returns the calls that were made since the process of a call started.
func (c *conversation) sinceStart(k *call) []*call {
	since := 0
	for i, other := range c.calls {
		if other.killed && other.fresh == k.fresh {
			since = i + 1
		}
	}
	return c.calls[since:]
}

// young reports whether this client created the endpoint less than 30 s before the call.
func (c *conversation) young(k *call) bool {
	e := c.world.find(k.id)
	return e != nil && e.by != nil && e.by.fresh == k.fresh && slices.Contains(c.sinceStart(k), e.by) && has(e.by.learned(), e.id) && k.began.Sub(e.created) < 30*time.Second
}

// checkScaled looks for a moment between the update and the return in which the endpoint
// had the requested number of instances and the matching status.
func checkScaled(c *conversation, k *call) {
	if k.op != "ScaleAndWait" || !k.returned || k.err != nil {
		return
	}
	var put *exchange
	for _, x := range k.exchanges {
		if x.method == "PUT" && x.status/100 == 2 {
			put = x
		}
	}
	e := c.world.find(k.id)
	if put == nil || e == nil {
		c.fail(k, "the call returned nil, but no update was accepted")
		return
	}
	since := put.handled
	if since.IsZero() { // the response did not come from the service, but the number may be right
		since = put.sent
	}
	times := []time.Time{since, k.ended}
	for _, h := range e.changes {
		times = append(times, h.at, h.settled)
	}
	for _, t := range times {
		if t.Before(since) || t.After(k.ended) {
			continue
		}
		s := e.at(t, false)
		if s.instances == k.instances && !s.deleted && (s.status == "available" || k.instances == 0 && s.status == "stopped") {
			return
		}
	}
	if !c.comparable(e, put) {
		return
	}
	c.fail(k, "the call returned nil, but %s never had %d instances", k.id, k.instances)
}

// comparable reports whether a client can tell a record from before the update from a
// record after it. This is possible if reads are never stale, or if updated_at can be
// compared with that of the update's response.
func (c *conversation) comparable(e *endpoint, put *exchange) bool {
	w := c.world
	switch {
	case w.lag == 0 && w.cacheTTL == 0:
		return true
	case w.cacheIgnores && w.cacheTTL > 20*time.Second: // a client that reads only old records for 30 s believes them
		return false
	case w.bare || !put.whole || w.dates >= noDates:
		return false
	case w.dates >= wholeSeconds:
		prior := e.at(put.handled.Add(-1), w.touch).updated
		return prior.Unix() != e.at(put.handled, w.touch).updated.Unix()
	}
	return true
}

// checkDeletes checks which endpoints the call deleted.
func checkDeletes(c *conversation, k *call) {
	for _, x := range k.exchanges {
		if x.method != "DELETE" {
			continue
		}
		e := c.world.find(x.id)
		switch k.op {
		case "Delete", "DeleteAndWait":
			if !same(x.id, k.id) {
				c.fail(k, "a delete of %s was sent", x.id)
			}
		case "Deploy", "Use":
			if e == nil || e.name != k.request.Name {
				c.fail(k, "a delete of %s was sent, but this endpoint has another name", x.id)
			} else if k.op == "Deploy" && !k.removes && k.returned {
				c.fail(k, "a delete was sent, but no cleanup was wanted")
			}
		case "Reap": // checkReap judges it
		default:
			c.fail(k, "a delete was sent")
		}
	}
	if k.op == "Deploy" && k.returned && k.err == nil && accepted(k, k.record.ServiceID) {
		c.fail(k, "the call succeeded, but a delete was sent")
	}
}

// checkNeighbours checks that the endpoint of somebody else, whose ID the caller never
// used, is unchanged.
func checkNeighbours(c *conversation, _ *call) {
	e := c.world.endpoints[1]
	named := slices.ContainsFunc(c.calls, func(k *call) bool { return same(k.id, e.id) })
	if !named && (!e.deleted.IsZero() || len(e.changes) > 1) {
		c.fail(nil, "%s was changed or deleted", e.id)
	}
}

func checkTime(c *conversation, k *call) {
	most, end := time.Duration(0), k.end()
	if k.op == "Deploy" || k.op == "Use" {
		most = 40 * time.Second
	}
	if k.woke.After(end) { // one more poll, with a limit of its own
		end, most = k.woke, most+10*time.Second
	}
	if late := k.ended.Sub(end); late > most {
		c.fail(k, "the call ended %v after ctx", late)
	}
	for _, x := range k.exchanges {
		if x.ended.IsZero() || x.ended.After(k.ended) {
			c.fail(k, "a %s request continued after the call", x.method)
		}
	}
}

// checkAvailable checks that a response showed the reported status, and that it was true
// then.
func checkAvailable(c *conversation, k *call) {
	ok := k.returned && k.err == nil
	want, id := "available", k.id
	switch {
	case k.op == "Deploy" && ok, k.op == "Use" && k.used:
		id = k.record.ServiceID
	case k.op == "Wait" && ok:
		want = k.want
	case k.op == "WaitUntilAvailable" && ok:
	default:
		return
	}
	if !shownAs(k, id, want) {
		c.fail(k, "the call returned nil, but no read of %s showed %q", id, want)
	}
	if k.probes && !k.probed && k.op != "Wait" {
		c.fail(k, "the call returned nil, but Probe did not succeed")
	}
	if k.record == nil || !same(k.record.ServiceID, id) || !strings.EqualFold(strings.TrimSpace(string(k.record.Status)), want) {
		c.fail(k, "the call returned another record")
	}
}

// checkAll checks the results of WaitUntilAllAvailable: each endpoint is there once, with its true
// status.
func checkAll(c *conversation, k *call) {
	if k.op != "WaitUntilAllAvailable" || !k.returned {
		return
	}
	seen := map[string]bool{}
	for _, s := range k.settled {
		wait, failed := errors.AsType[*svc.WaitError](s.err)
		switch {
		case s.err == nil:
			id := strings.ToLower(s.record.ServiceID)
			if seen[id] || !shownAs(k, id, "available") {
				c.fail(k, "%s was yielded, but no read showed available, or it was yielded before", id)
			}
			seen[id] = true
		case failed:
			if id := strings.ToLower(wait.ID); seen[id] || !has(k.ids, id) {
				c.fail(k, "an error for %s was yielded wrongly", id)
			} else {
				seen[id] = true
			}
		case k.antics.what != "exit":
			c.fail(k, "an error was yielded that names no endpoint: %v", s.err)
		}
	}
	if n := len(k.settled); n < len(k.ids) && n != k.instances {
		c.fail(k, "only %d of %d endpoints were yielded", n, len(k.ids))
	}
}

// shownAs reports whether a read showed the endpoint with this status, and not as
// deleted.
func shownAs(k *call, id, status string) bool {
	return slices.ContainsFunc(k.exchanges, func(x *exchange) bool {
		return x.method == "GET" && same(x.id, id) && x.whole && x.shown != nil && x.shown.status == status && (k.op == "Wait" || !x.shown.deleted)
	})
}

func checkRepeats(c *conversation, k *call) {
	var last *exchange
	for _, x := range k.exchanges {
		if x.method != "POST" {
			continue
		}
		if last != nil && !certain[last.fault] {
			c.fail(k, "the create was sent again after %q", last.fault)
		}
		last = x
	}
}

// knows reports whether the client of a call has created or read the endpoint. A process that took
// the place of a killed one knows nothing of its calls.
func (c *conversation) knows(k *call) bool {
	return slices.ContainsFunc(c.sinceStart(k), func(other *call) bool {
		return other.fresh == k.fresh && slices.ContainsFunc(other.exchanges, func(x *exchange) bool {
			return x.whole && (x.shown != nil && same(x.id, k.id) || x.made != nil && same(x.made.id, k.id))
		})
	})
}

// checkCalm checks that calls to a service without troubles succeed, if ctx leaves enough
// time.
func checkCalm(c *conversation, k *call) {
	if !c.world.calm || k.err == nil && k.returned {
		return
	}
	e := c.world.find(k.id)
	if c.excused(k) {
		return
	}
	was := e == nil || e.at(k.began, false).deleted
	deploy, failed := errors.AsType[*svc.DeployError](k.err)
	brief := k.limit < time.Minute
	switch {
	case brief && failed && (!k.removes || cleanup(deploy) == "deleted"):
		return
	case brief && k.creates() && !failed && (k.op == "Create" || !errors.Is(k.err, svc.ErrOutcomeUnknown)):
		return
	case !k.creates() && was && !c.knows(k) && errors.Is(k.err, svc.ErrNotFound): // the ID may be mistyped
		return
	case k.creates(), k.op == "DeleteAndWait" || k.op == "WaitUntilDeleted" && was:
	case k.op == "Wait", k.op == "WaitUntilDeleted", was: // these calls may fail for good reasons
		return
	case k.op == "WaitUntilAvailable" && errors.Is(k.err, svc.ErrStopped):
		return
	}
	c.fail(k, "the call failed: %v", k.err)
}

// checkRefusals checks that a wait which has read something ends because of a refused token only if
// that token is still refused 10 s later: gateways refuse in JSON too, for a moment.
func checkRefusals(c *conversation, k *call) {
	wait, failed := errors.AsType[*svc.WaitError](k.err)
	if !k.woke.IsZero() {
		return // ctx has ended, and one more poll after it may name its own reason
	}
	if !k.returned || !failed || k.antics.what == "permanent" || errors.Is(wait.Err, svc.ErrNotFound) || !errors.Is(wait.Err, svc.ErrUnauthorized) && !errors.Is(wait.Err, svc.ErrForbidden) {
		return
	}
	contact, cleanup := false, k.ended
	for _, c := range k.cleanups {
		cleanup = k.ended.Add(-c.Elapsed)
	}
	var since, latest, end time.Time // when the refusals began, when the latest one came, and when the wait ended
	for _, x := range k.exchanges {
		if k.creates() && (x.method == "DELETE" || !x.sent.Before(cleanup)) { // the cleanup begins
			break
		}
		switch refused := x.status == 401 || x.status == 403; {
		case refused:
			since, latest = cmp.Or(since, x.sent), x.ended
		case x.whole && x.status/100 == 2:
			contact, since = true, time.Time{}
		case x.status != 404 && x.status != 410 && x.ended.Sub(latest) > 31*time.Second: // other failures came for longer than a refusal is remembered
			since = time.Time{}
		}
		end = x.ended
	}
	if lasted := end.Sub(since); contact && lasted < 10*time.Second {
		c.fail(k, "the wait ended %v after the first refusal: %v", lasted, wait.Err)
	}
}
