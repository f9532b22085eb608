package faults_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"os"
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

// secretsTypes are the exported types of the package. Each must have shown up with
// something in it: from a call, or among [callersValues].
var secretsTypes = []reflect.Type{
	reflect.TypeFor[svc.Attempt](),
	reflect.TypeFor[svc.Client](),
	reflect.TypeFor[svc.CreateDeployMetadata](),
	reflect.TypeFor[svc.CreateImageJobRequest](),
	reflect.TypeFor[svc.CreateInferenceServiceRequest](),
	reflect.TypeFor[svc.CreateResourceMetadata](),
	reflect.TypeFor[svc.CreateVideoJobRequest](),
	reflect.TypeFor[svc.Currency](),
	reflect.TypeFor[svc.DecodeError](),
	reflect.TypeFor[svc.Cleanup](),
	reflect.TypeFor[svc.DeployError](),
	reflect.TypeFor[svc.DeployMetadata](),
	reflect.TypeFor[svc.DeployOptions](),
	reflect.TypeFor[svc.DownloadError](),
	reflect.TypeFor[svc.DownloadOptions](),
	reflect.TypeFor[svc.Error](),
	reflect.TypeFor[svc.FieldError](),
	reflect.TypeFor[svc.File](),
	reflect.TypeFor[svc.FileClient](),
	reflect.TypeFor[svc.FilePurpose](),
	reflect.TypeFor[svc.Flavor](),
	reflect.TypeFor[svc.FlavorBilling](),
	reflect.TypeFor[svc.FlavorClient](),
	reflect.TypeFor[svc.FlavorMetaInfo](),
	reflect.TypeFor[svc.FlavorQuery](),
	reflect.TypeFor[svc.GenMode](),
	reflect.TypeFor[svc.ImageConfig](),
	reflect.TypeFor[svc.ImageJobClient](),
	reflect.TypeFor[svc.ImageJobConfig](),
	reflect.TypeFor[svc.ImageJobSettings](),
	reflect.TypeFor[svc.InferenceService](),
	reflect.TypeFor[svc.InferenceServiceClient](),
	reflect.TypeFor[svc.InferenceServiceStatus](),
	reflect.TypeFor[svc.Int](),
	reflect.TypeFor[svc.Job](),
	reflect.TypeFor[svc.JobList](),
	reflect.TypeFor[svc.JobMetaInfo](),
	reflect.TypeFor[svc.JobOutput](),
	reflect.TypeFor[svc.JobStatus](),
	reflect.TypeFor[svc.JobType](),
	reflect.TypeFor[svc.JobUser](),
	reflect.TypeFor[svc.ListJobsOptions](),
	reflect.TypeFor[svc.Option](),
	reflect.TypeFor[svc.OutcomeUnknownError](),
	reflect.TypeFor[svc.Outputs](),
	reflect.TypeFor[svc.PageError](),
	reflect.TypeFor[svc.PaymentType](),
	reflect.TypeFor[svc.Poll](),
	reflect.TypeFor[svc.Price](),
	reflect.TypeFor[svc.PublicFile](),
	reflect.TypeFor[svc.RateLimiter](),
	reflect.TypeFor[svc.Region](),
	reflect.TypeFor[svc.RegisterFileRequest](),
	reflect.TypeFor[svc.RegisteredFile](),
	reflect.TypeFor[svc.RequestOption](),
	reflect.TypeFor[svc.ResourceMetadata](),
	reflect.TypeFor[svc.Response](),
	reflect.TypeFor[svc.RetryPolicy](),
	reflect.TypeFor[svc.ScaleType](),
	reflect.TypeFor[svc.Secret](),
	reflect.TypeFor[svc.ServiceAPIToken](),
	reflect.TypeFor[svc.ServiceType](),
	reflect.TypeFor[svc.SignedURL](),
	reflect.TypeFor[svc.StatusChange](),
	reflect.TypeFor[svc.Time](),
	reflect.TypeFor[svc.TransportError](),
	reflect.TypeFor[svc.UpdateInferenceServiceRequest](),
	reflect.TypeFor[svc.UpdateResourceMetadata](),
	reflect.TypeFor[svc.UploadError](),
	reflect.TypeFor[svc.UploadOptions](),
	reflect.TypeFor[svc.UploadRequest](),
	reflect.TypeFor[svc.UploadResult](),
	reflect.TypeFor[svc.UploadStage](),
	reflect.TypeFor[svc.ValidationError](),
	reflect.TypeFor[svc.VideoJobClient](),
	reflect.TypeFor[svc.VideoJobConfig](),
	reflect.TypeFor[svc.VideoJobSettings](),
	reflect.TypeFor[svc.WaitError](),
	reflect.TypeFor[svc.WaitOptions](),
}

// sentinels are the exported variables of the package.
var sentinels = map[string]error{
	"ErrChanged":        svc.ErrChanged,
	"ErrConflict":       svc.ErrConflict,
	"ErrForbidden":      svc.ErrForbidden,
	"ErrJobFailed":      svc.ErrJobFailed,
	"ErrLinkExpired":    svc.ErrLinkExpired,
	"ErrNoInferenceURL": svc.ErrNoInferenceURL,
	"ErrNoToken":        svc.ErrNoToken,
	"ErrNotFound":       svc.ErrNotFound,
	"ErrOutcomeUnknown": svc.ErrOutcomeUnknown,
	"ErrPagesRepeat":    svc.ErrPagesRepeat,
	"ErrRateLimited":    svc.ErrRateLimited,
	"ErrRedirect":       svc.ErrRedirect,
	"ErrRetired":        svc.ErrRetired,
	"ErrServer":         svc.ErrServer,
	"ErrStopped":        svc.ErrStopped,
	"ErrTimeout":        svc.ErrTimeout,
	"ErrTooLarge":       svc.ErrTooLarge,
	"ErrTruncated":      svc.ErrTruncated,
	"ErrUnauthorized":   svc.ErrUnauthorized,
	"ErrUnavailable":    svc.ErrUnavailable,
}

// secretsBook prints what the package hands out, and keeps count of its types.
type secretsBook struct {
	types   map[reflect.Type]bool
	parts   map[string]bool // types and faults that have been printed in all ways
	secrets int             // values that held a secret and did not show it
}

// see notes the types of a value and of all that can be reached from it.
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

// take prints the values of a cell and looks for its secrets.
func (b *secretsBook) take(c *matrixCell, fault string, values ...any) {
	p := testkit.NewPrinted()
	for _, v := range values {
		b.see(reflect.ValueOf(v), c.secrets)
		key := fmt.Sprintf("%T %s", v, fault)
		if b.parts[key] { // of this type all ways have been tried
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

// needles are those of the secrets of a cell. The part of each that is looked for
// is in no other word.
func (c *matrixCell) needles() (all []string) {
	for secret := range c.secrets {
		if secret == matrixToken {
			secret = "5ecre7-0123456789"
		}
		all = append(all, testkit.NeedlesOf(secret[:min(len(secret), 17)])...)
	}
	return all
}

// layers are an error and all that it wraps.
func layers(err error) (all []any) {
	matrixUnwrap(err, func(e error) { all = append(all, e) })
	return all
}

// Whatever a program prints of what it got from this package, in whatever way and
// after whatever fault, holds neither the token nor the key of a link.
func TestB07_NothingShowsASecret(t *testing.T) {
	book := &secretsBook{types: map[reflect.Type]bool{}, parts: map[string]bool{}}
	ops := append(slices.Clone(matrixOps), hardenOps...)
	t.Run("calls", func(t *testing.T) {
		for i := range ops {
			op := &ops[i]
			t.Run(op.name, func(t *testing.T) {
				for name, fault := range hardenFaults(i) {
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
							case !strings.HasPrefix(op.name, "Do "): // whose value is the caller's own, as it came
								values = append(values, value)
							}
							for _, a := range c.reports[:min(len(c.reports), 2)] {
								values = append(values, a)
								values = append(values, layers(a.Err)...)
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
		types, vars := exportedNames(t)
		known := map[string]bool{}
		for _, typ := range secretsTypes {
			name, _, _ := strings.Cut(typ.Name(), "[")
			known[name] = true
			if typ.Kind() != reflect.Interface { // that shows up as what implements it
				require.True(t, book.types[typ], "%v never showed up, or only empty", typ)
			}
		}
		for _, name := range types {
			require.True(t, known[name], "the exported type %s has no row in secretsTypes: let a call give one, or add it to callersValues", name)
		}
		require.Len(t, secretsTypes, len(types), "a row for a type that is no more")
		require.Len(t, sentinels, len(vars), "a row for a variable that is no more")
		for _, name := range vars {
			require.Contains(t, sentinels, name, "the exported variable has no row in sentinels")
		}
		require.Greater(t, book.secrets, 100, "values that hold a secret: without them this test shows nothing")
	})
}

// exportedNames are the exported types and variables of the package, as they
// stand in its files.
func exportedNames(t *testing.T) (types, vars []string) {
	paths, err := filepath.Glob(filepath.Join("..", "..", "*.go"))
	require.NoError(t, err)
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		src, err := os.ReadFile(path)
		require.NoError(t, err)
		file, err := parser.ParseFile(token.NewFileSet(), path, src, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, decl := range file.Decls {
			d, ok := decl.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					if s.Name.IsExported() {
						types = append(types, s.Name.Name)
					}
				case *ast.ValueSpec:
					for _, name := range s.Names {
						if d.Tok == token.VAR && name.IsExported() {
							vars = append(vars, name.Name)
						}
					}
				}
			}
		}
	}
	require.Greater(t, len(types), 50, "the files of the package are found")
	return types, vars
}
