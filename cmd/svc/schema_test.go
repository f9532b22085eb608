package main

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	invopop "github.com/invopop/jsonschema"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
)

// schemaName is the name of the schema of a command: "svc files upload" has files-upload.
func schemaName(c *command) string {
	return strings.ReplaceAll(strings.TrimPrefix(c.CommandPath(), "svc "), " ", "-")
}

// comments are the comments of the fields of all structs, by TYPE.FIELD.
var comments = sync.OnceValue(func() map[string]string {
	found := map[string]string{}
	files, _ := filepath.Glob("*.go")
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			panic(err)
		}
		typeName := ""
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				typeName = n.Name.Name
			case *ast.Field:
				for _, field := range n.Names {
					found[typeName+"."+field.Name] = strings.TrimSpace(n.Doc.Text() + n.Comment.Text())
				}
			}
			return true
		})
	}
	return found
})

// schema makes the JSON Schema of a command out of its view.
func schema(c *command) []byte {
	r := &invopop.Reflector{Anonymous: true, ExpandedStruct: true, DoNotReference: true, AllowAdditionalProperties: true,
		LookupComment: func(t reflect.Type, field string) string { return comments()[t.Name()+"."+field] }}
	s := r.ReflectFromType(reflect.TypeOf(c.empty()).Elem())
	s.Title, s.Description = c.CommandPath(), "What \"-o json\" and \"-o yaml\" write: "+c.Short+". Fields may be added."
	var failures, omitted []string
	for f := range reflect.TypeOf(c.empty()).Elem().Fields() { // one of outcome is replaced by one of the view
		if name, may := strings.CutSuffix(f.Tag.Get("json"), ",omitempty"); may {
			omitted = append(omitted, name)
		}
	}
	for f := range reflect.TypeFor[failure]().Fields() {
		failures = append(failures, f.Tag.Get("json"))
	}
	s.Required = slices.DeleteFunc(s.Required, func(name string) bool { return slices.Contains(slices.Concat(failures, omitted), name) })
	s.DependentRequired = map[string][]string{"error": failures}
	if kindField, ok := s.Properties.Get("error_kind"); ok {
		kindField.Description = "what went wrong; a new version may add kinds"
		for _, k := range kinds {
			if !slices.Contains(kindField.Enum, any(k.name)) {
				kindField.Enum = append(kindField.Enum, k.name)
			}
		}
	}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic(err)
	}
	return append(text, '\n')
}

func allCommands(t *testing.T) []*command {
	return newTool(nil, nil, nil, signals{ctx: t.Context()}).all
}

// TestSchemasAreUpToDate: each command has a schema, made out of its view.
func TestSchemasAreUpToDate(t *testing.T) {
	want := map[string][]byte{}
	for _, c := range allCommands(t) {
		want[schemaName(c)+".json"] = schema(c)
	}
	generated(t, "schema", want)
}

// strictSchemas are the schemas, without permission for fields that they do not describe.
var strictSchemas = sync.OnceValues(func() (map[string]*jsonschema.Schema, error) {
	files, err := filepath.Glob("schema/*.json")
	if err != nil {
		return nil, err
	}
	schemas := map[string]*jsonschema.Schema{}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	for _, file := range files {
		text, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		value, err := jsonschema.UnmarshalJSON(text)
		_ = text.Close()
		if err != nil {
			return nil, err
		}
		forbidMore(value)
		if err := compiler.AddResource(file, value); err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		if schemas[name], err = compiler.Compile(file); err != nil {
			return nil, err
		}
	}
	return schemas, nil
})

// forbidMore forbids fields that a schema does not describe.
func forbidMore(schema any) {
	object, ok := schema.(map[string]any)
	if !ok {
		return
	}
	if _, ok := object["properties"]; ok {
		object["additionalProperties"] = false
	}
	for _, below := range object {
		forbidMore(below)
	}
}

// checkSchema checks a document against the schema of its command. A command line that names no
// command has a document too: that of a message.
func checkSchema(t *testing.T, args []string, document any) {
	t.Helper()
	schemas, err := strictSchemas()
	require.NoError(t, err)
	var words []string
	for _, arg := range args {
		if !strings.HasPrefix(arg, "-") {
			words = append(words, arg)
		}
	}
	s := schemas["forget"]
	for _, n := range []int{1, 2} {
		if n <= len(words) && schemas[strings.Join(words[:n], "-")] != nil {
			s = schemas[strings.Join(words[:n], "-")]
		}
	}
	require.NoError(t, s.Validate(document), "svc %s", strings.Join(args, " "))
}
