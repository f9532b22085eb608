package main

import (
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

// buffer can be read while a process still writes to it.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// background is a run of the program that has not ended.
type background struct {
	s              *session
	cmd            *exec.Cmd
	stdout, stderr buffer
}

func (s *session) background(args ...string) *background {
	s.t.Helper()
	b := &background{s: s, cmd: s.command(args...)}
	b.cmd.Stdout, b.cmd.Stderr = &b.stdout, &b.stderr
	s.start(b.cmd)
	return b
}

// until waits until the program has said something.
func (b *background) until(text string) {
	b.s.t.Helper()
	eventually(b.s.t, text, func() bool { return strings.Contains(b.stdout.String()+b.stderr.String(), text) })
}

func (b *background) signal(sig os.Signal) {
	b.s.t.Helper()
	require.NoError(b.s.t, b.cmd.Process.Signal(sig))
}

func (b *background) end() ended {
	_ = b.cmd.Wait()
	e := ended{b.cmd.Args[1:], b.cmd.ProcessState.ExitCode(), b.stdout.String(), b.stderr.String(), b.s.address(b.cmd), b.s.folder(b.cmd)}
	checkWords(b.s.t, b.s.srv, e)
	return e
}

// arrived counts the requests that the service has received, and a part of their body if they have one:
// without it nothing was sent.
func (s *session) arrived(method, route string) (n int) {
	for _, r := range s.srv.Requests() {
		if r.Method == method && r.Route == route && (r.BodySize > 0 || r.ContentLength <= 0) {
			n++
		}
	}
	return n
}

// stage is a point in a deployment at which something may happen to the program.
type stage struct {
	name  string
	fake  func(takes time.Duration) []svctest.Option
	fault func(srv *svctest.Server, takes time.Duration)
	reach func(*background)
	once  int      // exit code after one signal
	twice int      // exit code after two signals
	known []string // IDs in the ledger after SIGKILL
}

var stages = []stage{
	{
		name: "the flavors are read", once: exitInterrupted, twice: exitInterrupted,
		fault: func(srv *svctest.Server, _ time.Duration) {
			srv.Fault("GET", svctest.RouteFlavors, svctest.Slow(time.Hour))
		},
		reach: func(b *background) {
			eventually(b.s.t, "the flavor list", func() bool { return b.s.arrived("GET", svctest.RouteFlavors) > 0 })
		},
	},
	{
		name: "the create is sent", once: exitDeleted, twice: exitUnknown, known: []string{""},
		fault: func(srv *svctest.Server, takes time.Duration) {
			srv.Fault("POST", svctest.RouteEndpoints, svctest.Slow(takes))
		},
		reach: func(b *background) {
			eventually(b.s.t, "the create", func() bool { return b.s.arrived("POST", svctest.RouteEndpoints) > 0 })
		},
	},
	{
		name: "the endpoint is awaited", once: exitDeleted, twice: exitRunning, known: []string{"svc-1"},
		fake: func(takes time.Duration) []svctest.Option {
			return []svctest.Option{svctest.WithDeployTime(time.Hour), svctest.WithDeleteTime(takes)}
		},
		reach: func(b *background) { b.until("svc-1 is initializing") },
	},
	{
		name: "the endpoint is deleted", once: exitDeleted, twice: exitRunning, known: []string{"svc-1"},
		fake: func(takes time.Duration) []svctest.Option {
			return []svctest.Option{svctest.WithStatusPath("initializing", "unavailable"), svctest.WithDeleteTime(takes)}
		},
		reach: func(b *background) { b.until("deleting svc-1") },
	},
}

// arrive starts the deployment of a stage that takes this time, and waits for the stage.
func (st *stage) arrive(t *testing.T, takes time.Duration, args ...string) (*session, *background) {
	t.Helper()
	var opts []svctest.Option
	if st.fake != nil {
		opts = st.fake(takes)
	}
	s := newSession(t, opts...)
	if st.fault != nil {
		st.fault(s.srv, takes)
	}
	b := s.background(with(deploy, args...)...)
	st.reach(b)
	return s, b
}

// TestSignals: what a signal does at each stage, and what a second one does.
func TestSignals(t *testing.T) {
	t.Parallel()
	for _, st := range stages {
		for name, sig := range map[string]syscall.Signal{"SIGINT": syscall.SIGINT, "SIGTERM": syscall.SIGTERM, "SIGHUP": syscall.SIGHUP} {
			for _, times := range []int{1, 2} {
				t.Run(strings.Join([]string{st.name, name, strings.Repeat("again", times-1)}, "/"), func(t *testing.T) {
					if signal.Ignored(sig) {
						t.Skip("this process was started to ignore the signal, as nohup does, and so would the program")
					}
					t.Parallel()
					takes := 4 * time.Second
					if times == 2 {
						takes = time.Hour // the second signal ends it
					}
					s, b := st.arrive(t, takes, "-o", "json")
					b.signal(sig)
					b.signal(sig) // within two seconds: counts as one
					want := st.once
					if times == 2 && st.twice != exitInterrupted {
						want = st.twice
						time.Sleep(2200 * time.Millisecond)
						b.signal(sig)
					}
					e := b.end()
					require.Equal(t, want, e.code, e.stderr)
					doc := e.doc(t)
					require.Equal(t, want == exitRunning || want == exitUnknown, doc["may_be_running"])
					if want == st.twice {
						st.requireKnown(t, doc)
					}
					if want == exitDeleted || want == exitInterrupted {
						require.Zero(t, s.srv.RunningInstances())
						require.Empty(t, s.open())
					}
					if want == exitUnknown {
						require.Regexp(t, `named "demo", with \[svc:\w+\] in its description`, e.stderr)
						require.Regexp(t, `svc forget \w+ \(from \d\d:\d\d:\d\d \S+ on\)`, e.stderr)
					}
					if want == exitRunning {
						require.Equal(t, "svc-1", doc["service_id"])
						require.Contains(t, e.stderr, "svc delete svc-1")
					}
				})
			}
		}
	}
}

// changes counts the requests that change something at the service.
func (s *session) changes() (n int) {
	for _, r := range s.srv.Requests() {
		if r.Method != http.MethodGet {
			n++
		}
	}
	return n
}

// requireKnown requires that the document of a deployment that was given up at this stage has all that is known.
func (st *stage) requireKnown(t *testing.T, doc map[string]any) {
	t.Helper()
	has := []any{doc["service_id"], doc["created"], doc["name"], doc["instances"], doc["flavor_id"], doc["deleted"]}
	switch {
	case st.twice == exitInterrupted:
		require.Equal(t, []any{"", false, "demo", 1.0, "", false}, has)
	case st.twice == exitUnknown:
		require.Equal(t, []any{"", nil, "demo", 1.0, "flavor-2", false}, has, "it may have been created")
	default:
		require.Equal(t, []any{"svc-1", true, "demo", 1.0, "flavor-2", false}, has)
	}
}

// TestQuit: SIGQUIT (Ctrl-\) ends the program at once, as a second Ctrl-C does, and it says what may be running.
func TestQuit(t *testing.T) {
	if signal.Ignored(syscall.SIGQUIT) {
		t.Skip("this process was started to ignore the signal")
	}
	t.Parallel()
	for _, st := range stages {
		t.Run(st.name, func(t *testing.T) {
			t.Parallel()
			s, b := st.arrive(t, time.Hour, "-o", "json")
			changes := s.changes()
			b.signal(syscall.SIGQUIT)
			sent := time.Now()
			e := b.end()
			require.LessOrEqual(t, s.changes(), max(changes, map[string]int{"the endpoint is deleted": 2}[st.name]), "nothing more is sent")
			require.Less(t, time.Since(sent), 5*time.Second, "there is no cleanup")
			require.Equal(t, st.twice, e.code, e.stderr)
			st.requireKnown(t, e.doc(t))
			require.Equal(t, st.twice != exitInterrupted, e.doc(t)["may_be_running"])
			require.Equal(t, st.known, s.open())
			if st.twice == exitRunning {
				require.Contains(t, e.stderr, "interrupted by SIGQUIT")
				require.Regexp(t, `svc delete svc-1\n$`, e.stderr, "no cleanup begins")
			}
		})
	}
}

// TestKill: after SIGKILL at each stage, the ledger shows what may be running.
func TestKill(t *testing.T) {
	t.Parallel()
	for _, st := range stages {
		t.Run(st.name, func(t *testing.T) {
			t.Parallel()
			s, b := st.arrive(t, time.Hour, "--key", "chat")
			b.signal(syscall.SIGKILL)
			require.Equal(t, -1, b.end().code)
			require.Equal(t, st.known, s.open())
			if len(st.known) == 1 && st.known[0] == "" {
				require.Regexp(t, `\nchat +intended +demo +- `, s.must(exitOK, "ls").stdout)
			}
		})
	}
}

// TestPipesThatAreClosed: a reader that has gone away is no failure of the deployment, and SIGPIPE
// does not end it.
func TestPipesThatAreClosed(t *testing.T) {
	t.Parallel()
	s := newSession(t, svctest.WithDeployTime(2*time.Second))
	cmd := s.command(with(deploy, "-v")...)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	s.start(cmd)
	require.NoError(t, stdout.Close())
	require.NoError(t, stderr.Close())
	eventually(t, "the endpoint exists", func() bool { return s.srv.RunningInstances() == 1 })
	require.NoError(t, cmd.Process.Signal(syscall.SIGPIPE))
	require.NoError(t, cmd.Wait())
	require.Equal(t, []string{"svc-1"}, s.open())
}

// TestStdoutThatIsFull: one rule for every form of the output. The command does its work, and then
// the code says whether an endpoint runs.
func TestStdoutThatIsFull(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { full.Close() })
	for _, form := range []string{"table", "name", "json", "yaml"} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			s := newSession(t, svctest.WithImagePullError("bad:1"))
			s.srv.AddEndpoint(svctest.Endpoint{Instances: 1})
			for _, tt := range []struct {
				args    []string
				code    int
				running int // instances, the other endpoint included
				says    string
			}{
				{with(deploy, "--key", "chat"), exitRunning, 2, "To delete it: svc delete svc-2"},
				{with(deploy, "--key", "chat"), exitRunning, 2, "svc delete --key chat"},
				{[]string{"scale", "--key", "chat", "3"}, exitRunning, 4, "svc get svc-2"},
				{[]string{"get", "--key", "chat"}, exitFailed, 4, ""},
				{[]string{"ls"}, exitFailed, 4, ""},
				{[]string{"scale", "--key", "chat", "0"}, exitFailed, 1, ""},
				{[]string{"delete", "--key", "chat"}, exitFailed, 1, ""},
				{[]string{"deploy", "--name", "x", "--image", "bad:1"}, exitDeleted, 1, "Nothing is left running"},
				{[]string{"flavors"}, exitFailed, 1, ""},
			} {
				cmd := s.command(append(tt.args, "-o", form)...)
				cmd.Stdout = full
				e := s.finish(cmd)
				require.Equal(t, tt.code, e.code, "%v: %s", tt.args, e.stderr)
				require.Equal(t, tt.running, s.srv.RunningInstances(), tt.args)
				require.Contains(t, e.stderr, tt.says, tt.args)
				require.NotContains(t, e.stderr, "--replace", "%v: it is healthy", tt.args)
				require.NotContains(t, e.stderr, "as before", "%v: it is changed", tt.args)
				if tt.code != exitDeleted {
					require.Contains(t, e.stderr, "no space left", tt.args)
				}
			}
			for command, code := range map[string]int{"svc deploy --name x --image i": exitOK, "svc deploy --name x --image bad:1": exitDeleted, "svc get svc-9": exitNotFound} {
				require.Equal(t, code, s.finish(s.shell(command+` -o `+form+` >&-`)).code, "the code of the work")
			}
		})
	}
}

// TestReadersThatDoNotRead: neither a full standard output nor a full standard error keeps a
// signal from deleting the endpoint.
func TestReadersThatDoNotRead(t *testing.T) {
	t.Parallel()
	s := newSession(t, svctest.WithDeployTime(time.Hour))
	full := func() *os.File {
		r, w, err := os.Pipe()
		require.NoError(t, err)
		t.Cleanup(func() { r.Close(); w.Close() })
		require.NoError(t, w.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
		for {
			if _, err := w.Write(make([]byte, 4096)); err != nil {
				return w
			}
		}
	}
	cmd := s.command(with(deploy, "-v")...)
	cmd.Stdout, cmd.Stderr = full(), full()
	s.start(cmd)
	eventually(t, "the endpoint exists", func() bool { return s.srv.RunningInstances() == 1 })
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	_ = cmd.Wait()
	require.Equal(t, exitDeleted, cmd.ProcessState.ExitCode())
	require.Zero(t, s.srv.RunningInstances())
}

// A signal that is ignored when the program starts stays ignored, as nohup and "&" in a script want it.
func TestIgnoredSignalsStayIgnored(t *testing.T) {
	t.Parallel()
	for name, sig := range map[string]os.Signal{"INT": os.Interrupt, "HUP": syscall.SIGHUP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSession(t, svctest.WithDeployTime(2*time.Second))
			b := &background{s: s, cmd: s.shell(`trap "" ` + name + `; exec svc deploy --key app --name app --image app:1`)}
			b.cmd.Stdout, b.cmd.Stderr = &b.stdout, &b.stderr
			s.start(b.cmd)
			b.until("created svc-1")
			b.signal(sig)
			e := b.end()
			require.Equal(t, exitOK, e.code, e.stderr)
			require.NotContains(t, e.stderr, "interrupted")
		})
	}
}
