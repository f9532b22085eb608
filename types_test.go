package svc_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

// requireTypeError checks for an error that says what does not fit into T.
func requireTypeError[T any](t *testing.T, text, value string) {
	t.Helper()
	err := json.Unmarshal([]byte(`{"field":`+text+`}`), &struct{ Field T }{})
	var typeErr *json.UnmarshalTypeError
	require.ErrorAs(t, err, &typeErr, text)
	require.Equal(t, value, typeErr.Value)
	require.Equal(t, reflect.TypeFor[T](), typeErr.Type)
}

func TestUnknownValuesSurvive(t *testing.T) {
	const text = `{"status":"scaling","payment_type":"cny","scale_type":"auto","purpose":"x",` +
		`"target_instance_number":2,"usd_price_unit":0.1,"created_at":"2024-05-01T10:20:30Z",` +
		`"deleted_at":null,"presigned_url":""}`
	r := testkit.Decode[testkit.Record](t, text)
	require.EqualValues(t, "scaling", r.Status)
	require.EqualValues(t, "cny", r.Payment)
	require.EqualValues(t, "auto", r.Scale)
	require.EqualValues(t, "x", r.Purpose)
	require.Nil(t, r.DeletedAt)
	require.JSONEq(t, text, testkit.Encode(t, r))
}

func TestInt(t *testing.T) {
	for text, want := range map[string]svc.Int{
		`2`:                      2,
		`"2"`:                    2,
		`2.0`:                    2,
		`"2.0"`:                  2,
		`2e0`:                    2,
		`20E-1`:                  2,
		`0.2e+1`:                 2,
		`"\u0032"`:               2,
		`0`:                      0,
		`-0`:                     0,
		`0e400`:                  0,
		`0.000`:                  0,
		`null`:                   0,
		`""`:                     0,
		`-7`:                     -7,
		`"-7"`:                   -7,
		`9007199254740993`:       9007199254740993, // not a float64
		`999999999999999999`:     999999999999999999,
		`9223372036854775807`:    9223372036854775807,
		`"9223372036854775807"`:  9223372036854775807,
		`9223372036854775807.0`:  9223372036854775807,
		`-9223372036854775808`:   -9223372036854775808,
		`922337203685477580.7e1`: 9223372036854775807,
		`1e18`:                   1e18,
	} {
		got := svc.Int(-1)
		require.NoError(t, json.Unmarshal([]byte(text), &got), text)
		require.Equal(t, want, got, text)
	}
	require.Equal(t, "9223372036854775807", testkit.Encode(t, svc.Int(9223372036854775807)))
}

func TestIntErrors(t *testing.T) {
	for text, value := range map[string]string{
		`"two"`:                       `string "two"`,
		`2.5`:                         `number 2.5`,
		`"2.5"`:                       `string "2.5"`,
		`1e-1`:                        `number 1e-1`,
		`9223372036854775808`:         `number 9223372036854775808`,
		`-9223372036854775809`:        `number -9223372036854775809`,
		`1e19`:                        `number 1e19`,
		`1e400`:                       `number 1e400`,
		`1e99999999999999999999`:      `number 1e99999999999999999999`,
		`" 2"`:                        `string " 2"`,
		`"0x10"`:                      `string "0x10"`,
		`"1_000"`:                     `string "1_000"`,
		`"02"`:                        `string "02"`,
		`"-"`:                         `string "-"`,
		`"2."`:                        `string "2."`,
		`"2e"`:                        `string "2e"`,
		`"NaN"`:                       `string "NaN"`,
		`true`:                        `bool`,
		`{}`:                          `object`,
		`[1]`:                         `array`,
		strings.Repeat("1", 40):       `number`,
		`"` + strings.Repeat("x", 40): "", // completed below
	} {
		if value == "" {
			text, value = text+`"`, `string` // long text is not repeated
		}
		requireTypeError[svc.Int](t, text, value)
	}
}

// UnmarshalJSON is exported, so anything may be passed to it.
func TestMalformedInput(t *testing.T) {
	for _, text := range []string{``, `"`, `"2`, `2"`, `-`, `nul`, `"\`, `"\"`, `"\u00"`, ` `, "\xff"} {
		b := []byte(text)
		require.Error(t, new(svc.Int).UnmarshalJSON(b), "%q", text)
		require.NoError(t, new(svc.Price).UnmarshalJSON(b), "%q", text)
		require.NoError(t, new(svc.Time).UnmarshalJSON(b), "%q", text)
	}
}

func FuzzInt(f *testing.F) {
	for _, s := range []string{`2`, `"2"`, `2.0`, `2e0`, `""`, `null`, `"two"`, `9223372036854775807`, `1e400`, `{`, `"`, `-0`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var i, again svc.Int
		if i.UnmarshalJSON(b) != nil {
			return
		}
		require.NoError(t, json.Unmarshal([]byte(testkit.Encode(t, i)), &again))
		require.Equal(t, i, again)
		if json.Valid(b) && b[0] != '"' && string(b) != "null" {
			var f float64
			require.NoError(t, json.Unmarshal(b, &f), "only numbers are read as numbers")
			require.InDelta(t, f, float64(i), 1+max(f, -f)*1e-9)
		}
	})
}
