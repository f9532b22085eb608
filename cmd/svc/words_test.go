package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// neverShown are beginnings of texts of the library that name Go and that no user of the tool sees.
var neverShown = []string{
	// Options that the tool does not set, or sets rightly.
	"Currency must", "Header", "Key cannot be used with Use", "DeleteOnFailure", "RefuseEmpty cannot", "RegisterOptions", "RequestOptions", "Size must",
	"ContentType cannot", "WithMaxAttempts", "svc: With", "cannot be set here: the token belongs", "Probe cannot", "Probe is not called", "the transport of",
	"resource_metadata.flavor_id must be empty, since PickFlavor is set", "svc: PickFlavor returned", "svc: OnPoll", "the header Host",
	// Calls that the tool does not make: Client.Do, and Append of a record without a number.
	"must not hold a query", "the key must be",
	// The client has no logger.
	"svc: a lease cannot be enforced before Extend",
	// Not part of an error.
	"svc.SignedURL(", "svc.Secret(", "A ledger of endpoints", "Authorization ", "read after Close",
}

// capitalized matches a word that may be an identifier, and names of headers.
var capitalized = regexp.MustCompile(`\b[A-Z][\w-]*[a-z][\w-]*`)

// TestNoTextOfTheLibraryNamesGo: each text of the library that may reach a user of the tool names flags
// and commands after its replacement, and no identifier of Go.
func TestNoTextOfTheLibraryNamesGo(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	files, names := []*ast.File{}, map[string]bool{}
	for _, dir := range []string{".", "internal", "ledger", "probe"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && (dir == "." && path != root || d.Name() == "ledgertest" || d.Name() == "testkit"):
				return fs.SkipDir
			case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err == nil {
				files = append(files, f)
				ast.Inspect(f, func(n ast.Node) bool {
					for _, id := range declared(n) {
						names[id.Name] = names[id.Name] || id.IsExported() && !strings.HasPrefix(path, filepath.Join(root, "internal"))
					}
					return true
				})
			}
			return err
		}))
	}
	require.Greater(t, len(names), 100)
	for _, f := range files {
		for _, text := range texts(f) {
			if slices.ContainsFunc(neverShown, func(begin string) bool { return strings.HasPrefix(text, begin) }) {
				continue
			}
			for _, word := range capitalized.FindAllString(ofTheTool.Replace(text), -1) {
				require.False(t, names[word], "words.go does not replace %s in %q", word, text)
			}
		}
	}
}

// declared lists the identifiers that a declaration makes.
func declared(n ast.Node) []*ast.Ident {
	switch n := n.(type) {
	case *ast.FuncDecl:
		return []*ast.Ident{n.Name}
	case *ast.TypeSpec:
		return []*ast.Ident{n.Name}
	case *ast.ValueSpec:
		return n.Names
	case *ast.Field:
		return n.Names
	}
	return nil
}

// texts lists the strings of a file. Those of one call are one text, as of the field and the problem of
// a validation.
func texts(f *ast.File) (all []string) {
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec, *ast.Field:
			return false
		case *ast.CallExpr:
			var parts []string
			for _, arg := range n.Args {
				if format, ok := arg.(*ast.CallExpr); ok && len(format.Args) > 0 {
					arg = format.Args[0]
				}
				if text, ok := literal(arg); ok {
					parts = append(parts, text)
				}
			}
			if len(parts) > 1 {
				all = append(all, strings.Join(parts, " "))
				return false
			}
		case *ast.BasicLit:
			if text, ok := literal(n); ok && strings.Contains(text, " ") {
				all = append(all, text)
			}
		}
		return true
	})
	return all
}

func literal(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}
