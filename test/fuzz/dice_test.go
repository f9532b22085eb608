package fuzz_test

import (
	"time"

	"example.com/svc/svctest"
)

// wtDice turns the bytes of the fuzzer into decisions. When they run out, all
// that follow are the first choice.
type wtDice []byte

func (d *wtDice) roll(n int) int {
	if len(*d) == 0 {
		return 0
	}
	b := (*d)[0]
	*d = (*d)[1:]
	return int(b) % n
}

func wtPick[T any](d *wtDice, choices ...T) T { return choices[d.roll(len(choices))] }

const wtFaultKinds = 15

// fault is something that happens to a request. None lies about an endpoint:
// there is no made-up "not found" but a proxy's, and no record but the true one.
func (d *wtDice) fault() svctest.Fault {
	f := svctest.Fault{Times: 1 + d.roll(8)}
	switch d.roll(wtFaultKinds) {
	case 1:
		f.Status, f.Body = 503, `{"message":"busy"}`
	case 2:
		f.Status, f.AfterEffect, f.Body = 502, true, "<html>Bad Gateway</html>"
	case 3:
		f.Status, f.RetryAfter = 429, wtPick(d, "", "1", "20", "3600")
	case 4:
		f.DropBefore = true
	case 5:
		f.DropAfter = true
	case 6:
		f.TruncateBody = true
	case 7:
		f.TruncateAfter = int64(d.roll(60)) - 1
	case 8:
		f.Body, f.AfterEffect = wtPick(d, "<html>please log in</html>", "null", `{"service_id":""}`, `[]`, "{"), true
	case 9:
		f.Delay = wtPick(d, 200*time.Millisecond, 5*time.Second, 12*time.Second, 40*time.Second)
	case 10:
		f.Status, f.Delay, f.Body = 500, wtPick(d, time.Second, 9*time.Second), `{"id":"err-1","job_id":"svc-2","message":"oops"}`
	case 11:
		f.DropAfter, f.Delay = true, wtPick(d, time.Second, 9*time.Second)
	case 12:
		f.Status, f.Times = wtPick(d, 401, 403, 400, 409, 302), 1
	case 13:
		f.Status, f.AfterEffect, f.Delay = 504, true, wtPick(d, time.Second, 25*time.Second)
	case 14:
		f.Status, f.Body = wtPick(d, 404, 410), "<html>404 page not found</html>"
	}
	return f
}
