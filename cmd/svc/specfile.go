package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"

	"example.com/svc"
)

// maxSpec is how long the file of --file may be.
const maxSpec = 1 << 20

// readSpec reads the create request of --file into req. A field that the file does not have keeps
// its value. An unknown field is an error, and so is anything after the request.
func readSpec(ctx context.Context, file string, stdin io.Reader, req *svc.CreateInferenceServiceRequest) error {
	read := func() ([]byte, error) { return readFile(ctx, file, maxSpec) }
	if file == "-" {
		file = "standard input"
		read = func() ([]byte, error) { return readLimited(ctx, stdin, file, maxSpec) }
	}
	text, err := read()
	if err != nil {
		return fmt.Errorf("--file: %w", err)
	}
	if text, err = oneDocument(text); err == nil {
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		err = d.Decode(req)
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		err = wrongType(wrong)
	}
	if err != nil {
		return fmt.Errorf("--file: %s: %s", file, strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// oneDocument returns the only document of a YAML text, as JSON.
func oneDocument(text []byte) ([]byte, error) {
	var fields, more map[string]any
	d := yaml.NewDecoder(bytes.NewReader(text))
	err := d.Decode(&fields)
	switch {
	case errors.Is(err, io.EOF) || err == nil && fields == nil:
		return nil, errors.New("it is empty")
	case isA[*yaml.TypeError](err), err == nil && hasTwice(fields):
		return nil, errors.New("it must hold the fields of a create request, each of them once")
	case err != nil:
		return nil, err
	}
	if err := d.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("it has more than one document: it must hold one request")
	}
	text, err = json.Marshal(fields)
	if err != nil {
		return nil, errors.New("it has a field name or value that JSON does not have, such as 1: or .nan")
	}
	return text, nil
}

// hasTwice reports whether two fields have names that differ in their case alone: the decoder would take one of them.
func hasTwice(fields map[string]any) bool {
	seen := map[string]bool{}
	for name, value := range fields {
		more, _ := value.(map[string]any)
		if seen[strings.ToLower(name)] || hasTwice(more) {
			return true
		}
		seen[strings.ToLower(name)] = true
	}
	return false
}

// wrongType returns the error of a field with a value of the wrong type.
func wrongType(err *json.UnmarshalTypeError) error {
	want := "a whole number"
	switch err.Type.Kind() {
	case reflect.String:
		want = "a string (in quotes)"
	case reflect.Struct:
		want = "a list of fields and values"
	}
	return fmt.Errorf("%s must be %s, not %s", err.Field, want, err.Value)
}
