package svc_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

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
		require.Equal(t, svc.InferenceServiceStatusAvailable, r.Status, "the rest of the record is there")
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

// A Time that the caller changes shows nothing of its old value.
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

func FuzzTime(f *testing.F) {
	for _, s := range []string{
		`null`, `""`, `"2024-05-01 10:20:30"`, `"2024-05-01T10:20:30.123456+08:00"`, `"2024-05-01"`, `"soon"`,
		`1714558830`, `-0.25`, `1e400`, `"1714558830"`, `"0001-01-01T00:00:00+14:00"`, `-62135596800.5`, `"\ud800"`, `{}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var v svc.Time
		require.NoError(t, v.UnmarshalJSON(b))
		if !json.Valid(b) {
			return
		}
		again := testkit.Decode[svc.Time](t, testkit.Encode(t, v))
		require.True(t, v.Equal(again.Time), "%s became %s", b, again)
		require.Equal(t, v.String() == "", again.String() == "")
		if !v.IsZero() {
			require.NotEmpty(t, v.Raw())
			require.Greater(t, v.UTC().Year(), 1)
			require.LessOrEqual(t, v.UTC().Year(), 9999)
		}
		v.Time = time.Unix(1, 0).UTC()
		require.Equal(t, "1970-01-01T00:00:01Z", string(testkit.Encode(t, v))[1:21])
	})
}
