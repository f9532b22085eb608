package main

import (
	"bufio"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

// TestMain lets the test binary act as the program.
func TestMain(m *testing.M) {
	if os.Getenv("BE_THE_PROGRAM") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// run runs the program in a separate process. The program uses srv unless srv is nil. When a
// line of its output contains interruptAt, run interrupts it with two signals at once.
// timeout(1) does the same: it signals a program and then its process group.
func run(t *testing.T, srv *svctest.Server, interruptAt string, args ...string) (code int, output string) {
	t.Helper()
	if interruptAt != "" && runtime.GOOS == "windows" {
		t.Skip("no process can be sent a Ctrl-C here")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), "BE_THE_PROGRAM=1", "SVC_BASE_URL=", "SVC_API_TOKEN=", "SVC_INFERENCE_URL=")
	if srv != nil {
		cmd.Env = append(cmd.Env, "SVC_BASE_URL="+srv.URL(), "SVC_API_TOKEN="+srv.Token())
	}
	pipe, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = cmd.Stdout
	require.NoError(t, cmd.Start())

	var all strings.Builder
	for lines := bufio.NewScanner(pipe); lines.Scan(); {
		all.WriteString(lines.Text() + "\n")
		if interruptAt != "" && strings.Contains(lines.Text(), interruptAt) {
			require.NoError(t, cmd.Process.Signal(os.Interrupt))
			require.NoError(t, cmd.Process.Signal(os.Interrupt))
			interruptAt = ""
		}
	}
	_ = cmd.Wait() // the exit code is read from ProcessState below
	require.Empty(t, interruptAt, "the program never printed that: %s", &all)
	require.NotContains(t, all.String(), svctest.DefaultToken)
	return cmd.ProcessState.ExitCode(), all.String()
}

func TestOnTheFakeInside(t *testing.T) {
	start := time.Now()
	code, output := run(t, nil, "")
	require.Zero(t, code, output)
	for _, text := range []string{
		"Nothing is rented", "Created svc-1.", "svc-1: initializing", "Endpoint svc-1 is available", "has 2 instances",
		"Endpoint svc-1 is deleted", "in the list: file-1 quickstart.jsonl", "the same bytes", "File file-1 is deleted", "All done.",
	} {
		require.Contains(t, output, text)
	}
	require.Less(t, time.Since(start), 30*time.Second)

	code, output = run(t, nil, "svc-1: initializing")
	require.Equal(t, 130, code, output)
	require.Contains(t, output, "Interrupted")
	require.Regexp(t, "the endpoint is deleted now|svc-1 is deleted", output)
}

func TestLeavesNothingBehind(t *testing.T) {
	tests := map[string]struct {
		fake        []svctest.Option
		refuse      bool // storage refuses uploads
		interruptAt string
		code        int
		says        string
	}{
		"success":       {says: "All done."},
		"failed upload": {refuse: true, code: 1, says: "the record was deleted"},
		"failed deployment": {
			fake: []svctest.Option{svctest.WithStatusPath("initializing", "unavailable")},
			code: 1, says: "the endpoint is deleted now",
		},
		"Ctrl-C while it deploys": {
			fake:        []svctest.Option{svctest.WithDeployTime(time.Hour)},
			interruptAt: "svc-1: initializing", code: 130, says: "the endpoint is deleted now",
		},
		"Ctrl-C while it scales": {
			fake:        []svctest.Option{svctest.WithDeployTime(time.Hour), svctest.WithStatusPath("available")},
			interruptAt: "Scaling", code: 130, says: "Endpoint svc-1 is deleted",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := svctest.NewServer(append([]svctest.Option{svctest.WithDeployTime(100 * time.Millisecond)}, tt.fake...)...)
			defer srv.Close()
			srv.AddFile("somebody-elses.jsonl", "fine-tune", []byte("x"))
			if tt.refuse {
				srv.Fault("PUT", svctest.RouteStorage, svctest.Fault{Status: 403, Times: -1})
			}

			code, output := run(t, srv, tt.interruptAt, "-image", "registry.example/app:1")
			require.Equal(t, tt.code, code, output)
			require.Contains(t, output, tt.says)
			require.Contains(t, output, "BILLED")
			require.Contains(t, output, "Deleting svc-1 ...")
			require.NotContains(t, output, "somebody-elses")

			require.Equal(t, 1, srv.RequestCount("POST", svctest.RouteEndpoints))
			require.Zero(t, srv.RunningInstances())
			for _, f := range srv.Files()[1:] {
				require.True(t, f.Deleted, f.Name)
			}
		})
	}
}

func TestImageIsNeededOnTheRealService(t *testing.T) {
	srv := svctest.NewServer()
	defer srv.Close()
	code, output := run(t, srv, "")
	require.Equal(t, 2, code)
	require.Contains(t, output, "-image is needed")
	require.Zero(t, srv.RequestCount("*", svctest.RouteAny))
}

// TestImports: the quickstart imports only the library and the standard library.
func TestImports(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "main.go", nil, parser.ImportsOnly)
	require.NoError(t, err)
	for _, spec := range f.Imports {
		path := strings.Trim(spec.Path.Value, `"`)
		host, _, _ := strings.Cut(path, "/")
		require.True(t, !strings.Contains(host, ".") || slices.Contains([]string{"example.com/svc", "example.com/svc/svctest"}, path), path)
	}
}
