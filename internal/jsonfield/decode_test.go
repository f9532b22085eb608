package jsonfield_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/internal/jsonfield"
)

type flavor struct {
	ID        string            `json:"flavor_id"`
	Available number            `json:"available_num"`
	Labels    map[string]int    `json:"labels"`
	Meta      *meta             `json:"meta_info"`
	Rest      json.RawMessage   `json:"rest"`
	Free      any               `json:"free"`
	Quoted    int               `json:"quoted,string"`
	QuotedPtr *int              `json:"quoted_ptr,string"`
	NotQuoted []int             `json:"not_quoted,omitempty,string"` //nolint:staticcheck // the option is ignored here
	Matrix    [2][]bool         `json:"matrix"`
	Texts     map[string][]meta `json:"texts"`
	When      time.Time         `json:"when"`
	Plain     float64
	Skipped   int `json:"-"`
	Dash      int `json:"-,"` //nolint:staticcheck // a name like any other
	hidden    int //nolint:unused // a decoder passes it over
	shared
	*Pointed
	Named `json:"named"`
	Outer int8 `json:"outer"`
}

type meta struct {
	CUDA string `json:"cuda"`
	Next *meta  `json:"next"`
}

type shared struct {
	Created int `json:"created"`
	Outer   int `json:"outer"` // hidden by the field Outer of the outer struct
}

type Pointed struct {
	Size uint8 `json:"size"`
}

type Named struct {
	N int `json:"n"`
}

type flavorList struct {
	Flavors []*flavor `json:"flavor_list"`
	Extra   outputs   `json:"outputs"`
}

// number returns an error of its own type for a value that does not fit.
type number int

var errNumber = errors.New("not a number of ours")

func (n *number) UnmarshalJSON(b []byte) error {
	if b[0] == '"' {
		return errNumber
	}
	return json.Unmarshal(b, (*int)(n))
}

// outputs has its own UnmarshalJSON. If that fails, its elements can still be decoded one
// by one.
type outputs []meta

func (o *outputs) UnmarshalJSON(b []byte) error {
	if string(b) == "{}" {
		return nil
	}
	return json.Unmarshal(b, (*[]meta)(o))
}

// Without a function that says which fields must fit, Decode works like json.Unmarshal,
// and also returns the path of the field that failed.
func TestDecodeFindsTheField(t *testing.T) {
	for data, want := range map[string]string{
		`{"flavor_list":[{},{},{},{"available_num":"two"}]}`:        "flavor_list[3].available_num",
		`{"flavor_list":[{"flavor_id":1}]}`:                         "flavor_list[0].flavor_id",
		`{"flavor_list":[{"FLAVOR_ID":1}]}`:                         "flavor_list[0].FLAVOR_ID",
		`{"flavor_list":[null,{"meta_info":{"cuda":{}}}]}`:          "flavor_list[1].meta_info.cuda",
		`{"flavor_list":[{"meta_info":{"next":{"next":[]}}}]}`:      "flavor_list[0].meta_info.next.next",
		`{"flavor_list":[{"meta_info":[]}]}`:                        "flavor_list[0].meta_info",
		`{"flavor_list":[{"labels":{"ok":1,"gpu-type":"x"}}]}`:      "flavor_list[0].labels",
		`{"flavor_list":[{"matrix":[[true],[true,0]]}]}`:            "flavor_list[0].matrix",
		`{"flavor_list":[{"quoted":"x"}]}`:                          "flavor_list[0].quoted",
		`{"flavor_list":[{"quoted":1}]}`:                            "flavor_list[0].quoted",
		`{"flavor_list":[{"quoted":"1","quoted_ptr":"x"}]}`:         "flavor_list[0].quoted_ptr",
		`{"flavor_list":[{"not_quoted":[1,"x"]}]}`:                  "flavor_list[0].not_quoted[1]",
		`{"flavor_list":[{"when":"soon"}]}`:                         "flavor_list[0].when",
		`{"flavor_list":[{"when":{}}]}`:                             "flavor_list[0].when",
		`{"flavor_list":[{"plain":"x"}]}`:                           "flavor_list[0].plain",
		`{"flavor_list":[{"created":"x"}]}`:                         "flavor_list[0].created",
		`{"flavor_list":[{"size":256}]}`:                            "flavor_list[0].size",
		`{"flavor_list":[{"named":{"n":"x"}}]}`:                     "flavor_list[0].named.n",
		`{"flavor_list":[{"outer":300}]}`:                           "flavor_list[0].outer",
		`{"flavor_list":[{"hidden":"x","Skipped":"x","plain":""}]}`: "flavor_list[0].plain",
		`{"flavor_list":[{"a\u0000":"x","\u00ff":1,"plain":""}]}`:   "flavor_list[0].plain",
		`{"flavor_list":{}}`:                                        "flavor_list",
		`{"flavor_list":{"a":1}}`:                                   "flavor_list",
		` { "flavor_list" : [ {} , { "flavor_id" : 1 } ] } `:        "flavor_list[1].flavor_id",
		`{"outputs":[{},{"cuda":1}]}`:                               "outputs[1].cuda",
		`{"outputs":{"cuda":1}}`:                                    "outputs",
		`[]`:                                                        "",
		`"x"`:                                                       "",
	} {
		path, err := jsonfield.Decode([]byte(data), new(flavorList), nil)
		require.Error(t, err, data)
		require.Equal(t, want, path, data)
	}
}

func TestDecodeGivesTheErrorOfTheField(t *testing.T) {
	_, err := jsonfield.Decode([]byte(`{"flavor_list":[{"available_num":"two"}]}`), new(flavorList), nil)
	require.Equal(t, errNumber, err)

	path, err := jsonfield.Decode([]byte(`[1,2,"x"]`), new([]int), nil)
	var typeErr *json.UnmarshalTypeError
	require.ErrorAs(t, err, &typeErr)
	require.Equal(t, "string", typeErr.Value)
	require.Equal(t, "[2]", path)

	_, err = jsonfield.Decode([]byte(`{"flavor_list":[{},{"flavor_id": {}}]}`), new(flavorList), nil)
	require.EqualError(t, err, "json: cannot unmarshal object into Go value of type string", "it does not repeat the path")
}

func TestDecodeOfWhatIsNotJSON(t *testing.T) {
	for _, data := range []string{``, `{`, `<html>`, `{} x`, `{"flavor_list":[{"available_num":"two"}`} {
		for _, must := range []func(string) bool{nil, func(string) bool { return false }} {
			path, err := jsonfield.Decode([]byte(data), new(flavorList), must)
			var syntaxErr *json.SyntaxError
			require.ErrorAs(t, err, &syntaxErr, data)
			require.Empty(t, path)
		}
	}
	for _, dst := range []any{nil, flavorList{}, 1, (*flavorList)(nil)} {
		_, err := jsonfield.Decode([]byte(`{}`), dst, nil)
		var invalid *json.InvalidUnmarshalError
		require.ErrorAs(t, err, &invalid)
	}
}

// A field that need not fit stays zero if its value does not fit, and all other fields
// are decoded.
func TestDecodeToleratesOddInformation(t *testing.T) {
	must := func(key string) bool { return key == "" || key == "flavor_list" || key == "flavor_id" }
	var list flavorList
	path, err := jsonfield.Decode([]byte(`{"flavor_list":[{"flavor_id":"a","meta_info":{"cuda":12.40,"next":7},"labels":[],"texts":1,"rest":{"a": 1e0},`+
		`"when":"soon","plain":"x","named":"x","size":3,"quoted":"4"},null,{"flavor_id":"b","meta_info":[]}],"outputs":{"cuda":1}}`), &list, must)
	require.NoError(t, err)
	require.Empty(t, path)
	require.Len(t, list.Flavors, 3)
	require.Nil(t, list.Flavors[1])
	want := flavor{ID: "a", Meta: &meta{CUDA: "12.40"}, Rest: json.RawMessage(`{"a": 1e0}`), Quoted: 4, Pointed: &Pointed{Size: 3}}
	want.Meta.Next = list.Flavors[0].Meta.Next // the pointer is set, to a zero value
	require.Zero(t, *want.Meta.Next)
	require.Equal(t, want, *list.Flavors[0])
	require.Equal(t, "b", list.Flavors[2].ID)

	for data, want := range map[string]string{
		`{"flavor_list":[{"labels":[],"flavor_id":1}]}`:      "flavor_list[0].flavor_id",
		`{"flavor_list":[{"labels":[],"quoted":"x"}]}`:       "flavor_list[0].quoted",
		`{"flavor_list":[{"labels":[],"named":{"n":true}}]}`: "flavor_list[0].named.n",
		`{"flavor_list":[{},5]}`:                             "flavor_list[1]",
		`{"flavor_list":7}`:                                  "flavor_list",
		`7`:                                                  "",
	} {
		path, err := jsonfield.Decode([]byte(data), new(flavorList), must)
		require.Error(t, err, data)
		require.Equal(t, want, path)
	}
}

type Loop struct {
	*Loop
	List []Loop           `json:"list"`
	Map  map[string]*Loop `json:"map"`
	Leaf int              `json:"leaf"`
}

// The time for a recursive type must not grow exponentially with the depth.
func TestDecodeInRecursiveTypes(t *testing.T) {
	const depth = 2000
	path, err := jsonfield.Decode([]byte(strings.Repeat(`{"list":[`, depth)+`{"leaf":""}`+strings.Repeat(`]}`, depth)), new(Loop), nil)
	require.Error(t, err)
	require.True(t, strings.HasPrefix(path, "list[0].list[0]."), path)
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		`{"flavor_list":[{"available_num":"two"}]}`, `{"flavor_list":[{"quoted":1,"labels":{"":[]}}]}`, `{"outputs":{"x":1}}`, `[`, `null`,
		`{"flavor_list":[{"meta_info":{"next":{"next":1}},"matrix":[[0]]}]}`, `{"leaf":1,"list":[{"map":{"a":{"leaf":""}}}]}`, `{"Loop":{"leaf":""}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, dst := range []func() any{func() any { return new(flavorList) }, func() any { return new(Loop) }, func() any { return new([]map[string]flavor) }} {
			want := dst()
			failure := json.Unmarshal(data, want)
			path, err := jsonfield.Decode(data, dst(), nil)
			require.Equal(t, failure != nil, err != nil, "decoding says %v", failure)
			if err == nil {
				require.Empty(t, path)
			}
			got := dst()
			if _, err = jsonfield.Decode(data, got, func(key string) bool { return key == "" }); failure == nil {
				require.NoError(t, err)
				require.Equal(t, want, got)
			}
		}
	})
}
