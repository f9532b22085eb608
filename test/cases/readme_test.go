package cases_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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
