package svc_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

// requireTypeError checks that decoding text into T fails with a json.UnmarshalTypeError
// that has value and T.
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
		`9007199254740993`:       9007199254740993, // cannot be represented as a float64
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
	for _, text := range []string{
		`"two"`, `2.5`, `"2.5"`, `1e-1`, `9223372036854775808`, `-9223372036854775809`, `1e19`, `1e400`, `1e99999999999999999999`,
		`" 2"`, `"0x10"`, `"1_000"`, `"02"`, `"-"`, `"2."`, `"2e"`, `"NaN"`, `true`, `{}`, `[1]`,
	} {
		requireTypeError[svc.Int](t, text, text)
	}
	for kind, text := range map[string]string{ // for a long text the error shows only its kind
		"number": strings.Repeat("1", 40), "string": `"` + strings.Repeat("x", 40) + `"`, "array": "[" + strings.Repeat("1,", 20) + "1]",
	} {
		requireTypeError[svc.Int](t, text, kind)
	}
}

// UnmarshalJSON is exported, so it may be called with any bytes.
func TestMalformedInput(t *testing.T) {
	for _, text := range []string{``, `"`, `"2`, `2"`, `-`, `nul`, `"\`, `"\"`, `"\u00"`, ` `, "\xff"} {
		b := []byte(text)
		require.Error(t, new(svc.Int).UnmarshalJSON(b), "%q", text)
		require.NoError(t, new(svc.Price).UnmarshalJSON(b), "%q", text)
		require.NoError(t, new(svc.Time).UnmarshalJSON(b), "%q", text)
	}
}

func TestPrice(t *testing.T) {
	for _, tt := range []struct {
		text, plain, encoded string
		float                float64
	}{
		{`0.1`, "0.1", `0.1`, 0.1},
		{`"0.1"`, "0.1", `0.1`, 0.1},
		{`0.0000001`, "0.0000001", `0.0000001`, 1e-7},
		{`1e-7`, "0.0000001", `1e-7`, 1e-7},
		{`"1E-7"`, "0.0000001", `1E-7`, 1e-7},
		{`12.5e-1`, "1.25", `12.5e-1`, 1.25},
		{`1.5e+3`, "1500", `1.5e+3`, 1500},
		{`-2.50`, "-2.50", `-2.50`, -2.5},
		{`-25e-3`, "-0.025", `-25e-3`, -0.025},
		{`3`, "3", `3`, 3},
		{`3.0`, "3.0", `3.0`, 3},
		{`0`, "0", `0`, 0},
		{`0e99`, "0", `0e99`, 0},
		{`0.12345678901234567890123`, "0.12345678901234567890123", `0.12345678901234567890123`, 0.12345678901234568},
	} {
		p := testkit.Decode[svc.Price](t, tt.text)
		require.False(t, p.IsZero(), tt.text)
		require.False(t, p.IsZero(), tt.text)
		require.Equal(t, tt.plain, p.String())
		require.Equal(t, tt.encoded, testkit.Encode(t, p))
		require.Equal(t, tt.float, p.Float64())
		require.Equal(t, p, testkit.Decode[svc.Price](t, testkit.Encode(t, p)))
	}
}

func TestPriceNotSet(t *testing.T) {
	for _, text := range []string{`null`, `""`} {
		p := testkit.Price(t, "1")
		require.NoError(t, json.Unmarshal([]byte(text), &p))
		require.Equal(t, svc.Price{}, p)
		require.True(t, p.IsZero())
		require.Empty(t, p.String())
		require.Zero(t, p.Float64())
		require.Equal(t, "null", testkit.Encode(t, p))
	}
	require.Equal(t, `{}`, testkit.Encode(t, struct {
		Price svc.Price `json:"price,omitzero"`
	}{}))
	require.Equal(t, `{"price":0}`, testkit.Encode(t, struct {
		Price svc.Price `json:"price,omitzero"`
	}{testkit.Price(t, "0")}), "a price of nothing is a price")
}

// A text that is not a price does not make decoding fail. Raw returns the text.
func TestPriceTextThatIsNone(t *testing.T) {
	for _, text := range []string{
		`"free"`, `1e400`, `1e400000000`, `1e-401`, `1e99999999999999999999`, `"$3"`, `"Inf"`, `"1e"`, `false`, `{}`, `[1]`,
		"1" + strings.Repeat("0", 309), "0." + strings.Repeat("1", 2000), `"        1"`,
	} {
		p := testkit.Decode[svc.Price](t, text)
		require.True(t, p.IsZero(), text)
		require.True(t, p.IsZero(), text)
		require.Equal(t, strings.Trim(text, `"`), p.Raw())
		require.Empty(t, p.String())
		require.Zero(t, p.Float64())
		require.Nil(t, p.Rat())
		require.Equal(t, -1, p.Cmp(testkit.Price(t, "-1")))
		require.Equal(t, p, testkit.Decode[svc.Price](t, testkit.Encode(t, p)))
	}
	for _, text := range []string{"", " 1", "1 ", "+1", ".5", "1.", "01", "0x1", "1,5", "١", "1e500", "1_0", "1/2"} {
		_, err := svc.ParsePrice(text)
		require.EqualError(t, err, fmt.Sprintf("svc: price %q is not a decimal number, or out of range", text))
	}
}

func TestPriceCmp(t *testing.T) {
	// The prices of a line are equal, and less than those of the next line.
	lines := [][]string{
		{"-1e300"}, {"-10", "-1e1"}, {"-9.99"}, {"-0.5", "-5e-1"}, {"-1e-300"},
		{"0", "0.0", "-0", "0e5", "0e-5"},
		{"1e-400"}, {"0.0000001", "1e-7", "10e-8"}, {"0.1", "0.10", "1e-1"}, {"0.11"}, {"0.2"},
		{"3", "3.0", "3.00e0", "0.3e1"}, {"3.0000000000000000000000001"}, {"9"}, {"10"}, {"11"}, {"1e307"},
	}
	var all, shuffled []svc.Price
	for i, line := range lines {
		for _, text := range line {
			p := testkit.Price(t, text)
			all = append(all, p)
			require.Equal(t, 1, p.Cmp(svc.Price{}), "a price that is not set is lower than any other")
			require.Equal(t, -1, svc.Price{}.Cmp(p))
			for j, other := range lines {
				for _, text := range other {
					want := min(max(i-j, -1), 1)
					require.Equal(t, want, p.Cmp(testkit.Price(t, text)), "%s and %s", p, text)
				}
			}
		}
	}
	shuffled = append(shuffled, all...)
	slices.Reverse(shuffled)
	slices.SortStableFunc(shuffled, svc.Price.Cmp)
	for i := range all {
		require.Zero(t, all[i].Cmp(shuffled[i]))
	}
	require.Zero(t, svc.Price{}.Cmp(svc.Price{}))
}

func TestTimeForms(t *testing.T) {
	at := func(nanos int) time.Time { return time.Date(2024, 5, 1, 10, 20, 30, nanos, time.UTC) }
	east := at(0).Add(-8 * time.Hour)
	for text, want := range map[string]time.Time{
		`"2024-05-01 10:20:30"`:            at(0),
		`"2024-05-01 10:20:30.5"`:          at(5e8),
		`"2024-05-01 10:20:30.500"`:        at(5e8),
		`"2024-05-01 10:20:30Z"`:           at(0),
		`"2024-05-01 10:20:30+08:00"`:      east,
		`"2024-05-01 10:20:30+08"`:         east,
		`"2024-05-01T10:20:30"`:            at(0),
		`"2024-05-01T10:20:30.123456"`:     at(123456000),
		`"2024-05-01T10:20:30.123456789"`:  at(123456789),
		`"2024-05-01T10:20:30.000000"`:     at(0),
		`"2024-05-01T10:20:30Z"`:           at(0),
		`"2024-05-01T10:20:30.000001Z"`:    at(1000),
		`"2024-05-01T10:20:30+08:00"`:      east,
		`"2024-05-01T10:20:30.25+0800"`:    east.Add(250 * time.Millisecond),
		`"2024-05-01T10:20:30-05:30"`:      at(0).Add(5*time.Hour + 30*time.Minute),
		`"2024-05-01T10:20:30+00:00"`:      at(0),
		`"2024-05-01"`:                     at(0).Truncate(24 * time.Hour),
		`"2024-02-29 23:59:59"`:            time.Date(2024, 2, 29, 23, 59, 59, 0, time.UTC),
		`"9999-12-31T23:59:59.999999999Z"`: time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC),
		`1714558830`:                       at(0),
		`1714558830.5`:                     at(5e8),
		`1714558830.123456789`:             at(123456789),
		`1714558830.50`:                    at(5e8),
		`1714558830.000`:                   at(0),
		`"1714558830"`:                     at(0),
		`0`:                                time.Unix(0, 0),
		`-1`:                               time.Unix(-1, 0),
		`-0.25`:                            time.Unix(-1, 75e7),
		`-1.5`:                             time.Unix(-2, 5e8),
		`99999999999`:                      time.Date(5138, 11, 16, 9, 46, 39, 0, time.UTC),
		`100000000000`:                     time.Date(1973, 3, 3, 9, 46, 40, 0, time.UTC),
		`1.71455883e9`:                     at(0),
		`171455883050e-2`:                  at(5e8),
		`"2024\u002d05-01 10:20:30"`:       at(0),
		`"20240501102030"`:                 at(0),
		`"2024-05-01T10:20:30.1234567899"`: at(123456789),
	} {
		got := testkit.Decode[svc.Time](t, text)
		require.True(t, want.Equal(got.Time), "%s: %s, not %s", text, got, want)
		require.Equal(t, `"`+want.UTC().Format(time.RFC3339Nano)+`"`, testkit.Encode(t, got))
		if !strings.Contains(text, `\u`) {
			require.Equal(t, strings.Trim(text, `"`), got.Raw())
		}
		require.Equal(t, got.Time.String(), got.String())
		require.False(t, got.IsZero())
		require.True(t, got.Equal(testkit.Decode[svc.Time](t, testkit.Encode(t, got)).Time))
	}
}

func TestTimeThatIsNone(t *testing.T) {
	for _, text := range []string{
		`null`, `""`, `"0001-01-01T00:00:00Z"`, `"0001-01-01 00:00:00"`, `"0001-01-01"`, `-62135596800`,
		`"0001-01-01 00:00:01"`, `"0001-01-01T00:00:00+08:00"`, `"0001-01-01T00:00:00-08:00"`, `"0001-12-31"`,
	} {
		v := testkit.Decode[svc.Time](t, `"2024-05-01"`)
		require.NoError(t, json.Unmarshal([]byte(text), &v), text)
		require.Equal(t, svc.Time{}, v, text)
	}
	var zero svc.Time
	require.True(t, zero.IsZero())
	require.Empty(t, zero.Raw())
	require.Empty(t, zero.String())
	require.Equal(t, `null`, testkit.Encode(t, zero))
	text, err := zero.MarshalText()
	require.NoError(t, err)
	require.Empty(t, text)
	require.Equal(t, `{}`, testkit.Encode(t, struct {
		At svc.Time `json:"at,omitzero"`
	}{}))
}

func TestTimeTextThatIsNoDate(t *testing.T) {
	for _, text := range []string{
		"soon", "2024-02-30", "2023-02-29 00:00:00", "2024-13-01", "2024-00-10", "2024-01-00",
		"2024-05-01 24:00:00", "2024-05-01 10:60:00", "2024-05-01 10:20:60", "0000-00-00 00:00:00",
		"2024-05-01 10:20", "2024-05-01T10:20:30.", "2024-05-01T10:20:30.Z", "2024-05-01T10:20:30+8",
		"2024-05-01T10:20:30+25:00", "2024-05-01T10:20:30+08:61", "2024-05-01T10:20:30+08:0", "9999-12-31T23:59:59-08:00",
		"2024-05-01T10:20:30+08:00x", "2024-05-01T10:20:30 ", " 2024-05-01", "2024-05-01x10:20:30",
		"2024/05/01", "20240501", "12345678", "099999999", "99999999999999999999999", "-1714558830", "0000-01-01", "2024-05-01 10:20:30Z ",
		"１７１４５５８８３０", `a "quoted" <b>`, "2024-05-0a", "2024-05-01 1a:20:30",
	} {
		quoted := testkit.Encode(t, text)
		r := testkit.Decode[testkit.Record](t, `{"created_at":`+quoted+`,"status":"available"}`)
		require.True(t, r.CreatedAt.IsZero(), text)
		require.Equal(t, text, r.CreatedAt.Raw())
		require.Equal(t, text, r.CreatedAt.String())
		require.Equal(t, text, fmt.Sprintf("%v", r.CreatedAt))
		require.Equal(t, svc.InferenceServiceStatusAvailable, r.Status, "the other fields are decoded")
		require.Equal(t, quoted, testkit.Encode(t, r.CreatedAt))
	}
}

func TestTimeMadeInGo(t *testing.T) {
	berlin := time.FixedZone("CEST", 2*3600)
	v := svc.Time{Time: time.Date(2024, 5, 1, 12, 20, 30, 5e8, berlin)}
	require.Equal(t, `"2024-05-01T10:20:30.5Z"`, testkit.Encode(t, v))
	require.Equal(t, "2024-05-01T10:20:30.5Z", v.Raw())
	require.Equal(t, "2024-05-01 12:20:30.5 +0200 CEST", v.String())
	require.Equal(t, v.String(), fmt.Sprintf("%s", v))

	for _, year := range []int{-1, 10000} {
		_, err := json.Marshal(svc.Time{Time: time.Date(year, 1, 2, 0, 0, 0, 0, time.UTC)})
		require.Error(t, err, "RFC 3339 has no such year")
	}
}

// After the caller has changed a Time, no method returns its old value.
func TestTimeChanged(t *testing.T) {
	later := time.Date(2025, 6, 7, 8, 9, 10, 25e7, time.FixedZone("", 5*3600+1800))
	for _, text := range []string{`null`, `"soon"`, `1e400`, `{}`, `"2024-05-01"`, `"2024-05-01T10:20:30+08:00"`, `1714558830`, `"1714558830"`} {
		v := testkit.Decode[svc.Time](t, text)
		v.Time = later
		require.Equal(t, `"2025-06-07T02:39:10.25Z"`, testkit.Encode(t, v), text)
		require.Equal(t, "2025-06-07T02:39:10.25Z", v.Raw(), text)
		require.Equal(t, later.String(), v.String(), text)

		v = testkit.Decode[svc.Time](t, text)
		if !v.IsZero() {
			v.Time = time.Time{}
			require.Equal(t, `null`, testkit.Encode(t, v), text)
			require.Empty(t, v.Raw(), text)
			require.Empty(t, v.String(), text)
		}
	}
	v := testkit.Decode[svc.Time](t, `"2024-05-01T10:20:30+08:00"`)
	v.Time = v.UTC()
	require.Equal(t, "2024-05-01T10:20:30+08:00", v.Raw(), "the same moment")
}

func TestTimeComparesLikeTime(t *testing.T) {
	a := testkit.Decode[svc.Time](t, `"2024-05-01T10:20:30+08:00"`)
	b := testkit.Decode[svc.Time](t, `"2024-05-01 02:20:30"`)
	require.True(t, a.Equal(b.Time))
	require.Zero(t, a.Compare(b.Time))
	require.Equal(t, time.Duration(0), a.Sub(b.Time))
}

func TestTimeInLogs(t *testing.T) {
	var out strings.Builder
	log := slog.New(slog.NewJSONHandler(&out, nil))
	log.Info("", "at", testkit.Decode[svc.Time](t, `"2024-05-01 10:20:30"`), "never", svc.Time{}, "odd", testkit.Decode[svc.Time](t, `"soon"`))
	require.Contains(t, out.String(), `"at":"2024-05-01T10:20:30Z","never":null,"odd":"soon"`)
}

func TestTimeAsText(t *testing.T) {
	keys := testkit.Decode[map[svc.Time]int](t, `{"2024-05-01 10:20:30":1,"soon":2}`)
	require.Len(t, keys, 2)
	require.JSONEq(t, `{"2024-05-01T10:20:30Z":1,"soon":2}`, testkit.Encode(t, keys))
}
