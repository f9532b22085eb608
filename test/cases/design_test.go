package cases_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// In docs/design.md a function stands behind its file: `call.go` `call.prepare`. A file may stand alone.
var (
	located = regexp.MustCompile("`([\\w/.-]+\\.go)`(?:\\s`([\\w.]+)`)?")
	stop    = regexp.MustCompile("^(\\d+)\\. (?:\\*\\*)?`[\\w/.-]+\\.go` `[\\w.]+`(?:\\*\\*)?: \\S")
	total   = regexp.MustCompile(`^#### Stops of .*: (\d+)$`)
)

// declared returns the functions of a file, and its methods as Type.method.
func declared(t *testing.T, file string) map[string]bool {
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "..", file), nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	names := map[string]bool{}
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		name := fn.Name.Name
		if fn.Recv != nil {
			name = receiver(fn.Recv.List[0].Type) + "." + name
		}
		names[name] = true
	}
	return names
}

// receiver returns the name of the type of a receiver, without its pointer and type parameters.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

func TestDesignNamesFunctionsThatExist(t *testing.T) {
	found := located.FindAllStringSubmatch(read(t, "docs/design.md"), -1)
	require.Greater(t, len(found), 100)
	files := map[string]map[string]bool{}
	for _, m := range found {
		file, name := m[1], m[2]
		if files[file] == nil {
			files[file] = declared(t, file)
		}
		require.True(t, name == "" || files[file][name], "%s does not declare %s", file, name)
	}
}

// The heading of a list of stops says how many there are. A Deploy has those of its create as well,
// except for the public method.
func TestDesignCountsItsStops(t *testing.T) {
	var lists []int
	want, got := 0, 0
	text := read(t, "docs/design.md")
	for line := range strings.Lines(text + "\n#\n") {
		line = strings.TrimSuffix(line, "\n")
		if m := stop.FindStringSubmatch(line); m != nil && want > 0 {
			got++
			require.Equal(t, strconv.Itoa(got), m[1], line)
		}
		if strings.HasPrefix(line, "#") {
			require.Equal(t, want, got, "stops before %q", line)
			want, got = 0, 0
		}
		if m := total.FindStringSubmatch(line); m != nil {
			want, _ = strconv.Atoi(m[1])
			lists = append(lists, want)
		}
	}
	require.Len(t, lists, 3)
	deploy := lists[0] - 1 + lists[2]
	require.Contains(t, text, fmt.Sprintf(": %d stops together.", deploy))
	for i, most := range []int{24, 28, 45} { // of a create, an upload and a Deploy with a ledger: more is too much for one reader
		require.LessOrEqual(t, []int{lists[0], lists[1], deploy}[i], most)
	}
}

var (
	participant = regexp.MustCompile(`^participant (\w+) as \S.*$`)
	message     = regexp.MustCompile(`^(\w+)--?>>(\w+): \S`)
	block       = regexp.MustCompile(`^(loop|alt|opt) \S`)
	transition  = regexp.MustCompile(`^(\[\*\]|\w+) --> (\[\*\]|\w+)(: \S.*)?$`)
)

func TestDesignDiagramsAreWellFormed(t *testing.T) {
	diagrams := regexp.MustCompile("(?s)```mermaid\n(.*?)\n```").FindAllStringSubmatch(read(t, "docs/design.md"), -1)
	require.Len(t, diagrams, 5)
	for _, d := range diagrams {
		kind, rest, _ := strings.Cut(d[1], "\n")
		switch kind {
		case "sequenceDiagram":
			checkSequence(t, rest)
		case "stateDiagram-v2":
			checkStates(t, rest)
		default:
			require.Fail(t, "unknown kind of diagram", kind)
		}
	}
}

// checkSequence wants participants that are declared before they are used, and blocks that end.
func checkSequence(t *testing.T, text string) {
	known, open := map[string]bool{}, 0
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSpace(line)
		p, m := participant.FindStringSubmatch(line), message.FindStringSubmatch(line)
		switch {
		case p != nil:
			require.False(t, known[p[1]], "declared twice: %s", line)
			known[p[1]] = true
		case m != nil:
			require.True(t, known[m[1]] && known[m[2]], "not declared: %s", line)
		case block.MatchString(line):
			open++
		case line == "end":
			open--
			require.GreaterOrEqual(t, open, 0, "nothing to end")
		default:
			require.Truef(t, open > 0 && strings.HasPrefix(line, "else "), "not understood: %s", line)
		}
		require.NotContains(t, line, ";", "Mermaid ends a statement there")
	}
	require.Zero(t, open, "a block does not end")
}

func checkStates(t *testing.T, text string) {
	note := false
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "note "):
			require.False(t, note)
			note = true
		case line == "end note":
			require.True(t, note)
			note = false
		default:
			require.True(t, note || transition.MatchString(line), "not understood: %s", line)
		}
	}
	require.False(t, note, "a note does not end")
}
