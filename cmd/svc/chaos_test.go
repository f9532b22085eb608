package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"example.com/svc/svctest"
)

var (
	failures = flag.Int("failures", 30, "TestRandomFailures: number of failures to cause")
	seed     = flag.Uint64("seed", 1, "TestRandomFailures: seed of the first story")
)

// story is a few commands on one service and one ledger. Faults, signals and kills are random.
type story struct {
	*session
	rnd  *rand.Rand
	seed uint64
	log  []string
	free int // number of deployments without a key
}

// tally counts how the commands ended.
type tally struct {
	failures atomic.Int64
	mu       sync.Mutex
	ends     map[string]int
}

// TestRandomFailures compares the exit code and may_be_running of many commands that fail with what
// the service really runs, and the ledger as well. A story can be repeated with -seed.
func TestRandomFailures(t *testing.T) {
	t.Parallel()
	sum := &tally{ends: map[string]int{}}
	var next atomic.Uint64
	next.Store(*seed)
	var all sync.WaitGroup
	for range 12 {
		all.Go(func() {
			for sum.failures.Load() < int64(*failures) && !t.Failed() {
				newStory(t, next.Add(1)-1).tell(sum)
			}
		})
	}
	all.Wait()
	t.Logf("%d failures in %d stories: %v", sum.failures.Load(), next.Load()-*seed, sum.ends)
}

func newStory(t *testing.T, seed uint64) *story {
	rnd := rand.New(rand.NewPCG(seed, 0))
	opts := []svctest.Option{
		svctest.WithDeployTime(pick(rnd, 0, 300*time.Millisecond, time.Second, time.Hour)),
		svctest.WithDeleteTime(pick(rnd, 0, 0, time.Second)),
	}
	if rnd.IntN(5) == 0 {
		opts = append(opts, svctest.WithStatusPath("initializing", "unavailable"))
	}
	return &story{session: newSession(t, opts...), rnd: rnd, seed: seed}
}

func pick[T any](rnd *rand.Rand, from ...T) T { return from[rnd.IntN(len(from))] }

// tell runs the commands of the story.
func (s *story) tell(sum *tally) {
	for range 1 + s.rnd.IntN(4) {
		args, name := s.choose()
		s.breakSomething()
		before := s.created(name)
		e := s.disturb(args)
		s.srv.ClearFaults()
		time.Sleep(50 * time.Millisecond) // a request that was on its way may still take effect
		s.log = append(s.log, fmt.Sprintf("svc %s: %d", strings.Join(args, " "), e.code))
		if e.code != exitOK {
			sum.failures.Add(1)
		}
		sum.mu.Lock()
		sum.ends[fmt.Sprint(args[0], " ", e.code)]++
		sum.mu.Unlock()
		if wrong := cmp.Or(s.judge(e, args, name, before), s.judgeLedger()); wrong != "" {
			s.t.Errorf("seed %d: %s\n%s\n%s%s", s.seed, wrong, strings.Join(s.log, "\n"), e.stdout, e.stderr)
			return
		}
	}
	s.srv.Close()
}

// choose returns a random command, and the name of the endpoints that it is about; empty: all.
func (s *story) choose() (args []string, name string) {
	limit := pick(s.rnd, "1s", "3s", "8s")
	switch n := s.rnd.IntN(10); {
	case n < 4 || n < 6 && len(s.srv.Endpoints()) == 0:
		args, name = []string{"deploy", "--key", "keyed", "--name", "keyed"}, "keyed"
	case n < 6:
		return []string{"delete", "--key", "keyed", "--timeout", limit, "-o", "json"}, "keyed"
	case n == 6:
		return []string{"scale", "--key", "keyed", pick(s.rnd, "0", "1", "2"), "--timeout", limit, "-o", "json"}, "keyed"
	case n == 7:
		return []string{"sweep", "--timeout", limit, "-o", "json"}, ""
	case n == 8:
		s.free++
		name = fmt.Sprint("run-", s.free)
		return []string{"run", "--name", name, "--image", "x", "--timeout", limit, "--", "sh", "-c", pick(s.rnd, "true", "exit 3", "sleep 0.5")}, name
	default:
		s.free++
		name = fmt.Sprint("free-", s.free)
		args = []string{"deploy", "--name", name}
	}
	args = append(args, "--image", "x", "--timeout", limit, "-o", "json")
	for _, more := range []string{"--keep", "--wait=false", "--lease=1s", "--flavor=flavor-1"} {
		if s.rnd.IntN(4) == 0 {
			args = append(args, more)
		}
	}
	return args, name
}

// breakSomething queues faults.
func (s *story) breakSomething() {
	routes := []struct{ method, route string }{
		{"POST", svctest.RouteEndpoints}, {"POST", svctest.RouteEndpoints}, {"GET", svctest.RouteEndpoint},
		{"DELETE", svctest.RouteEndpoint}, {"PUT", svctest.RouteEndpoint}, {"GET", svctest.RouteFlavors},
	}
	for range s.rnd.IntN(4) {
		at := pick(s.rnd, routes...)
		fault := pick(s.rnd,
			svctest.DropBeforeEffect(), svctest.DropAfterEffect(), svctest.GatewayErrorAfterEffect(), svctest.EmptyAfterEffect(200),
			svctest.Slow(700*time.Millisecond), svctest.Fault{TruncateBody: true}, svctest.ServiceUnavailable(2), svctest.RateLimited("1"),
			svctest.ProxyPage(404), svctest.ProxyPage(200), svctest.Fault{Status: 404, Body: `{"message":"not found"}`}, svctest.Fault{Status: 401},
			svctest.Fault{Status: 409}, svctest.Fault{Status: 400}, svctest.AcceptedWithoutEffect(), svctest.Fault{AfterEffect: true, Delay: 600 * time.Millisecond},
		)
		s.srv.Fault(at.method, at.route, fault)
	}
}

// disturb runs a command, and perhaps sends signals to it.
func (s *story) disturb(args []string) ended {
	ctx, cancel := context.WithTimeout(s.t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir, cmd.Env = s.env["HOME"], s.command().Env
	var stdout, stderr buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		s.t.Error(err)
		return ended{}
	}
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(done)
	}()
	after := time.Duration(s.rnd.IntN(1500)) * time.Millisecond
	var signals []syscall.Signal
	switch s.rnd.IntN(6) {
	case 0:
		signals = []syscall.Signal{syscall.SIGTERM}
	case 1:
		signals = []syscall.Signal{syscall.SIGINT, syscall.SIGINT}
	case 2:
		signals = []syscall.Signal{syscall.SIGKILL}
	case 3:
		signals = []syscall.Signal{syscall.SIGQUIT}
	}
	for _, sig := range signals {
		select {
		case <-done:
		case <-time.After(after):
			_ = cmd.Process.Signal(sig)
			s.log = append(s.log, fmt.Sprintf("%v after %v", sig, after))
		}
		after = 2200 * time.Millisecond
	}
	<-done
	if ctx.Err() != nil {
		s.t.Errorf("seed %d: svc %s hangs", s.seed, strings.Join(args, " "))
	}
	e := ended{args: args, code: cmd.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String()}
	if e.code == 2 && strings.HasPrefix(e.stderr, "SIGQUIT: quit\n") { // it came before the program handles signals
		e.code, e.stderr = -1, ""
	}
	return e
}

// created counts the endpoints with this name that were ever created.
func (s *story) created(name string) (n int) {
	for _, e := range s.srv.Endpoints() {
		if e.Name == name {
			n++
		}
	}
	return n
}

// running lists the IDs of the endpoints with this name that are billed.
func (s *story) running(name string) (ids []string) {
	for _, e := range s.srv.Endpoints() {
		if (name == "" || e.Name == name) && e.Billed {
			ids = append(ids, e.ID)
		}
	}
	return ids
}

// judge compares the end of a command with the truth.
func (s *story) judge(e ended, args []string, name string, before int) string {
	running := s.running(name)
	if n := s.created(name) - before; n > 1 || name == "keyed" && len(running) > 1 {
		return fmt.Sprintf("%d endpoints were created, and %v are running", n, running)
	}
	if goName := goNames.FindString(e.stdout + e.stderr); goName != "" || strings.Contains(e.stdout+e.stderr, s.srv.Token()) {
		return "a name of Go or the token is shown: " + goName
	}
	mayRun := e.code == exitRunning || e.code == exitUnknown || e.code == exitLedger || e.code < 0 || e.code == exitOK && args[0] != "delete" && args[0] != "run"
	notKnown := e.code == exitNotFound && args[0] != "run" // a "not found" proves nothing: the document tells
	if len(running) > 0 && !mayRun && !notKnown {
		return fmt.Sprintf("code %d says that nothing is running, but %v are", e.code, running)
	}
	if e.code < 0 || args[0] == "run" {
		return ""
	}
	var doc struct {
		MayBeRunning bool   `json:"may_be_running"`
		ServiceID    string `json:"service_id"`
		Created      bool   `json:"created"`
	}
	if err := json.Unmarshal([]byte(e.stdout), &doc); err != nil {
		return "no document: " + err.Error()
	}
	if len(running) > 0 && !doc.MayBeRunning {
		return fmt.Sprintf("may_be_running is false, but %v are", running)
	}
	if e.code == exitOK && args[0] == "deploy" && doc.Created && (len(running) != 1 || running[0] != doc.ServiceID) {
		return fmt.Sprintf("the deployment of %s succeeded, and %v are running", doc.ServiceID, running)
	}
	if !mayRun && doc.MayBeRunning && !notKnown && e.code != exitUsage {
		return fmt.Sprintf("code %d, and may_be_running", e.code)
	}
	return ""
}

// judgeLedger checks that the ledger knows each endpoint that runs, by its ID or as a doubt.
func (s *story) judgeLedger() string {
	e := s.run("ls", "-o", "json")
	var doc struct {
		Entries []struct {
			Name      string `json:"name"`
			ServiceID string `json:"service_id"`
		}
	}
	if err := json.Unmarshal([]byte(e.stdout), &doc); err != nil {
		return "svc ls: " + err.Error()
	}
	known := map[string]bool{}
	for _, entry := range doc.Entries {
		known[entry.ServiceID] = true
		known["name "+entry.Name] = known["name "+entry.Name] || entry.ServiceID == ""
	}
	for _, endpoint := range s.srv.Endpoints() {
		if endpoint.Billed && !known[endpoint.ID] && !known["name "+endpoint.Name] {
			return endpoint.ID + " is running, and the ledger does not know it: " + e.stdout
		}
	}
	return ""
}
