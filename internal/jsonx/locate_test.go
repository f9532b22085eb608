package jsonx_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/internal/jsonx"
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
	hidden    int
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
	Outer   int `json:"outer"` // hidden by the one outside
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

// number fails in its own way.
type number int

var errNumber = errors.New("not a number of ours")

func (n *number) UnmarshalJSON(b []byte) error {
	if b[0] == '"' {
		return errNumber
	}
	return json.Unmarshal(b, (*int)(n))
}

// outputs decodes itself, with elements that can be decoded one by one.
type outputs []meta

func (o *outputs) UnmarshalJSON(b []byte) error {
	if string(b) == "{}" {
		return nil
	}
	return json.Unmarshal(b, (*[]meta)(o))
}

func TestLocate(t *testing.T) {
	for data, want := range map[string]string{
		`{"flavor_list":[{},{},{},{"available_num":"two"}]}`:        "flavor_list[3].available_num",
		`{"flavor_list":[{"flavor_id":1}]}`:                         "flavor_list[0].flavor_id",
		`{"flavor_list":[{"FLAVOR_ID":1}]}`:                         "flavor_list[0].FLAVOR_ID",
		`{"flavor_list":[null,{"meta_info":{"cuda":{}}}]}`:          "flavor_list[1].meta_info.cuda",
		`{"flavor_list":[{"meta_info":{"next":{"next":[]}}}]}`:      "flavor_list[0].meta_info.next.next",
		`{"flavor_list":[{"meta_info":[]}]}`:                        "flavor_list[0].meta_info",
		`{"flavor_list":[{"labels":{"ok":1,"gpu-type":"x"}}]}`:      "flavor_list[0].labels.gpu-type",
		`{"flavor_list":[{"labels":{"a b":"x"}}]}`:                  `flavor_list[0].labels["a b"]`,
		`{"flavor_list":[{"labels":{"":"x"}}]}`:                     `flavor_list[0].labels[""]`,
		`{"flavor_list":[{"texts":{"k":[{},{"cuda":0}]}}]}`:         "flavor_list[0].texts.k[1].cuda",
		`{"flavor_list":[{"matrix":[[true],[true,0]]}]}`:            "flavor_list[0].matrix[1][1]",
		`{"flavor_list":[{"quoted":"x"}]}`:                          "flavor_list[0].quoted",
		`{"flavor_list":[{"quoted":1}]}`:                            "flavor_list[0].quoted",
		`{"flavor_list":[{"quoted":"1","quoted_ptr":"x"}]}`:         "flavor_list[0].quoted_ptr",
		`{"flavor_list":[{"not_quoted":[1,"x"]}]}`:                  "flavor_list[0].not_quoted[1]",
		`{"flavor_list":[{"when":"soon"}]}`:                         "flavor_list[0].when",
		`{"flavor_list":[{"plain":"x"}]}`:                           "flavor_list[0].plain",
		`{"flavor_list":[{"-":"x"}]}`:                               "flavor_list[0].-",
		`{"flavor_list":[{"created":"x"}]}`:                         "flavor_list[0].created",
		`{"flavor_list":[{"size":256}]}`:                            "flavor_list[0].size",
		`{"flavor_list":[{"named":{"n":"x"}}]}`:                     "flavor_list[0].named.n",
		`{"flavor_list":[{"outer":300}]}`:                           "flavor_list[0].outer",
		`{"flavor_list":[{"hidden":"x","Skipped":"x","plain":""}]}`: "flavor_list[0].plain",
		`{"flavor_list":[{"flavor_id":1,"flavor_id":"ok"}]}`:        "flavor_list[0].flavor_id",
		`{"flavor_list":{}}`:                                        "flavor_list",
		`{"flavor_list":{"a":1}}`:                                   "flavor_list",
		` { "flavor_list" : [ {} , { "flavor_id" : 1 } ] } `:        "flavor_list[1].flavor_id",
		`{"outputs":[{},{"cuda":1}]}`:                               "outputs[1].cuda",
		`{"outputs":{"cuda":1}}`:                                    "outputs",
		`[]`:                                                        "",
		`"x"`:                                                       "",
	} {
		dst := new(flavorList)
		require.Error(t, json.Unmarshal([]byte(data), dst), data)
		*dst = flavorList{}
		path, err := locate([]byte(data), dst)
		require.Error(t, err, data)
		require.Equal(t, want, path, data)
		require.Zero(t, *dst)
	}
}

func TestLocateGivesTheLeafError(t *testing.T) {
	_, err := locate([]byte(`{"flavor_list":[{"available_num":"two"}]}`), new(flavorList))
	require.Equal(t, errNumber, err)

	path, err := locate([]byte(`[1,2,"x"]`), new([]int))
	var typeErr *json.UnmarshalTypeError
	require.ErrorAs(t, err, &typeErr)
	require.Equal(t, "string", typeErr.Value)
	require.Equal(t, "[2]", path)

	path, err = locate([]byte(`{"a":{"b":[true]}}`), new(map[string]map[string][]*int))
	require.ErrorAs(t, err, &typeErr)
	require.Equal(t, "a.b[0]", path)

	path, err = locate([]byte(`{"flavor_list":[{},{"flavor_id": {}}]}`), new(flavorList))
	require.EqualError(t, err, "json: cannot unmarshal object into Go value of type string", "it does not repeat the path")
	require.ErrorAs(t, err, &typeErr)
	require.EqualValues(t, 1, typeErr.Offset, "within the value")
	require.Equal(t, "flavor_list[1].flavor_id", path)
}

func TestLocateWithoutAFault(t *testing.T) {
	for _, data := range []string{`{}`, `null`, `{"flavor_list":[{"Skipped":"x","hidden":"x","rest":[1],"free":{}}]}`} {
		dst := new(flavorList)
		require.NoError(t, json.Unmarshal([]byte(data), dst))
		for _, f := range dst.Flavors {
			require.Zero(t, f.Skipped+f.hidden)
		}
		path, err := locate([]byte(data), dst)
		require.NoError(t, err)
		require.Empty(t, path)
	}
}

func TestLocateOfWhatIsNotJSON(t *testing.T) {
	for _, data := range []string{``, `{`, `<html>`, `{} x`, `{"flavor_list":[{"available_num":"two"}`} {
		path, err := locate([]byte(data), new(flavorList))
		var syntaxErr *json.SyntaxError
		require.ErrorAs(t, err, &syntaxErr, data)
		require.Empty(t, path)
	}
	for _, dst := range []any{nil, flavorList{}, 1} {
		_, err := locate([]byte(`{}`), dst)
		var invalid *json.InvalidUnmarshalError
		require.ErrorAs(t, err, &invalid)
	}
	path, err := locate([]byte(`{"flavor_list":1}`), (*flavorList)(nil))
	require.Error(t, err)
	require.Equal(t, "flavor_list", path, "only the type counts")
}

func TestLocateShortensKeys(t *testing.T) {
	path, err := locate([]byte(`{"`+strings.Repeat("é", 1000)+`":"x"}`), new(map[string]int))
	require.Error(t, err)
	require.Equal(t, `["`+strings.Repeat("é", 32)+`…"]`, path)
}

// Fields of one name at the same depth hide each other.
func TestLocatePassesOverAmbiguousFields(t *testing.T) {
	type A struct{ X, Y int }
	type B struct {
		X int
		Z int `json:"Y"`
	}
	type both struct {
		A
		B
		Last int
	}
	path, err := locate([]byte(`{"X":"x","Last":"x"}`), new(both))
	require.Error(t, err)
	require.Equal(t, "Last", path)
	path, err = locate([]byte(`{"Y":"x","Last":"x"}`), new(both))
	require.Error(t, err)
	require.Equal(t, "Y", path, "the tag decides")
}

type Loop struct {
	*Loop
	List []Loop           `json:"list"`
	Map  map[string]*Loop `json:"map"`
	Leaf int              `json:"leaf"`
}

func TestLocateInRecursiveTypes(t *testing.T) {
	const depth = 200
	path, err := locate([]byte(strings.Repeat(`{"list":[`, depth)+`{"leaf":""}`+strings.Repeat(`]}`, depth)), new(Loop))
	require.Error(t, err)
	require.Equal(t, strings.Repeat("list[0].", depth)+"leaf", path)
}

// Long keys around many values must not multiply the work.
func TestLocateGivesUpAmongLongKeys(t *testing.T) {
	long := strings.Repeat("k", 1<<20)
	path, err := locate([]byte(`{"`+long+`":[`+strings.Repeat("0,", 1<<16)+`"x"]}`), new(map[string][]int))
	require.Error(t, err)
	require.Equal(t, `["`+long[:64]+`…"]`, path)
}

func locate(data []byte, dst any) (string, error) {
	return jsonx.Locate(data, dst, func(text string) string { return text })
}

func TestLocateScrubsBeforeItCuts(t *testing.T) {
	scrub := func(text string) string { return strings.ReplaceAll(text, "secret-of-many-letters", "X") }
	path, err := jsonx.Locate([]byte(`{"`+strings.Repeat("a", 50)+`secret-of-many-letters":"x"}`), new(map[string]int), scrub)
	require.Error(t, err)
	require.Equal(t, strings.Repeat("a", 50)+"X", path)
}

func FuzzLocate(f *testing.F) {
	for _, s := range []string{
		`{"flavor_list":[{"available_num":"two"}]}`, `{"flavor_list":[{"quoted":1,"labels":{"":[]}}]}`, `{"outputs":{"x":1}}`, `[`, `null`,
		`{"flavor_list":[{"meta_info":{"next":{"next":1}},"matrix":[[0]]}]}`, `{"leaf":1,"list":[{"map":{"a":{"leaf":""}}}]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, dst := range []any{new(flavorList), new(Loop), new([]map[string]flavor)} {
			want := json.Unmarshal(data, dst)
			path, err := locate(data, dst)
			require.Equal(t, want != nil, err != nil, "decoding says %v", want)
			if err == nil {
				require.Empty(t, path)
			}
		}
	})
}
