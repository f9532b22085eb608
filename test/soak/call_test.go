package soak_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"time"

	"example.com/svc"
)

// call is one call of the program, and its result.
type call struct {
	number    int
	op        string
	id        string   // ID of the endpoint; not used by Create, Deploy and Use, which send request
	ids       []string // IDs for WaitUntilAllAvailable
	request   svc.CreateInferenceServiceRequest
	instances int    // the number that ScaleAndWait asks for; also after how many results WaitUntilAllAvailable is left
	want      string // the status that Wait waits for
	fresh     bool   // a second client makes the call; it does not know the earlier calls
	removes   bool   // a cleanup is wanted, by DeleteOnFailure or OnFailure
	decides   bool   // OnFailure is set, in place of DeleteOnFailure
	tells     bool   // OnCreate is set
	probes    bool   // Probe is set
	began     time.Time
	limit     time.Duration // ctx ends this long after the start
	cancels   bool          // ctx ends by a cancel, not by a deadline
	antics    antics
	key       string        // key of a Deploy in the ledger
	lease     time.Duration // lease of a Deploy; 0: none
	dies      int           // the process is killed at this step; 0: it is not

	mu     sync.Mutex
	counts map[string]int // how often each function of the caller was called

	exchanges []*exchange
	ended     time.Time
	record    *svc.InferenceService
	err       error
	killed    bool          // the process was killed, so nobody knows the results
	cleanups  []svc.WaitEnd // the ends of the cleanups
	settled   []settled     // the results of WaitUntilAllAvailable
	told      []string      // the IDs that OnCreate received
	used      bool          // the function given to Use was called
	probed    bool          // the last call of Probe succeeded
	woke      time.Time     // when the process was continued after it was suspended; zero: it was not
	rotation  int           // how many tokens the token source returned
	tokenless []time.Time   // when the token source failed
	returned  bool
	panicked  any
	exited    bool
}

// settled is one result of WaitUntilAllAvailable.
type settled struct {
	record *svc.InferenceService
	err    error
}

// antics say how the caller's functions misbehave in one call.
type antics struct {
	where string // the function that misbehaves: "OnCreate", "OnPoll", "Probe", "OnFailure", "hook", "token", "use", "until"; empty: none
	what  string // what it does: "error", "permanent", "panic", "exit", "hang", "sleep"
	nth   int    // in which of its calls, from 1
	again bool   // and also in all later calls
}

type mischief struct{ text string }

// count counts a call of a function of the caller, and returns the count.
func (k *call) count(where string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.counts == nil {
		k.counts = map[string]int{}
	}
	k.counts[where]++
	return k.counts[where]
}

// perform misbehaves as the antics say for this call of a function of the caller.
func (k *call) perform(ctx context.Context, where string) error {
	a, nth := k.antics, k.count(where)
	if a.where != where || nth < a.nth || nth > a.nth && !a.again {
		return nil
	}
	switch a.what {
	case "panic":
		panic(mischief{where})
	case "exit":
		runtime.Goexit()
	case "hang":
		<-ctx.Done()
		return ctx.Err()
	case "sleep":
		k.suspend()
		return nil
	case "permanent":
		return permanent(where + " says never")
	}
	return errors.New(where + " says no")
}

func (k *call) creates() bool { return k.op == "Create" || k.op == "Deploy" || k.op == "Use" }

// end returns the time when ctx ends.
func (k *call) end() time.Time { return k.began.Add(k.limit) }

// context returns the ctx of the call.
func (k *call) context() (context.Context, context.CancelFunc) {
	if !k.cancels {
		return context.WithTimeout(context.Background(), k.limit)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if k.limit <= 0 {
		cancel()
		return ctx, cancel
	}
	timer := time.AfterFunc(k.limit, cancel)
	return ctx, func() { timer.Stop(); cancel() }
}

func (k *call) waitOptions(d *rand.Rand) svc.WaitOptions {
	o := svc.WaitOptions{}
	switch d.IntN(4) {
	case 0:
		o.MinInterval, o.MaxInterval = 200*time.Millisecond, 2*time.Second
	case 1:
		o.MinInterval = 5 * time.Second
	}
	if d.IntN(4) == 0 {
		o.NotFoundGrace = 30 * time.Second
	}
	o.OnPoll = func(svc.Poll) { _ = k.perform(context.Background(), "OnPoll") }
	if d.IntN(4) == 0 || k.antics.where == "Probe" {
		k.probes = true
		o.Probe = func(ctx context.Context, _ string) error {
			err := k.perform(ctx, "Probe")
			k.mu.Lock()
			defer k.mu.Unlock()
			k.probed = err == nil
			return err
		}
	}
	return o
}

func (k *call) deployOptions(d *rand.Rand) *svc.DeployOptions {
	o := &svc.DeployOptions{WaitOptions: k.waitOptions(d), DeleteOnFailure: k.removes && !k.decides}
	o.Key, o.Lease = k.key, k.lease
	if k.tells {
		o.OnCreate = func(s *svc.InferenceService) error {
			k.told = append(k.told, s.ServiceID)
			return k.perform(context.Background(), "OnCreate")
		}
	}
	if k.decides {
		setOnFailure(o, func(string) bool { _ = k.perform(context.Background(), "OnFailure"); return k.removes })
	}
	return o
}

// make makes the call in this goroutine.
func (k *call) make(ctx context.Context, s services, c *conversation) {
	d := c.dice
	var o svc.WaitOptions
	if !k.creates() {
		o = k.waitOptions(d)
	}
	switch k.op {
	case "Create":
		k.record, k.err = s.Create(ctx, k.request)
	case "Deploy":
		k.record, k.err = s.Deploy(ctx, k.request, k.deployOptions(d))
	case "Use":
		o := k.deployOptions(d)
		o.DeleteOnFailure = false // Use deletes on every way out
		k.err = s.Use(ctx, k.request, o, func(ctx context.Context, r *svc.InferenceService) error {
			k.used, k.record = true, r
			return k.perform(ctx, "use")
		})
	case "WaitUntilAvailable":
		k.record, k.err = s.WaitUntilAvailable(ctx, k.id, &o)
	case "WaitUntilAllAvailable":
		for r, err := range s.WaitUntilAllAvailable(ctx, k.ids, &o) {
			k.settled = append(k.settled, settled{r, err})
			if len(k.settled) == k.instances { // leave the loop early
				return
			}
		}
	case "WaitUntilDeleted":
		k.err = s.WaitUntilDeleted(ctx, k.id, &o)
	case "Wait":
		k.record, k.err = s.Wait(ctx, k.id, func(r *svc.InferenceService) (bool, error) {
			status := strings.ToLower(strings.TrimSpace(string(r.Status)))
			return status == k.want, k.perform(ctx, "until")
		}, &o)
	case "ScaleAndWait":
		k.record, k.err = s.ScaleAndWait(ctx, k.id, k.instances, &o)
	case "Delete":
		k.err = s.Delete(ctx, k.id)
	case "DeleteAndWait":
		k.err = s.DeleteAndWait(ctx, k.id, &o)
	case "Reap":
		_, k.err = s.Reap(ctx)
	case "Settle":
		k.err = c.settle(ctx, s)
	}
}

// learned returns the IDs that the caller knows after the call.
func (k *call) learned() []string {
	if k.killed {
		return nil
	}
	ids := append([]string(nil), k.told...)
	if k.record != nil {
		ids = append(ids, k.record.ServiceID)
	}
	for _, err := range []error{k.err} {
		if e, ok := errors.AsType[*svc.DeployError](err); ok {
			ids = append(ids, e.ServiceID)
		}
		if e, ok := errors.AsType[*svc.OutcomeUnknownError](err); ok && e.ID != "" {
			ids = append(ids, e.ID)
		}
	}
	return ids
}

// outcome describes the result in one or two words, for the statistics.
func (k *call) outcome() string {
	switch deploy, ok := errors.AsType[*svc.DeployError](k.err); {
	case k.panicked != nil:
		return "panic"
	case k.exited:
		return "goroutine ended"
	case k.err == nil:
		return "nil"
	case ok:
		word := cleanup(deploy)
		if word == "" {
			word = "none"
		}
		return "DeployError, cleanup " + word
	case errors.Is(k.err, svc.ErrOutcomeUnknown):
		return "outcome unknown"
	case errors.Is(k.err, context.Canceled), errors.Is(k.err, context.DeadlineExceeded):
		return "ctx ended"
	case errors.Is(k.err, svc.ErrNotFound):
		return "not found"
	}
	text := fmt.Sprintf("%T", k.err)
	if wait, ok := errors.AsType[*svc.WaitError](k.err); ok {
		text += fmt.Sprintf(", %T", wait.Err)
	}
	return text
}
