package cases_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

var codeBlock = regexp.MustCompile("(?ms)^( *)```go\n(.*?)^ *```$")

// Readers copy the code of README. An error that the next line overwrites is lost.
func TestReadmeCodeChecksEveryError_D35(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	blocks := codeBlock.FindAllStringSubmatch(string(readme), -1)
	require.NotEmpty(t, blocks)
	assigned := 0
	for _, block := range blocks {
		code := regexp.MustCompile("(?m)^"+block[1]).ReplaceAllString(block[2], "")
		if !strings.Contains(code, "func ") {
			code = "func _() error {\n" + code + "}"
		}
		if !strings.HasPrefix(code, "package ") {
			code = "package p\n" + code
		}
		file, err := parser.ParseFile(token.NewFileSet(), "", code, 0)
		require.NoError(t, err, code)
		ast.Inspect(file, func(n ast.Node) bool {
			body, ok := n.(*ast.BlockStmt)
			if !ok {
				return true
			}
			for i, s := range body.List {
				if assign, ok := s.(*ast.AssignStmt); ok && names(assign.Lhs[len(assign.Lhs)-1], "err") {
					assigned++
					require.Greater(t, len(body.List), i+1, code)
					require.True(t, names(body.List[i+1], "err"), "the error in line %d is not checked:\n%s", i+1, code)
					next, again := body.List[i+1].(*ast.AssignStmt)
					require.False(t, again && names(next.Lhs[len(next.Lhs)-1], "err"), code)
				}
			}
			return true
		})
	}
	require.Greater(t, assigned, 4)
}

// names reports whether an identifier in n has this name.
func names(n ast.Node, name string) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		ident, ok := n.(*ast.Ident)
		found = found || ok && ident.Name == name
		return true
	})
	return found
}

// The first program of README keeps its promises: Ctrl-C deletes the endpoint, whether it is
// created or still being created, and the ID is printed.
func TestFirstProgramOfReadme_D32(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot be interrupted there")
	}
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(readme), "## A first program")
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	require.NoError(t, err)
	requires, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	dir := t.TempDir()
	mod := strings.Replace(string(requires), "module example.com/svc", "module first\n\nrequire example.com/svc v0.0.0\nreplace example.com/svc => "+root, 1)
	for name, text := range map[string]string{"main.go": codeBlock.FindStringSubmatch(rest)[2], "go.mod": mod, "go.sum": string(sums)} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-mod=mod", "-o", "first", ".")
	build.Dir, build.Env = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))

	for name, tt := range map[string]struct {
		opts      []svctest.Option
		interrupt string // the request at which the program is interrupted; empty: it is not
		running   int
		says      string
	}{
		"succeeds":          {nil, "", 1, "created svc-1\nsvc-1 is available\n"},
		"during the create": {[]svctest.Option{svctest.WithCreateTime(time.Second), svctest.WithDeployTime(time.Hour)}, "POST", 0, "the endpoint is deleted now"},
		"during the wait":   {[]svctest.Option{svctest.WithDeployTime(time.Hour)}, "GET", 0, "the endpoint is deleted now"},
		"it cannot be used": {[]svctest.Option{svctest.WithStatusPath("unavailable")}, "", 0, "the endpoint is deleted now"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := svctest.NewServer(tt.opts...)
			defer srv.Close()
			program := exec.CommandContext(t.Context(), filepath.Join(dir, "first"))
			program.Env = append(os.Environ(), "SVC_BASE_URL="+srv.URL(), "SVC_API_TOKEN="+srv.Token())
			var said bytes.Buffer
			program.Stdout, program.Stderr = &said, &said
			require.NoError(t, program.Start())
			if tt.interrupt != "" {
				route := map[string]string{"POST": svctest.RouteEndpoints, "GET": svctest.RouteEndpoint}[tt.interrupt]
				require.Eventually(t, func() bool {
					return slices.ContainsFunc(srv.Requests(), func(r svctest.Request) bool { // without a part of its body nothing was sent
						return r.Method == tt.interrupt && r.Route == route && (r.BodySize > 0 || r.ContentLength <= 0)
					})
				}, time.Minute, 10*time.Millisecond)
				require.NoError(t, program.Process.Signal(os.Interrupt))
			}
			err := program.Wait()
			require.Equal(t, tt.running == 1, err == nil, said.String())
			require.Contains(t, said.String(), tt.says)
			require.Contains(t, said.String(), "created svc-1")
			require.Equal(t, tt.running > 0, srv.RunningInstances() > 0)
		})
	}
}
