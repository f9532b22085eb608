package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/ledger"
	"example.com/svc/svctest"
)

// binary is the program, built once for all tests. The tests run it as a child process.
var binary string

func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "1000"); err != nil { // slots limits them
		panic(err)
	}
	signal.Notify(make(chan os.Signal, 1), os.Interrupt, syscall.SIGHUP) // nohup and "&" make a program ignore them, and what it starts: not here
	dir, err := os.MkdirTemp("", "svc-test")
	if err != nil {
		panic(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { // for tests that run the program as another user
		panic(err)
	}
	binary = filepath.Join(dir, "svc")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // without the C library, a program begins a sixth faster
	if out, err := build.CombinedOutput(); err != nil {
		panic(string(out))
	}
	code := m.Run()
	postgresStop()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// outcome of a run of the program.
type ended struct {
	args           []string // of the program
	code           int
	stdout, stderr string
	address        string // of the service
	ledger         string // folder of the ledger; empty if it is another one than the default
}

// doc is the document that "-o json" has written.
func (e ended) doc(t *testing.T) map[string]any {
	t.Helper()
	var doc map[string]any
	d := json.NewDecoder(strings.NewReader(e.stdout))
	require.NoError(t, d.Decode(&doc), "%s\n%s", e.stdout, e.stderr)
	require.ErrorIs(t, d.Decode(&doc), io.EOF, "one document for a command: %s", e.stdout)
	require.EqualValues(t, e.code, doc["exit_code"])
	checkSchema(t, e.args, doc)
	if why := cmp.Or(contradiction(doc), e.unsaid(doc)); why != "" {
		require.Fail(t, why, "%q\n%s", e.args, e.stdout)
	}
	return doc
}

// contradiction returns which fields of a document cannot be true together, or "".
func contradiction(doc map[string]any) string {
	code, running := doc["exit_code"].(float64), doc["may_be_running"] == true
	switch {
	case (code == exitUnknown || code == exitRunning) && !running:
		return "the exit code says that something may run, may_be_running does not"
	case code == exitDeleted && running:
		return "the exit code says that nothing is left, may_be_running does not"
	}
	var why string
	var walk func(value any)
	walk = func(value any) {
		switch value := value.(type) {
		case []any:
			for _, v := range value {
				walk(v)
			}
		case map[string]any:
			is := func(field string, want any) bool { got, has := value[field]; return has && got == want }
			ended := is("state", "deleted") || is("state", "refused") || is("state", "forgotten")
			for text, wrong := range map[string]bool{
				"deleted and open":               is("deleted", true) && is("open", true),
				"deleted, with an address":       is("deleted", true) && value["url"] != nil && value["url"] != "",
				"deleted, with a reason why not": is("deleted", true) && value["exit_code"] == nil && value["error"] != nil && value["error"] != "",
				"deleted and not, by its error":  is("deleted", false) && deletionKnown.MatchString(fmt.Sprint(doc["error"])) && value["service_id"] == doc["service_id"],
				"deleted by its state only":      is("state", "deleted") && is("deleted", false),
				"ended and open":                 ended && is("open", true),
				"in doubt and not open":          is("in_doubt", true) && is("open", false),
				"open, and nothing may run":      is("open", true) && !running,
			} {
				if wrong {
					why = text
				}
			}
			for _, v := range value {
				walk(v)
			}
		}
	}
	walk(doc)
	return why
}

// deletionKnown matches an error that says that the ledger has the deletion of the endpoint.
var deletionKnown = regexp.MustCompile(`the ledger has its deletion`)

// unsaid returns the field of a document that is empty although the request or the ledger has its value, or "". A command
// line that is not valid is no request, nor is one that was not read before the command was given up.
func (e ended) unsaid(doc map[string]any) string {
	status, ofOne := doc["status"]
	if _, has := doc["flavor_id"]; !has || !ofOne || e.code == exitUsage || doc["error"] == "interrupted by SIGQUIT" && doc["key"] == "" && doc["request"] == nil {
		return ""
	}
	want := map[string]any{}
	if e.args[0] == "deploy" {
		for field, flag := range map[string]string{"name": "name", "flavor_id": "flavor", "instances": "instances"} {
			if text, given := guessed(e.args, flag, ""); given && !strings.Contains(text, ",") {
				want[field] = text
			}
		}
		if _, file := want["name"]; file {
			want["instances"] = "1"
		}
	}
	stopped := doc["error_kind"] == "interrupted" && doc["service_id"] == "" // before it had read the ledger
	for _, entry := range e.entries() {
		if e.args[0] != "deploy" && !stopped && spelling(entry.BaseURL) == spelling(e.address) && (entry.ServiceID != "" && entry.ServiceID == doc["service_id"] || entry.Open() && entry.Key == doc["key"]) {
			want["name"], want["flavor_id"] = entry.Name, entry.FlavorID
			if entry.Instances > 0 {
				want["instances"] = fmt.Sprint(entry.Instances)
			}
		}
	}
	if slices.ContainsFunc(e.entries(), func(entry ledger.Entry) bool { return entry.Open() && entry.Key == doc["key"] && entry.Instances == 0 }) {
		delete(want, "instances")
	}
	for field, value := range want {
		if scaled := field == "instances" && status != ""; !scaled && value != "" && (doc[field] == "" || doc[field] == 0.0) {
			return fmt.Sprintf("%s is empty, although it is known to be %v", field, value)
		}
	}
	return ""
}

// entries returns those of the ledger of the session, if the program had its default one.
func (e ended) entries() []ledger.Entry {
	if e.ledger == "" {
		return nil
	}
	store, err := ledger.Dir(e.ledger, ledger.MustExist())
	if err != nil {
		return nil
	}
	records, _ := store.List(context.Background(), "")
	entries, _ := ledger.Fold(records)
	return entries
}

var tryAll = flag.Bool("all", false, "try each pair of two lists, such as what a script does and where its output goes")

// sampled reports whether a test tries one of its cases with scripts, which take long: about half of them each time, or all
// with -all.
func sampled() bool { return *tryAll || rand.IntN(2) == 0 }

// tried reports whether a test tries the pair of the members i and j of two lists: a quarter of the pairs, so that
// each member is tried.
func tried(i, j int) bool { return *tryAll || (i+j)%4 == 0 }

// slots limits how many tests with a session run at a time. They wait for most of their time.
var slots = make(chan struct{}, 20)

// unlimited are the tests that have a slot, or need none.
var unlimited sync.Map

// patient lets a test that waits for tens of seconds, and does little else, begin at once.
func patient(t *testing.T) { unlimited.Store(t, true) }

// takeSlot waits for a slot of the test.
func takeSlot(t *testing.T) {
	if _, has := unlimited.LoadOrStore(t, true); !has {
		slots <- struct{}{}
		t.Cleanup(func() { <-slots })
	}
}

// session runs the program against a fake of the service, with a ledger of its own.
type session struct {
	t     *testing.T
	srv   *svctest.Server
	env   map[string]string
	flags []string // are added to each command line
	user  int      // under which the program runs; 0: the one of the test
}

// until is an option of a service that responds to requests with a method only from the release on.
func until(method string) (held svctest.Option, release func()) {
	released := make(chan struct{})
	return svctest.WithRequestHook(func(r svctest.Request) {
		if r.Method == method {
			<-released
		}
	}), sync.OnceFunc(func() { close(released) })
}

func newSession(t *testing.T, opts ...svctest.Option) *session {
	t.Helper()
	takeSlot(t)
	// A program of another test may still try the port of a service that has ended: its token is not valid here.
	name, _, _ := strings.Cut(t.Name(), "/")
	token := svctest.WithToken("token-of-" + name)
	srv := svctest.NewServer(append([]svctest.Option{token, svctest.WithDeployTime(100 * time.Millisecond)}, opts...)...)
	t.Cleanup(srv.Close)
	home := t.TempDir()
	return &session{t: t, srv: srv, env: map[string]string{
		"HOME": home, "PATH": os.Getenv("PATH"), "TMPDIR": os.TempDir(),
		"SVC_BASE_URL": srv.URL(), "SVC_API_TOKEN": srv.Token(), "SVC_INFERENCE_URL": srv.InferenceURL(),
		"GOMAXPROCS": "1", // a start of svc takes a fifth less processor time; tests of random moments remove it
	}}
}

// command prepares a run of the program. The test may change it before it starts.
func (s *session) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(s.t.Context(), binary, slices.Concat(args, s.flags)...)
	cmd.Dir = s.env["HOME"]
	for name, value := range s.env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd
}

// run runs the program to its end.
func (s *session) run(args ...string) ended {
	s.t.Helper()
	return s.finish(s.command(args...))
}

func (s *session) finish(cmd *exec.Cmd) ended {
	s.t.Helper()
	var stdout, stderr bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = &stdout
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &stderr
	}
	if s.user != 0 && os.Getuid() == 0 {
		cmd.SysProcAttr = asUser(s.user, s.user)
	}
	err := cmd.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); !ok {
		require.NoError(s.t, err)
	}
	e := ended{cmd.Args[1:], cmd.ProcessState.ExitCode(), stdout.String(), stderr.String(), s.address(cmd), s.folder(cmd)}
	checkWords(s.t, s.srv, e)
	return e
}

// address returns the address of the service that a run of the program has.
func (s *session) address(cmd *exec.Cmd) string {
	if address, given := guessed(cmd.Args, "base-url", ""); given {
		return address
	}
	for _, setting := range cmd.Env {
		if address, is := strings.CutPrefix(setting, "SVC_BASE_URL="); is {
			return address
		}
	}
	return ""
}

// folder returns the default ledger of the session, if a run of the program has that.
func (s *session) folder(cmd *exec.Cmd) string {
	other := slices.ContainsFunc(slices.Concat(cmd.Args, cmd.Env), func(text string) bool {
		return strings.HasPrefix(text, "--ledger") || strings.HasPrefix(text, "SVC_LEDGER=") || strings.HasPrefix(text, "XDG_STATE_HOME=")
	})
	if other {
		return ""
	}
	return filepath.Join(s.env["HOME"], ".local", "state", "svc-ledger")
}

// goNames finds names of the library and of Go in what a user reads.
var goNames = regexp.MustCompile(`\b(Err[A-Z]\w+|Min[A-Z]\w+|ContentType|FileName|PickFlavor|OnCreate|\w+Empty|Go (struct|value)|With[A-Z]\w+|DeleteAndWait|WaitUntil\w+|ScaleAndWait|\w+Client\.\w+|Ledger\.\w+|NewClient\w*|errors\.\w+|call [A-Z]\w+|PresignedURL|context (canceled|deadline exceeded)|goroutine|panic|nil)\b|svc: svc:`)

// checkWords checks what no output may hold: the token, and names of Go.
func checkWords(t *testing.T, srv *svctest.Server, e ended) {
	t.Helper()
	all := e.stdout + e.stderr
	require.NotContains(t, all, srv.Token(), "the token is shown")
	require.Empty(t, goNames.FindString(all), all)
	require.NotContains(t, e.stderr, "%!", "a format does not fit its values")
	require.NotContains(t, all, "\x1b[3", "colours: there is no terminal")
}

// must runs the program and requires this exit code.
func (s *session) must(code int, args ...string) ended {
	s.t.Helper()
	e := s.run(args...)
	require.Equal(s.t, code, e.code, "svc %s\n%s%s", strings.Join(args, " "), e.stdout, e.stderr)
	return e
}

// start starts the program, and kills it at the end of the test if it still runs.
func (s *session) start(cmd *exec.Cmd) {
	s.t.Helper()
	require.NoError(s.t, cmd.Start())
	s.t.Cleanup(func() { _ = cmd.Process.Kill() })
}

// eventually waits until a condition is met.
func eventually(t *testing.T, what string, met func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for pause := 5 * time.Millisecond; !met(); pause = min(2*pause, 100*time.Millisecond) { // some conditions run the program
		select {
		case <-ctx.Done():
			require.Fail(t, what)
		case <-time.After(pause):
		}
	}
}

func TestVersionHasEachForm(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	require.Regexp(t, `^svc \S+ \(go1\.\d+\S*, \w+/\w+\)\n$`, s.must(exitOK, "version").stdout)
	doc := s.must(exitOK, "version", "-o", "json").doc(t)
	require.NotEmpty(t, doc["version"])
	require.NotContains(t, doc, "error")
	require.Contains(t, s.must(exitOK, "version", "-o", "yaml").stdout, "\ngo: go1.")
	require.Equal(t, fmt.Sprintf("%v\n", doc["version"]), s.must(exitOK, "version", "-o", "name").stdout)
}
