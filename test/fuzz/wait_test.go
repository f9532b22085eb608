package fuzz_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
	"example.com/svc/svctest"
)

// FuzzWaitModel tells a story with every input: a service with its troubles, and
// one wait or deployment. However it goes, what is said of it must be true, and
// nothing may go on afterwards.
func FuzzWaitModel(f *testing.F) {
	for op := range byte(len(wtOperations)) {
		for kind := range byte(wtFaultKinds) {
			for method := range byte(4) {
				f.Add([]byte{op, 0, 0, 1, method, 2, kind})                       // one kind of trouble
				f.Add([]byte{op, 3, 0, 2, method, 1, kind, 0, 0, 1, 9, 1, 2, 2})  // and cancelled
				f.Add([]byte{op, 0, 1, 2, method, 3, kind, 1, 3, 3, 1, 1, 3, 28}) // and slow to show up
			}
			for gone := range byte(5) { // cancelled and cleaned up: looks after the delete that fail
				f.Add([]byte{4, 3, 0, 0, 3, 0, 0, 0, 0, 0, 0, gone, 0, 0, 2, 0, kind, 7, kind})
			}
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		story := make([]byte, 40)
		for i := range story {
			story[i] = byte(rng.Uint32())
		}
		f.Add(story)
	}
	f.Fuzz(func(t *testing.T, story []byte) {
		synctest.Test(t, func(t *testing.T) {
			tr := newTrial(t, story[:min(len(story), 64)])
			tr.operate(tr)
			tr.nothingGoesOn()
		})
	})
}

// wtTrial is one story.
type wtTrial struct {
	*testing.T
	dice     wtDice
	operate  func(*wtTrial)
	srv      *svctest.Server
	services *svc.InferenceServiceClient
	script   []string // the statuses that the endpoint shows; empty: the clock decides
	ctx      context.Context
	start    time.Time
	end      time.Time // of ctx
	opts     *svc.WaitOptions

	mu    sync.Mutex // WaitAll tells of polls while its loop runs
	polls []svc.Poll
}

var wtOperations = []func(*wtTrial){
	(*wtTrial).waitUntilAvailable, (*wtTrial).scaleAndWait, (*wtTrial).waitUntilDeleted,
	func(tr *wtTrial) { tr.deploy(false) }, func(tr *wtTrial) { tr.deploy(true) }, (*wtTrial).waitAll,
}

func newTrial(t *testing.T, story []byte) *wtTrial {
	tr := &wtTrial{T: t, dice: story, start: time.Now()}
	d := &tr.dice
	tr.operate = wtPick(d, wtOperations...)
	cancel := wtPick(d, time.Hour, 0, 50*time.Millisecond, 3*time.Second, 20*time.Second, 2*time.Minute)
	deadline := wtPick(d, 10*time.Minute, time.Minute, 10*time.Second, 100*time.Millisecond)
	var faults [4][]svctest.Fault
	for range d.roll(6) {
		method := d.roll(len(faults))
		fault := d.fault()
		if method == 2 && fault.Body != "" && fault.Status == 0 { // would say "deleted" where the service says "not found"
			fault = svctest.Fault{}
		}
		faults[method] = append(faults[method], fault)
	}
	seconds := func(choices ...int) time.Duration { return time.Duration(wtPick(d, choices...)) * time.Second }
	setup := []svctest.Option{
		svctest.WithDeployTime(seconds(1, 0, 30, 400)), svctest.WithCreateVisibilityDelay(seconds(0, 3, 15, 28)),
		svctest.WithStaleReads(seconds(0, 5, 40)), svctest.WithRecordLimit(0, 0),
	}
	for range d.roll(5) {
		tr.script = append(tr.script, wtPick(d, "initializing", "available", "unavailable", "stopped", "scaling"))
	}
	tr.opts = wtPick(d, &svc.WaitOptions{}, &svc.WaitOptions{MinInterval: time.Second, MaxInterval: 5 * time.Second}, testkit.Every(time.Hour))
	tr.opts.OnPoll = func(p svc.Poll) {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		tr.polls = append(tr.polls, p)
	}
	trouble := d.roll(4) // of the probe, how often
	if hangs := d.roll(2) == 1; trouble > 0 {
		var asked atomic.Int64
		tr.opts.Probe = func(ctx context.Context, _ string) error {
			if asked.Add(1) >= int64(trouble) {
				return nil
			}
			if hangs {
				<-ctx.Done()
			}
			return errors.New("no answer yet")
		}
	}
	setup = append(setup, svctest.WithDeleteTime(seconds(0, 2, 12, 29, 600)))
	tr.srv = svctest.NewInMemory(append(setup, svctest.WithStatusPath(tr.script...))...)
	for method, queue := range faults {
		tr.srv.Fault([]string{"GET", "POST", "DELETE", "PUT"}[method],
			[]string{svctest.RouteEndpoint, svctest.RouteEndpoints, svctest.RouteEndpoint, svctest.RouteEndpoint}[method], queue...)
	}
	tr.services = tr.srv.Client().InferenceServices

	tr.end = tr.start.Add(min(cancel, deadline))
	ctx, stop := context.WithTimeout(t.Context(), deadline)
	timer := time.AfterFunc(cancel, stop)
	t.Cleanup(func() { timer.Stop(); stop() })
	tr.ctx = ctx
	return tr
}

func (tr *wtTrial) waitUntilAvailable() {
	id := tr.existing(1 + tr.dice.roll(2))
	service, err := tr.services.WaitUntilAvailable(tr.ctx, id, tr.opts)
	tr.endsInTime(0)
	tr.judge(id, service, err, svc.InferenceServiceStatusAvailable)
}

func (tr *wtTrial) scaleAndWait() {
	id, to := tr.existing(tr.dice.roll(3)), tr.dice.roll(4)
	service, err := tr.services.ScaleAndWait(tr.ctx, id, to, tr.opts)
	tr.endsInTime(0)
	if err != nil && !errors.As(err, new(*svc.WaitError)) { // the change itself failed
		require.Empty(tr, tr.polls)
		return
	}
	status := svc.InferenceServiceStatusAvailable
	if err == nil {
		require.EqualValues(tr, to, service.ResourceMetadata.TargetInstanceNumber)
		require.Equal(tr, to, tr.truth(id).Instances)
		if to == 0 && service.Status == svc.InferenceServiceStatusStopped {
			status = service.Status
		}
	}
	tr.judge(id, service, err, status)
}

func (tr *wtTrial) waitUntilDeleted() {
	id := tr.existing(1)
	other := tr.srv.Client().InferenceServices
	later := time.AfterFunc(wtPick(&tr.dice, 0, 5*time.Second, time.Minute, time.Hour), func() {
		_ = other.Delete(context.Background(), id)
	})
	defer later.Stop()
	err := tr.services.WaitUntilDeleted(tr.ctx, id, tr.opts)
	tr.endsInTime(0)
	if err == nil {
		require.True(tr, tr.truth(id).Deleted, "it still exists")
		return
	}
	tr.judge(id, testkit.ErrorAs[*svc.WaitError](tr, err).Last, err, "")
}

func (tr *wtTrial) waitAll() {
	ids := []string{tr.existing(1), tr.existing(2), tr.existing(3)}
	leave := tr.dice.roll(4) // after so many
	seen := map[string]bool{}
	for service, err := range tr.services.WaitAll(tr.ctx, ids, tr.opts) {
		id := ""
		if err != nil {
			id = testkit.ErrorAs[*svc.WaitError](tr, err).ID
		} else {
			id = service.ServiceID
		}
		require.Contains(tr, ids, id)
		require.False(tr, seen[id], "it is settled already")
		seen[id] = true
		tr.judge(id, service, err, svc.InferenceServiceStatusAvailable)
		if len(seen) == leave {
			break
		}
	}
	tr.endsInTime(0)
	if leave == 0 {
		require.Len(tr, seen, len(ids))
	}
}

func (tr *wtTrial) deploy(clean bool) {
	opts := &svc.DeployOptions{WaitOptions: *tr.opts, DeleteOnFailure: clean}
	full, told, asked := errors.New("disk full"), "", "" // what the functions of the caller do and hear
	unwritten, decides := tr.dice.roll(5) == 1, tr.dice.roll(3) == 1
	looks := make([]svctest.Fault, tr.dice.roll(4)) // what happens to those of the clean-up
	for i := range looks {
		looks[i] = tr.dice.fault()
	}
	opts.OnCreate = func(s *svc.InferenceService) error {
		told = s.ServiceID
		if unwritten {
			return full
		}
		return nil
	}
	if decides {
		opts.DeleteOnFailure = !clean
		opts.OnFailure = func(err *svc.DeployError) bool {
			asked = err.ServiceID
			tr.srv.Fault("GET", svctest.RouteEndpoint, looks...)
			return clean
		}
	}
	service, err := tr.services.Deploy(tr.ctx, testkit.Demo, opts)
	late := 10 * time.Second // for the create's answer
	if clean {
		late += 30 * time.Second // for the clean-up
	}
	tr.endsInTime(late)
	created := tr.srv.Endpoints()
	require.LessOrEqual(tr, len(created), 1, "created twice")
	if err == nil {
		require.Len(tr, created, 1)
		require.False(tr, unwritten)
		require.Equal(tr, created[0].ID, told)
		require.False(tr, created[0].Deleted)
		tr.judge(created[0].ID, service, nil, svc.InferenceServiceStatusAvailable)
		return
	}
	var failure *svc.DeployError
	if !errors.As(err, &failure) {
		require.Nil(tr, service)
		require.Empty(tr, told+asked)
		require.Zero(tr, tr.srv.RequestCount("DELETE", svctest.RouteAny))
		if len(created) == 1 {
			require.ErrorIs(tr, err, svc.ErrOutcomeUnknown)
			require.ErrorContains(tr, err, `"demo"`)
		}
		return
	}
	require.Len(tr, created, 1, "of nothing there is nothing to say")
	id := created[0].ID
	require.Equal(tr, id, failure.ServiceID)
	require.Equal(tr, id, told)
	require.Equal(tr, decides, asked == id)
	require.ErrorContains(tr, err, id)
	if service != nil {
		require.Equal(tr, id, service.ServiceID)
	}
	if failure.Cleanup == svc.CleanupDeleted {
		require.True(tr, created[0].Deleted, "said to be gone, and billed")
		require.Zero(tr, tr.srv.RunningInstances())
	}
	deleted := failure.Cleanup == svc.CleanupDeleted
	require.Equal(tr, deleted, strings.Contains(err.Error(), "was deleted"))
	require.Equal(tr, !deleted, strings.Contains(err.Error(), "may still be running and billed"))
	require.Equal(tr, !deleted, strings.Contains(err.Error(), "call DeleteAndWait"))
	require.Equal(tr, clean && !deleted, failure.CleanupErr != nil)
	if !clean {
		require.False(tr, created[0].Deleted)
		require.Zero(tr, tr.srv.RequestCount("DELETE", svctest.RouteAny))
	}
	switch {
	case errors.Is(failure.Err, svc.ErrOutcomeUnknown), errors.Is(failure.Err, full):
		require.Empty(tr, tr.polls, "there is nothing to wait for")
	default:
		tr.judge(id, service, failure.Err, "")
	}
}

// existing adds an endpoint that is being deployed.
func (tr *wtTrial) existing(instances int) string {
	id := tr.srv.AddEndpoint(svctest.Endpoint{Instances: instances})
	tr.srv.ScriptStatus(id, tr.script...)
	return id
}

func (tr *wtTrial) truth(id string) svctest.Endpoint {
	e, ok := tr.srv.Endpoint(id)
	require.True(tr, ok)
	return e
}

func (tr *wtTrial) endsInTime(late time.Duration) {
	require.LessOrEqual(tr, time.Since(tr.end), late, "it outlives its context")
}

// judge holds what a wait says against what it saw and what is true.
func (tr *wtTrial) judge(id string, service *svc.InferenceService, err error, want svc.InferenceServiceStatus) {
	if err == nil {
		require.Equal(tr, id, service.ServiceID)
		require.Equal(tr, want, service.Status)
		if len(tr.script) > 0 {
			require.Contains(tr, tr.script, string(want), "the service never said so")
		} else {
			require.Equal(tr, string(want), tr.truth(id).Status)
		}
		return
	}
	e := testkit.ErrorAs[*svc.WaitError](tr, err)
	tr.mu.Lock()
	polls := slices.DeleteFunc(slices.Clone(tr.polls), func(p svc.Poll) bool { return p.ID != id })
	tr.mu.Unlock()
	require.Equal(tr, id, e.ID)
	require.Len(tr, polls, e.Polls)
	require.ErrorContains(tr, err, id)
	require.NotContains(tr, fmt.Sprintf("%v %+v", err, err), tr.srv.Token())
	require.Equal(tr, e.Last == nil, len(e.History) == 0)
	if e.Last != nil {
		require.Equal(tr, string(e.Last.Status), e.History[len(e.History)-1].Status)
		require.Same(tr, service, e.Last)
	}
	var answer *svc.Error
	switch {
	case errors.Is(e.Err, context.Canceled):
		require.ErrorIs(tr, tr.ctx.Err(), context.Canceled)
	case errors.Is(e.Err, context.DeadlineExceeded):
		require.ErrorIs(tr, tr.ctx.Err(), context.DeadlineExceeded)
	case errors.Is(e.Err, svc.ErrUnavailable):
		require.Equal(tr, svc.InferenceServiceStatusUnavailable, e.Last.Status)
		require.NotErrorIs(tr, err, svc.ErrStopped)
	case errors.Is(e.Err, svc.ErrStopped):
		require.Equal(tr, svc.InferenceServiceStatusStopped, e.Last.Status)
		require.NotErrorIs(tr, err, svc.ErrUnavailable)
	case wtJunk(e.Err):
		junk := 0
		for _, p := range polls {
			if wtJunk(p.Err) {
				junk++
			}
		}
		require.Greater(tr, junk, 5, "a few odd answers are no reason")
	case errors.As(e.Err, &answer):
		require.Contains(tr, []int{401, 403, 400, 404, 409, 302}, answer.StatusCode, "this would have passed")
	default:
		tr.Errorf("no reason to end a wait: %v", err)
	}
	if tr.ctx.Err() == nil { // the end of something else must not look like the end of ctx
		require.NotErrorIs(tr, err, context.Canceled)
		require.NotErrorIs(tr, err, context.DeadlineExceeded)
	}
}

// wtJunk reports whether a look was answered by something that is not the service.
func wtJunk(err error) bool {
	var answer *svc.Error
	return errors.As(err, new(*svc.DecodeError)) ||
		errors.As(err, &answer) && errors.Is(err, svc.ErrNotFound) && strings.HasPrefix(string(answer.Body), "<")
}

// nothingGoesOn makes sure that what has returned is over.
func (tr *wtTrial) nothingGoesOn() {
	time.Sleep(10 * time.Minute) // what other people had under way may end
	before := tr.srv.RequestCount("*", svctest.RouteAny)
	endpoints := len(tr.srv.Endpoints())
	time.Sleep(2 * time.Hour)
	require.Equal(tr, before, tr.srv.RequestCount("*", svctest.RouteAny))
	require.Len(tr, tr.srv.Endpoints(), endpoints)
}
