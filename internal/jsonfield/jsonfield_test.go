package jsonfield_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc/internal/jsonfield"
)

func TestSet(t *testing.T) {
	for _, tt := range []struct {
		data, path string
		value      any
		want       string
	}{
		{`{}`, "a", 1, `{"a":1}`},
		{``, "a.b", "x", `{"a":{"b":"x"}}`},
		{" \n", "a", nil, `{"a":null}`},
		{` { } `, "a", true, `{"a":true}`},
		{`{"a":1}`, "a", 2, `{"a":2}`},
		{`{"a":1}`, "b", 2, `{"a":1,"b":2}`},
		{`{"a":1 }`, "b", 2, `{"a":1,"b":2}`},
		{`{"a":{"x":1}}`, "a.y", 2, `{"a":{"x":1,"y":2}}`},
		{`{"a":{}, "b":1}`, "a.y.z", 2, `{"a":{"y":{"z":2}},"b":1}`},
		{`{"a":{"x":1},"b":{"x":2}}`, "b.x", []int{3}, `{"a":{"x":1},"b":{"x":[3]}}`},
		{`{"a": {"x" : 1.0e0 , "y":2}}`, "a.x", map[string]int{"n": 1}, `{"a":{"x":{"n":1},"y":2}}`},
		{`{"a":1,"a":2}`, "a", 3, `{"a":3}`},
		{`{"\u0061":1}`, "a", 2, `{"a":2}`},
		{`{"A":1}`, "a", 2, `{"A":1,"a":2}`},
		{`{"a":[1,{"b":"}]"},"\"]"], "n":12345678901234567890}`, "b", "<&>", `{"a":[1,{"b":"}]"},"\"]"],"b":"\u003c\u0026\u003e","n":12345678901234567890}`},
		{`{"t":"a\\","b":"x"}`, "b", "y", `{"b":"y","t":"a\\"}`},
		{`{"a":1}`, "a", json.RawMessage(`{"kept" : 1e0}`), `{"a":{"kept":1e0}}`},
		{"{\t\"a\"\r\n:\n{ \"b\":\ttrue\n}\n}", "a.b", false, `{"a":{"b":false}}`},
		{`{}`, `ü"<`, 1, `{"ü\"\u003c":1}`},
	} {
		before := tt.data
		got, err := jsonfield.Set([]byte(tt.data), tt.path, tt.value)
		require.NoError(t, err, tt.data)
		require.Equal(t, tt.want, string(got))
		require.Equal(t, before, tt.data)
	}
}

func TestSetErrors(t *testing.T) {
	for _, tt := range []struct {
		data, path string
		value      any
		want       string
	}{
		{`{}`, "", 1, "the path has an empty part, or is not UTF-8"},
		{`{}`, "a..b", 1, "the path has an empty part, or is not UTF-8"},
		{`{}`, ".a", 1, "the path has an empty part, or is not UTF-8"},
		{`{}`, "a.", 1, "the path has an empty part, or is not UTF-8"},
		{`{}`, "a\xff", 1, "the path has an empty part, or is not UTF-8"},
		{`{"a":1}`, "a.b", 1, `the parent of the field "b" is not a JSON object`},
		{`{"a":{"b":null}}`, "a.b.c", 1, `the parent of the field "c" is not a JSON object`},
		{`{"a":[{}]}`, "a.b", 1, `the parent of the field "b" is not a JSON object`},
		{`[]`, "a", 1, `the parent of the field "a" is not a JSON object`},
		{`null`, "a", 1, `the parent of the field "a" is not a JSON object`},
		{`{"a":1`, "a", 1, `the parent of the field "a" is not a JSON object`},
		{`{} {}`, "a", 1, `the parent of the field "a" is not a JSON object`},
		{`{}`, "a", math.NaN(), "json: unsupported value: NaN"},
		{`{}`, "a", func() {}, "json: unsupported type: func()"},
	} {
		_, err := jsonfield.Set([]byte(tt.data), tt.path, tt.value)
		require.EqualError(t, err, tt.want)
	}
}

func FuzzSet(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":1,"b":{"c":[1,"]"]}}`, ``, `{"a":{"a":null}}`, `[`, `{"\"":"\\"}`, "{\"a\" : 0 }", "{}\f"} {
		f.Add([]byte(s), "a")
		f.Add([]byte(s), "b.c")
	}
	f.Fuzz(func(t *testing.T, data []byte, path string) {
		got, err := jsonfield.Set(data, path, "v")
		if err != nil {
			return
		}
		require.True(t, json.Valid(got), "%q", got)
		again, err := jsonfield.Set(got, path, "v")
		require.NoError(t, err)
		require.Equal(t, string(got), string(again))

		var object map[string]any
		require.NoError(t, json.Unmarshal(got, &object))
		var value any = object
		for name := range strings.SplitSeq(path, ".") {
			value = value.(map[string]any)[name]
		}
		require.Equal(t, "v", value)

		// All fields outside the path are unchanged.
		var old, all map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(got, &all))
		if len(bytes.Trim(data, " \t\r\n")) > 0 {
			require.NoError(t, json.Unmarshal(data, &old))
		}
		changed, _, _ := strings.Cut(path, ".")
		delete(old, changed)
		for name, raw := range old {
			require.JSONEq(t, string(raw), string(all[name]))
		}
	})
}

// picky is a list that accepts no value.
type picky []int

func (*picky) UnmarshalJSON([]byte) error { return errors.New("picky") }

// If a type of the caller refuses a value, its parts may fit all the same.
func TestDecodeFailsIfATypeOfTheCallerRefusesAValueWhosePartsFit(t *testing.T) {
	var dst struct{ List picky }
	path, err := jsonfield.Decode([]byte(`{"List":[1]}`), &dst, nil)
	require.EqualError(t, err, "picky")
	require.Equal(t, "List", path)
	_, err = jsonfield.Decode([]byte(`[1]`), &dst.List, nil)
	require.EqualError(t, err, "picky")
}
