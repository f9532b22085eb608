package faults_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

// secretsBook prints the values that the package returns, and records which types it has
// seen.
type secretsBook struct {
	types   map[reflect.Type]bool
	parts   map[string]bool // types and faults that were printed in all formats
	secrets int             // number of values that held a secret and did not show it
}

// see records the types of a value and of everything that can be reached from it.
func (b *secretsBook) see(v reflect.Value, secrets map[string]bool) {
	if !v.IsValid() {
		return
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			b.see(v.Elem(), secrets)
		}
		return
	case reflect.Slice, reflect.Array:
		for i := range min(v.Len(), 3) {
			b.see(v.Index(i), secrets)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			b.see(v.MapIndex(key), secrets)
		}
	case reflect.String:
		for secret := range secrets {
			b.secrets += testkit.One(strings.Contains(v.String(), secret))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				b.see(v.Field(i), secrets)
			}
		}
	}
	if v.Type().PkgPath() == "example.com/svc" && !v.IsZero() {
		b.types[v.Type()] = true
	}
}

// take prints the values of a cell in all formats and checks that no secret of the cell
// is visible.
func (b *secretsBook) take(c *matrixCell, fault string, values ...any) {
	p := testkit.NewPrinted()
	for _, v := range values {
		b.see(reflect.ValueOf(v), c.secrets)
		key := fmt.Sprintf("%T %s", v, fault)
		if b.parts[key] { // this type was already printed in all formats
			p.Add(v, testkit.CommonFormats)
			continue
		}
		b.parts[key] = true
		p.Add(v, testkit.Formats)
		p.AddParts(v)
	}
	p.Write(c.log.Bytes())
	p.RequireWithout(c.t, c.needles())
}

// needles returns the secrets of the cell in all encodings. It uses a part of each secret
// that occurs in no other word.
func (c *matrixCell) needles() (all []string) {
	for secret := range c.secrets {
		if secret == matrixToken {
			secret = "5ecre7-0123456789"
		}
		all = append(all, testkit.NeedlesOf(secret[:min(len(secret), 17)])...)
	}
	return all
}

// layers returns an error and all errors that it wraps.
func layers(err error) (all []any) {
	matrixUnwrap(err, func(e error) { all = append(all, e) })
	return all
}

// A program may print any value that it got from this package, in any format and after
// any fault. The output contains neither the token nor the signature of a presigned URL.
func TestNothingShowsASecret_B07(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector makes the search in texts slow, and finds nothing in it")
	}
	book := &secretsBook{types: map[reflect.Type]bool{}, parts: map[string]bool{}}
	ops := append(slices.Clone(matrixOps), compositeOps...)
	t.Run("calls", func(t *testing.T) {
		for i := range ops {
			op := &ops[i]
			t.Run(op.name, func(t *testing.T) {
				for name, fault := range faultsOfService(i) {
					t.Run(name, func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							c := newMatrixCell(t, op)
							c.meet = func(_ int, req *http.Request) (*http.Response, error) { return c.pass(req) }
							fault(c)
							value, err := op.run(t.Context(), c)
							values := layers(err)
							switch many, ok := value.([]any); {
							case ok:
								values = append(values, many...)
							case !strings.HasPrefix(op.name, "Do "): // the value of Do is the unchanged response
								values = append(values, value)
							}
							for _, a := range c.reports[:min(len(c.reports), 2)] {
								values = append(values, a)
								values = append(values, layers(a.Err)...)
							}
							for _, call := range c.calls[:min(len(c.calls), 2)] {
								values = append(values, call, call.Outcome)
								values = append(values, layers(call.Err)...)
								if e, ok := errors.AsType[*svc.Error](call.Err); ok {
									values = append(values, e.RequestInfo)
								}
							}
							book.take(c, name, values...)
						})
					})
				}
			})
		}
	})
	t.Run("what callers make", func(t *testing.T) {
		c := newMatrixCell(t, &matrixOps[0])
		book.take(c, "none of them", append(callersValues(c), *c.client, c.client)...)
	})
	t.Run("types", func(t *testing.T) {
		seen := map[string]bool{}
		for typ := range book.types {
			name, _, _ := strings.Cut(typ.Name(), "[")
			seen[name] = true
		}
		for _, name := range exportedTypes(t) {
			require.True(t, seen[name], "no value of the exported type %s was printed, or only empty ones: add a call that returns one, or add one to callersValues", name)
		}
		require.Greater(t, book.secrets, 100, "the test needs values that hold a secret")
	})
}

// exportedTypes returns the names of the exported types of the package, without
// interfaces. The types that implement an interface are in the list.
func exportedTypes(t *testing.T) (types []string) {
	paths, err := filepath.Glob(filepath.Join("..", "..", "*.go"))
	require.NoError(t, err)
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, decl := range file.Decls {
			if d, ok := decl.(*ast.GenDecl); ok && d.Tok == token.TYPE {
				for _, spec := range d.Specs {
					s := spec.(*ast.TypeSpec)
					if _, isInterface := s.Type.(*ast.InterfaceType); s.Name.IsExported() && !isInterface {
						types = append(types, s.Name.Name)
					}
				}
			}
		}
	}
	require.Greater(t, len(types), 50, "the files of the package were not found")
	return types
}
