package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

var pairsToTry = flag.Int("pairs", 14, "TestPairsAtRandomMoments: number of pairs of commands that run at once")

var onlyPair = flag.Int("pair", -1, "TestPairsAtRandomMoments: index of the only pair to try; below 0: all")

// pair is two commands about one endpoint that run at once.
type pair struct {
	setup func(*story)
	a, b  string
	want  map[string][]int // the exit codes that each of them may have, by its first word
}

const deployKeyed = "deploy --key keyed --name keyed --image x"

func deployedKeyed(more ...string) func(*story) {
	return func(s *story) { s.must(exitOK, append(strings.Fields(deployKeyed), more...)...) }
}

func overdueKeyed(s *story) {
	deployedKeyed("--lease", "1s")(s)
	time.Sleep(2100 * time.Millisecond) // the clock of the service has whole seconds
}

func lostKeyed(fault svctest.Fault) func(*story) {
	return func(s *story) {
		s.srv.Fault("POST", svctest.RouteEndpoints, fault)
		s.must(exitUnknown, strings.Fields(deployKeyed)...)
	}
}

func unavailableKeyed(s *story) {
	deployedKeyed()(s)
	s.srv.SetStatus("svc-1", svctest.StatusUnavailable)
}

var pairs = []pair{
	{nil, deployKeyed, deployKeyed, map[string][]int{"deploy": {exitOK}}},
	{nil, deployKeyed, "delete --key keyed --missing-ok", map[string][]int{"deploy": {exitOK, exitNotFound, exitDeleted, exitRunning}, "delete": {exitOK, exitUnknown, exitLedger}}}, // there may be no ledger yet
	{deployedKeyed(), deployKeyed, "delete --key keyed", map[string][]int{"deploy": {exitOK}, "delete": {exitOK}}},
	{deployedKeyed(), "scale --key keyed 2", "delete --key keyed", map[string][]int{"scale": {exitOK, exitNotFound, exitRunning}, "delete": {exitOK}}},
	{deployedKeyed(), "scale --key keyed 0", "scale --key keyed 3", map[string][]int{"scale": {exitOK, exitFailed, exitRunning}}},
	{overdueKeyed, "extend keyed 8h", "sweep", map[string][]int{"extend": {exitOK, exitRunning, exitNotFound, exitLedger}, "sweep": {exitOK}}},
	{overdueKeyed, "sweep", "delete --key keyed", map[string][]int{"sweep": {exitOK}, "delete": {exitOK, exitNotFound}}},
	{overdueKeyed, "sweep", deployKeyed + " --lease 8h", map[string][]int{"sweep": {exitOK, exitRunning}, "deploy": {exitOK, exitNotFound, exitRunning}}},
	{nil, "run --name keyed --image x --lease 1s -- sleep 3", "sweep", map[string][]int{"run": {exitOK, exitDeleted}, "sweep": {exitOK, exitLedger, exitRunning}}},
	{lostKeyed(svctest.DropAfterEffect()), "adopt keyed svc-1", deployKeyed, map[string][]int{"adopt": {exitOK}, "deploy": {exitOK, exitUnknown}}},
	{lostKeyed(svctest.DropBeforeEffect()), "forget keyed", deployKeyed, map[string][]int{"forget": {exitOK}, "deploy": {exitOK, exitUnknown}}},
	{unavailableKeyed, deployKeyed + " --replace", deployKeyed + " --replace", map[string][]int{"deploy": {exitOK}}},
	{unavailableKeyed, deployKeyed + " --replace", "delete --key keyed", map[string][]int{"deploy": {exitOK, exitNotFound, exitRunning, exitDeleted}, "delete": {exitOK, exitNotFound}}},
	{func(s *story) { deployedKeyed()(s); s.must(exitOK, "delete", "svc-1") }, "ledger prune --older-than 1ns", deployKeyed, map[string][]int{"ledger": {exitOK}, "deploy": {exitOK}}},
}

// TestPairsAtRandomMoments: two commands about one endpoint at once, one of them often suspended for longer than a lease. There
// are never two endpoints of a key, the ledger has each one that runs, and the codes and documents are true.
func TestPairsAtRandomMoments(t *testing.T) {
	t.Parallel()
	ends := inRounds(t, 8, 2, *pairsToTry, func() bool { return true }, func(s *story) (end, wrong string) {
		if *onlyPair >= 0 {
			return s.both(pairs[*onlyPair])
		}
		return s.both(pairs[s.seed%uint64(len(pairs))])
	})
	t.Logf("%d pairs: %v", *pairsToTry, ends)
}

// both runs the commands of a pair, and returns how they ended, and what is wrong with that.
func (s *story) both(p pair) (end, wrong string) {
	if s.rnd.IntN(2) == 0 {
		s.env["SVC_LEDGER"] = "sqlite:" + filepath.Join(s.env["HOME"], "ledger.db")
		s.must(exitOK, "ledger", "init")
	}
	if p.setup != nil {
		p.setup(s)
	}
	if strings.HasPrefix(p.a, "forget") {
		later := http.Header{"Date": {time.Now().Add(10 * time.Minute).UTC().Format(http.TimeFormat)}}
		s.srv.Fault("GET", svctest.RouteFlavors, svctest.Fault{Header: later, Times: -1}) // the service's clock moves on
	}
	if s.rnd.IntN(2) == 0 && !strings.HasPrefix(p.a, "run") {
		p.a, p.b = p.b, p.a
	}
	suspended := s.rnd.IntN(2) == 0
	lines := [2][]string{}
	var runs [2]*background
	var ended [2]ended
	var all sync.WaitGroup
	for i, line := range []string{p.a, p.b} {
		args := strings.Fields(line)
		if args[0] != "run" {
			args = append(args, "-o", "json", "--timeout", "100s")
		}
		lines[i] = args
		if i == 1 {
			time.Sleep(time.Duration(s.rnd.IntN(400_000)) * time.Microsecond)
		}
		if strings.HasPrefix(p.a, "run") && i == 1 {
			time.Sleep(2 * time.Second)
		}
		runs[i] = s.background(args...)
		if i == 0 && suspended {
			pause, wait := time.Duration(1500+s.rnd.IntN(2500))*time.Millisecond, time.Duration(s.rnd.IntN(350_000))*time.Microsecond
			s.log = append(s.log, fmt.Sprintf("the first is suspended after %v for %v", wait, pause))
			all.Go(func() {
				time.Sleep(wait)
				_ = runs[0].cmd.Process.Signal(sigStop)
				time.Sleep(pause)
				_ = runs[0].cmd.Process.Signal(sigCont)
			})
		}
	}
	for i := range runs {
		all.Go(func() { ended[i] = runs[i].end() })
	}
	all.Wait()
	time.Sleep(100 * time.Millisecond)
	codes := make([]string, 2)
	for i, e := range ended {
		s.log = append(s.log, fmt.Sprintf("svc %s: %d", strings.Join(lines[i], " "), e.code), e.stdout, e.stderr)
		codes[i] = fmt.Sprint(lines[i][0], " ", e.code)
		if !slices.Contains(p.want[lines[i][0]], e.code) {
			wrong = cmp.Or(wrong, "the code of "+lines[i][0])
		}
		wrong = cmp.Or(wrong, s.judgeOne(e, ended[1-i]))
	}
	slices.Sort(codes)
	if running := s.look().running("keyed"); len(running) > 1 {
		wrong = fmt.Sprintf("%v are running", running)
	}
	s.srv.ClearFaults()
	return strings.Join(codes, ", "), cmp.Or(wrong, s.unlisted())
}

// unlisted reports what runs, and is not in the ledger of the session, of whatever kind, by its ID or as a doubt.
func (s *story) unlisted() string {
	list := s.run("ls", "-o", "name").stdout
	all := s.run("ls").stdout
	for _, e := range s.srv.Endpoints() {
		if e.Billed && !strings.Contains(list, e.ID+"\n") && !strings.Contains(all, "in doubt") {
			return e.ID + " is running, and the ledger does not have it: " + all
		}
	}
	return ""
}

// judgeOne compares the document of a command with what runs in the end. other has run at the same time.
func (s *story) judgeOne(e, other ended) string {
	running := s.look().running("keyed")
	if e.args[0] == "run" {
		return ""
	}
	var doc map[string]any
	if err := json.Unmarshal([]byte(e.stdout), &doc); err != nil {
		return "no document: " + err.Error()
	}
	if why := contradiction(doc); why != "" {
		return why
	}
	if len(running) > 0 && doc["may_be_running"] == false && other.args[0] != "deploy" && other.args[0] != "scale" && e.args[0] != "ledger" {
		return "may_be_running is false"
	}
	for _, list := range []string{"endpoints", "entries"} {
		entries, _ := doc[list].([]any)
		for _, one := range entries {
			if d := one.(map[string]any); d["deleted"] == true && slices.Contains(running, fmt.Sprint(d["service_id"])) {
				return "it is deleted, and runs"
			}
		}
	}
	if e.args[0] == "deploy" && e.code == exitOK && other.args[0] != "delete" && other.args[0] != "sweep" && !slices.Contains(running, fmt.Sprint(doc["service_id"])) {
		return "deploy has succeeded, and its endpoint does not run"
	}
	if e.args[0] == "extend" && e.code == exitOK && len(running) == 0 {
		return "the lease is extended, and the endpoint is deleted"
	}
	return ""
}

// TestExtendIsTooLateForASweepThatDeletes: also before the service has accepted the delete.
func TestExtendIsTooLateForASweepThatDeletes(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	delete(s.env, "GOMAXPROCS")
	s.must(exitOK, with(deploy, "--key", "chat", "--lease", "1s")...)
	time.Sleep(2100 * time.Millisecond)                                                      // the clock of the service has whole seconds
	s.srv.Fault("DELETE", svctest.RouteEndpoint, svctest.Fault{Delay: time.Hour, Times: -1}) // also of the next attempts
	b := s.background("sweep", "-o", "json")
	eventually(t, "the delete", func() bool { return s.arrived("DELETE", svctest.RouteEndpoint) > 0 })
	for _, args := range [][]string{{"extend", "chat", "8h"}, {"scale", "--key", "chat", "2"}} {
		e := s.must(exitRunning, with(args, "-o", "json")...)
		require.Equal(t, []any{"being_deleted", true}, []any{e.doc(t)["error_kind"], e.doc(t)["may_be_running"]})
		require.Regexp(t, `a sweep has begun to delete svc-1, \d+s ago, since its lease was over: .*If it still runs at \d\d:\d\d:\d\d`, e.stderr)
	}
	require.Contains(t, s.must(exitOK, "ls").stdout, "over since", "the lease is as it was")
	require.Contains(t, s.must(exitOK, "get", "--key", "chat").stderr, "warning: a sweep has begun to delete svc-1")
	b.signal(syscall.SIGTERM)
	require.Equal(t, exitRunning, b.end().code)
	s.srv.ClearFaults()
	s.must(exitOK, "sweep")
	require.Empty(t, s.open())
}
