package errbody

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFlat(t *testing.T) {
	for body, want := range map[string]Info{
		`{"code":"a","message":"b c"}`:                           {Code: "a", Message: "b c"},
		` { "message" : "m" , "code":"c", "request_id":"r-1" } `: {Code: "c", Message: "m", RequestID: "r-1"},
	} {
		got, ok := flat(trim([]byte(body)))
		require.True(t, ok, body)
		require.Equal(t, want, got, body)
	}
	for _, body := range []string{
		``, `{`, `{}`, `{"code":"a"}`, `{"message":"a"}`, `{"code":1,"message":"b"}`, `{"code":"a","message":"b",}`,
		`{"code":"a","message":"b"}}`, `{"code":"a","message":"b","detail":"c"}`, `{"code":"a","message":"b\n"}`,
		`{"code":"a","code":"b","message":"c"}`, `{"code":"","message":"c"}`, `{"code":"a" "message":"c"}`,
		`{"code":"a","message":"é"}`, `["code":"a","message":"c"}`, `{"code" "a","message":"c"}`, `{"code":"a","message":"c`,
	} {
		_, ok := flat([]byte(body))
		require.False(t, ok, body)
	}
}

// What the short way finds is what the long way finds.
func FuzzFlat(f *testing.F) {
	f.Add("a", "b c", "r")
	f.Add("not_found", "there is no such thing", "")
	f.Fuzz(func(t *testing.T, code, message, id string) {
		body, err := json.Marshal(map[string]string{"code": code, "message": message, "request_id": id})
		require.NoError(t, err)
		short, ok := flat(body)
		if !ok {
			return
		}
		long, ok := fromJSON(append(body[:len(body)-1:len(body)-1], []byte(`,"x":null}`)...))
		require.True(t, ok)
		require.Equal(t, long, short)
	})
}
