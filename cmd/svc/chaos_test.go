package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"example.com/svc/ledger"
	"example.com/svc/svctest"
)

var (
	failures = flag.Int("failures", 20, "TestRandomFailures: number of failures to cause")
	seed     = flag.Uint64("seed", 1, "TestRandomFailures: seed of the first story")
	stories  = flag.Int("stories", 6, "TestRandomFailures: number of stories at a time")
)

// story is a few commands on one service and one ledger. Faults, signals and kills are random.
type story struct {
	*session
	rnd   *rand.Rand
	seed  uint64
	log   []string
	free  int      // number of deployments without a key
	fails bool     // the endpoints become unavailable
	next  []string // a command that the latest one has advised; nil if there is none
}

// act is one command of a story, or one of two that run at the same time.
type act struct {
	args    []string
	name    string // of the endpoints that it is about, or the ID; empty: all
	advised bool   // another command has advised it
}

// tally counts how the commands ended.
type tally struct {
	failures atomic.Int64
	wrong    atomic.Int64 // stories in which something was not true
	mu       sync.Mutex
	ends     map[string]int
}

// TestRandomFailures compares the exit codes, the documents and the sentences of many commands that fail with what
// the service really runs, and the ledger as well. A story can be repeated with -seed.
func TestRandomFailures(t *testing.T) {
	t.Parallel()
	sum := &tally{ends: map[string]int{}}
	var next atomic.Uint64
	next.Store(*seed)
	var all sync.WaitGroup
	for range *stories {
		all.Go(func() {
			for sum.failures.Load() < int64(*failures) && sum.wrong.Load() < 5 {
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
		svctest.WithDeleteTime(pick(rnd, 0, 0, time.Second, time.Second, time.Hour)),
		svctest.WithRecordLimit(10_000, 0),
	}
	fails := rnd.IntN(5) == 0
	if fails {
		opts = append(opts, svctest.WithStatusPath("initializing", "unavailable"))
	}
	s := &story{session: newSession(t, opts...), rnd: rnd, seed: seed, fails: fails}
	delete(s.env, "GOMAXPROCS")
	return s
}

func pick[T any](rnd *rand.Rand, from ...T) T { return from[rnd.IntN(len(from))] }

// tell runs the commands of the story.
func (s *story) tell(sum *tally) {
	defer s.srv.Close()
	for range 1 + s.rnd.IntN(6) {
		steps := []act{s.choose()}
		if !steps[0].advised && s.rnd.IntN(4) == 0 {
			steps = append(steps, s.choose())
		}
		s.breakSomething()
		before := s.look()
		ends := s.perform(steps)
		s.srv.ClearFaults()
		time.Sleep(50 * time.Millisecond) // a request that was on its way may still take effect
		after, wrong := s.look(), ""
		for i, e := range ends {
			s.log = append(s.log, fmt.Sprintf("svc %s: %d", strings.Join(e.args, " "), e.code))
			sum.count(e)
			wrong = cmp.Or(wrong, claim{s, steps[i], e, before, after, len(steps) == 1}.wrong())
		}
		if wrong = cmp.Or(wrong, s.judgeDeletes(steps, before, after), s.judgeLedger(after)); wrong != "" {
			for _, e := range ends {
				s.log = append(s.log, e.stdout, e.stderr)
			}
			s.t.Errorf("seed %d: %s\n%s", s.seed, wrong, strings.Join(s.log, "\n"))
			sum.wrong.Add(1)
			return
		}
		if s.next = nil; len(ends) == 1 {
			s.heed(ends[0], after)
		}
	}
}

func (sum *tally) count(e ended) {
	if e.code != exitOK {
		sum.failures.Add(1)
	}
	sum.mu.Lock()
	defer sum.mu.Unlock()
	sum.ends[fmt.Sprint(e.args[0], " ", e.code)]++
}

// unheeded matches the advised commands that a story does not run: forget takes minutes, and some lack arguments.
var unheeded = regexp.MustCompile(`^(\S+|(forget|ledger) .*|.* --help)$`)

// anotherTarget matches an ID, and the key of an endpoint that was made without one.
var anotherTarget = regexp.MustCompile(`^(svc-\d+|[a-z2-7]{26})$`)

// heed notes one of the commands that a command has advised, for the next act.
func (s *story) heed(e ended, m moment) {
	lines := slices.DeleteFunc(e.commands(), unheeded.MatchString)
	if _, err := os.Stat(e.ledger); err != nil || len(lines) == 0 || s.rnd.IntN(2) == 0 { // an interrupted command may not know that there is no ledger
		return
	}
	words := strings.Fields(pick(s.rnd, lines...))
	for i, word := range words {
		if word == "svc-1" && words[0] == "adopt" { // it stands for the one that a user has found
			words[i] = m.marked("keyed")
		}
		if word == "chat" {
			words[i] = "keyed"
		}
	}
	if words[0] == "deploy" || slices.Contains(words, "") || slices.Contains(words, "--ledger") {
		return
	}
	s.next = words
}

// choose returns a random command.
func (s *story) choose() act {
	limit := pick(s.rnd, "1s", "3s", "8s")
	ends := []string{"--timeout", limit, "-o", "json"}
	if words := s.next; words != nil {
		s.next = nil
		name := "keyed"
		if i := slices.IndexFunc(words, anotherTarget.MatchString); i >= 0 {
			name = words[i]
		}
		return act{append(words, ends...), name, true}
	}
	deploy := []string{"deploy", "--key", "keyed", "--name", "keyed", "--image", "x"}
	commands := [][]string{
		{"delete", "--key", "keyed"}, {"delete", "--key", "keyed", "--missing-ok"}, {"delete", s.anyID()},
		{"scale", "--key", "keyed", pick(s.rnd, "0", "1", "2", "3")}, {"scale", s.anyID(), pick(s.rnd, "1", "2")},
		{"sweep"}, {"sweep"}, {"sweep", "--dry-run"}, {"extend", "keyed", pick(s.rnd, "1s", "1h", "0")},
		{"get", "--key", "keyed"}, {"wait", "--key", "keyed"}, {"url", "--key", "keyed"}, {"ls"}, {"ls", "--all"}, {"doctor"},
		{"adopt", "keyed", s.anyID()}, {"adopt", "keyed", "--undo"}, with(deploy, "--replace"), with(deploy, "--dry-run"),
	}
	switch n := s.rnd.IntN(20); {
	case n < 5 || n < 19 && len(s.srv.Endpoints()) == 0:
		return act{append(s.vary(deploy), ends...), "keyed", false}
	case n < 6:
		s.free++
		name := fmt.Sprint("run-", s.free)
		args := []string{"run", "--name", name, "--image", "x", "--timeout", limit, pick(s.rnd, "--lease=1s", "--keep=false"), "--", "sh", "-c", pick(s.rnd, "true", "exit 3", "sleep 0.5", "sleep 2")}
		return act{slices.DeleteFunc(args, func(arg string) bool { return arg == "--keep=false" }), name, false}
	case n < 7:
		s.free++
		name := fmt.Sprint("free-", s.free)
		return act{append(s.vary([]string{"deploy", "--name", name, "--image", "x"}), ends...), name, false}
	}
	args := pick(s.rnd, commands...)
	name := "keyed"
	if args[0] == "sweep" || args[0] == "ls" || args[0] == "doctor" {
		name = ""
	} else if strings.HasPrefix(args[1], "svc-") {
		name = args[1]
	}
	return act{append(slices.Clone(args), ends...), name, false}
}

// anyID is the ID of an endpoint, or of none.
func (s *story) anyID() string {
	var ids []string
	for _, e := range s.srv.Endpoints() {
		ids = append(ids, e.ID)
	}
	return pick(s.rnd, append(ids, "svc-99")...)
}

// vary adds flags to a deployment.
func (s *story) vary(args []string) []string {
	for _, more := range []string{"--keep", "--wait=false", "--lease=1s", "--lease=1h", "--flavor=flavor-1", "--instances=2"} {
		if s.rnd.IntN(5) == 0 {
			args = with(args, more)
		}
	}
	return args
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

// perform runs the commands at the same time.
func (s *story) perform(steps []act) []ended {
	ends := make([]ended, len(steps))
	var all sync.WaitGroup
	for i, st := range steps {
		signals := pick(s.rnd, nil, nil, []syscall.Signal{syscall.SIGTERM}, []syscall.Signal{syscall.SIGINT, syscall.SIGINT}, []syscall.Signal{syscall.SIGKILL}, []syscall.Signal{syscall.SIGQUIT})
		if st.advised {
			signals = nil
		}
		after := time.Duration(s.rnd.IntN(1500)) * time.Millisecond
		if len(signals) > 0 {
			s.log = append(s.log, fmt.Sprintf("%v after %v:", signals, after))
		}
		all.Go(func() { ends[i] = s.disturb(st.args, signals, after) })
	}
	all.Wait()
	return ends
}

// disturb runs a command, and sends signals to it.
func (s *story) disturb(args []string, signals []syscall.Signal, after time.Duration) ended {
	ctx, cancel := context.WithTimeout(s.t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir, cmd.Env = s.env["HOME"], s.command().Env
	var stdout, stderr buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = 20 * time.Second // CMD of a program that was killed may have the pipes for a while
	if err := cmd.Start(); err != nil {
		s.t.Error(err)
		return ended{}
	}
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(done)
	}()
	for _, sig := range signals {
		select {
		case <-done:
		case <-time.After(after):
			_ = cmd.Process.Signal(sig)
		}
		after = 2200 * time.Millisecond
	}
	<-done
	if ctx.Err() != nil {
		s.t.Errorf("seed %d: svc %s hangs", s.seed, strings.Join(args, " "))
	}
	e := ended{args: args, code: cmd.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String(), address: s.srv.URL(), ledger: s.folder(s.command())}
	if e.code == 2 && strings.HasPrefix(e.stderr, "SIGQUIT: quit\n") { // it came before the program handles signals
		e.code, e.stderr = -1, ""
	}
	return e
}

// moment is what the service runs, and what the ledger has.
type moment struct {
	endpoints map[string]svctest.Endpoint // by ID
	entries   []ledger.Entry
	requests  int
}

// look returns how things are now.
func (s *story) look() moment {
	m := moment{endpoints: map[string]svctest.Endpoint{}, requests: len(s.srv.Requests())}
	for _, e := range s.srv.Endpoints() {
		m.endpoints[e.ID] = e
	}
	m.entries = ended{ledger: s.folder(s.command())}.entries()
	return m
}

// marked is the ID of the endpoint that a user finds for an entry of a key in doubt; empty if there is none.
func (m moment) marked(key string) string {
	for _, entry := range m.entries {
		for id, e := range m.endpoints {
			if mark, _ := ledger.FindMark(e.Description); entry.Key == key && entry.Open() && entry.ServiceID == "" && mark == entry.Intent && !e.Deleted {
				return id
			}
		}
	}
	return ""
}

// entry returns the latest entry of an ID.
func (m moment) entry(id string) (found ledger.Entry) {
	for _, e := range m.entries {
		if strings.EqualFold(e.ServiceID, id) && (found.Intent == "" || e.RequestedAt.After(found.RequestedAt)) {
			found = e
		}
	}
	return found
}

// open returns the open entries of a key.
func (m moment) open(key string) []ledger.Entry { return openUnder(m.entries, key) }

// named returns the endpoints with a name or an ID; empty: all.
func (m moment) named(name string) (found []svctest.Endpoint) {
	for _, e := range m.endpoints {
		if name == "" || e.Name == name || e.ID == name {
			found = append(found, e)
		}
	}
	return found
}

// running lists the IDs of the endpoints with a name that are billed.
func (m moment) running(name string) (ids []string) {
	for _, e := range m.named(name) {
		if e.Billed {
			ids = append(ids, e.ID)
		}
	}
	return ids
}
