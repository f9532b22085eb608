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
)

func TestTimeForms(t *testing.T) {
	at := func(nanos int) time.Time { return time.Date(2024, 5, 1, 10, 20, 30, nanos, time.UTC) }
	east := at(0).Add(-8 * time.Hour)
	for text, want := range map[string]time.Time{
		`"2024-05-01 10:20:30"`:                 at(0),
		`"2024-05-01 10:20:30.5"`:               at(5e8),
		`"2024-05-01 10:20:30.500"`:             at(5e8),
		`"2024-05-01 10:20:30Z"`:                at(0),
		`"2024-05-01 10:20:30+08:00"`:           east,
		`"2024-05-01 10:20:30+08"`:              east,
		`"2024-05-01T10:20:30"`:                 at(0),
		`"2024-05-01T10:20:30.123456"`:          at(123456000),
		`"2024-05-01T10:20:30.123456789"`:       at(123456789),
		`"2024-05-01T10:20:30.000000"`:          at(0),
		`"2024-05-01T10:20:30Z"`:                at(0),
		`"2024-05-01T10:20:30.000001Z"`:         at(1000),
		`"2024-05-01T10:20:30+08:00"`:           east,
		`"2024-05-01T10:20:30.25+0800"`:         east.Add(250 * time.Millisecond),
		`"2024-05-01T10:20:30-05:30"`:           at(0).Add(5*time.Hour + 30*time.Minute),
		`"2024-05-01T10:20:30+00:00"`:           at(0),
		`"2024-05-01"`:                          at(0).Truncate(24 * time.Hour),
		`"2024-02-29 23:59:59"`:                 time.Date(2024, 2, 29, 23, 59, 59, 0, time.UTC),
		`"0001-01-01 00:00:01"`:                 time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC),
		`"9999-12-31T23:59:59.999999999-08:00"`: time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.FixedZone("", -8*3600)),
		`1714558830`:                            at(0),
		`1714558830.5`:                          at(5e8),
		`1714558830.123456789`:                  at(123456789),
		`1714558830.50`:                         at(5e8),
		`1714558830.000`:                        at(0),
		`"1714558830"`:                          at(0),
		`0`:                                     time.Unix(0, 0),
		`-1`:                                    time.Unix(-1, 0),
		`-0.25`:                                 time.Unix(-1, 75e7),
		`-1.5`:                                  time.Unix(-2, 5e8),
		`253402300799`:                          time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
	} {
		got := decode[svc.Time](t, text)
		require.True(t, want.Equal(got.Time), "%s: %s, not %s", text, got, want)
		require.Equal(t, text, encode(t, got))
		require.Equal(t, strings.Trim(text, `"`), got.Raw())
		require.Equal(t, got.Time.String(), got.String())
		require.False(t, got.IsZero())
		require.Equal(t, got, decode[svc.Time](t, encode(t, got)))
	}
}

func TestTimeFormsThatChange(t *testing.T) {
	for text, want := range map[string]string{
		`1.71455883e9`:                         `1714558830`,
		`171455883050e-2`:                      `1714558830.5`,
		`0.00000000001`:                        `0.000000000`, // half a nanosecond is no time at all
		`"2024-05-01T10:20:30.1234567899"`:     `"2024-05-01T10:20:30.123456789"`,
		`"2024-05-01T10:20:30-00:00"`:          `"2024-05-01T10:20:30+00:00"`,
		`"2024\u002d05-01 10:20:30"`:           `"2024-05-01 10:20:30"`,
		`"2024-05-01T10:20:30.1234567890000Z"`: `"2024-05-01T10:20:30.123456789Z"`,
	} {
		require.Equal(t, want, encode(t, decode[svc.Time](t, text)), text)
	}
}

func TestTimeThatIsNone(t *testing.T) {
	for _, text := range []string{
		`null`, `""`, `"0001-01-01T00:00:00Z"`, `"0001-01-01 00:00:00"`, `"0001-01-01"`, `-62135596800`,
	} {
		v := decode[svc.Time](t, `"2024-05-01"`)
		require.NoError(t, json.Unmarshal([]byte(text), &v), text)
		require.Equal(t, svc.Time{}, v, text)
	}
	var zero svc.Time
	require.True(t, zero.IsZero())
	require.Empty(t, zero.Raw())
	require.Empty(t, zero.String())
	require.Equal(t, `null`, encode(t, zero))
	require.Equal(t, "svc.Time{}", fmt.Sprintf("%#v", zero))
	text, err := zero.MarshalText()
	require.NoError(t, err)
	require.Empty(t, text)
	require.Equal(t, `{}`, encode(t, struct {
		At svc.Time `json:"at,omitzero"`
	}{}))
}

func TestTimeTextThatIsNoDate(t *testing.T) {
	for _, text := range []string{
		"soon", "2024-02-30", "2023-02-29 00:00:00", "2024-13-01", "2024-00-10", "2024-01-00",
		"2024-05-01 24:00:00", "2024-05-01 10:60:00", "2024-05-01 10:20:60", "0000-00-00 00:00:00",
		"2024-05-01 10:20", "2024-05-01T10:20:30.", "2024-05-01T10:20:30.Z", "2024-05-01T10:20:30+8",
		"2024-05-01T10:20:30+24:00", "2024-05-01T10:20:30+08:60", "2024-05-01T10:20:30+08:0",
		"2024-05-01T10:20:30+08:00x", "2024-05-01T10:20:30 ", " 2024-05-01", "2024-05-01x10:20:30",
		"2024/05/01", "20240501", "12345678", "099999999", "1714558830123456789", "999999999999", "-1714558830",
		"１７１４５５８８３０", `a "quoted" <b>`, "2024-05-0a", "2024-05-01 1a:20:30",
	} {
		quoted := encode(t, text)
		r := decode[record](t, `{"created_at":`+quoted+`,"status":"available"}`)
		require.True(t, r.CreatedAt.IsZero(), text)
		require.Equal(t, text, r.CreatedAt.Raw())
		require.Equal(t, text, r.CreatedAt.String())
		require.Equal(t, text, fmt.Sprintf("%v", r.CreatedAt))
		require.Equal(t, fmt.Sprintf("svc.Time{raw:%q}", text), fmt.Sprintf("%#v", r.CreatedAt))
		require.Equal(t, svc.InferenceServiceStatusAvailable, r.Status, "the rest of the record is there")
		require.Equal(t, quoted, encode(t, r.CreatedAt))
	}
}

func TestTimeErrors(t *testing.T) {
	for text, value := range map[string]string{
		`1e400`:         `number 1e400`,
		`1e999999999`:   `number 1e999999999`,
		`253402300800`:  `number 253402300800`,
		`-62135596801`:  `number -62135596801`,
		`1714558830123`: `number 1714558830123`, // milliseconds would be a guess
		`1e18`:          `number 1e18`,
		`-1e30`:         `number -1e30`,
		`true`:          `bool`,
		`{}`:            `object`,
		`[]`:            `array`,
	} {
		requireTypeError[svc.Time](t, text, value)
	}
}

func TestTimeMadeInGo(t *testing.T) {
	berlin := time.FixedZone("CEST", 2*3600)
	v := svc.Time{Time: time.Date(2024, 5, 1, 12, 20, 30, 5e8, berlin)}
	require.Equal(t, `"2024-05-01T10:20:30.5Z"`, encode(t, v))
	require.Equal(t, "2024-05-01T10:20:30.5Z", v.Raw())
	require.Equal(t, "2024-05-01 12:20:30.5 +0200 CEST", v.String())
	require.Equal(t, v.String(), fmt.Sprintf("%s", v))
	require.Equal(t, "svc.Time{Time:"+v.Time.GoString()+"}", fmt.Sprintf("%#v", v))

	for _, year := range []int{-1, 0, 10000} {
		_, err := json.Marshal(svc.Time{Time: time.Date(year, 1, 2, 0, 0, 0, 0, time.UTC)})
		require.ErrorContains(t, err, "years 1 to 9999")
	}
}

// A Time that the caller changes keeps its form, not its old value.
func TestTimeChanged(t *testing.T) {
	later := time.Date(2025, 6, 7, 8, 9, 10, 25e7, time.FixedZone("", 5*3600+1800))
	for text, want := range map[string]string{
		`null`:                         `"2025-06-07T02:39:10.25Z"`,
		`"soon"`:                       `"2025-06-07T02:39:10.25Z"`,
		`"2024-05-01"`:                 `"2025-06-07 02:39:10.25"`,
		`"2024-05-01 10:20:30"`:        `"2025-06-07 02:39:10.25"`,
		`"2024-05-01T10:20:30.000000"`: `"2025-06-07T02:39:10.250000"`,
		`"2024-05-01T10:20:30Z"`:       `"2025-06-07T02:39:10.25Z"`,
		`"2024-05-01T10:20:30+08:00"`:  `"2025-06-07T08:09:10.25+05:30"`,
		`"2024-05-01T10:20:30+0800"`:   `"2025-06-07T08:09:10.25+0530"`,
		`"2024-05-01T10:20:30+08"`:     `"2025-06-07T08:09:10.25+05:30"`,
		`1714558830`:                   `1749263950.25`,
		`"1714558830"`:                 `"1749263950.25"`,
	} {
		v := decode[svc.Time](t, text)
		v.Time = later
		require.Equal(t, want, encode(t, v), text)
		require.Equal(t, strings.Trim(want, `"`), v.Raw(), text)

		v.Time = time.Time{}
		require.NotContains(t, encode(t, v), "0001", text)
	}

	v := decode[svc.Time](t, `"2024-05-01T10:20:30+08:00"`)
	v.Time = v.In(time.FixedZone("LMT", 3*3600+17)) // an offset that no notation has
	require.Equal(t, `"2024-05-01T02:20:30Z"`, encode(t, v))
}

func TestTimeComparesLikeTime(t *testing.T) {
	a := decode[svc.Time](t, `"2024-05-01T10:20:30+08:00"`)
	b := decode[svc.Time](t, `"2024-05-01 02:20:30"`)
	require.True(t, a.Equal(b.Time))
	require.Zero(t, a.Compare(b.Time))
	require.Equal(t, time.Duration(0), a.Sub(b.Time))
}

func TestTimeInLogs(t *testing.T) {
	var out strings.Builder
	log := slog.New(slog.NewJSONHandler(&out, nil))
	log.Info("", "at", decode[svc.Time](t, `"2024-05-01 10:20:30"`), "never", svc.Time{}, "odd", decode[svc.Time](t, `"soon"`))
	require.Contains(t, out.String(), `"at":"2024-05-01 10:20:30","never":null,"odd":"soon"`)
}

func TestTimeAsText(t *testing.T) {
	keys := decode[map[svc.Time]int](t, `{"2024-05-01 10:20:30":1,"soon":2}`)
	require.Len(t, keys, 2)
	require.JSONEq(t, `{"2024-05-01 10:20:30":1,"soon":2}`, encode(t, keys))
}

func TestTimeUsualFormsAllocateNothing(t *testing.T) {
	var v svc.Time
	for _, text := range []string{
		`null`, `""`, `"2024-05-01 10:20:30"`, `"2024-05-01T10:20:30.123456"`, `"2024-05-01T10:20:30Z"`,
		`"2024-05-01T10:20:30+08:00"`, `"2024-05-01"`, `"1714558830"`,
	} {
		b := []byte(text)
		require.Zero(t, testing.AllocsPerRun(100, func() { _ = v.UnmarshalJSON(b) }), text)
	}
}

func FuzzTime(f *testing.F) {
	for _, s := range []string{
		`null`, `""`, `"2024-05-01 10:20:30"`, `"2024-05-01T10:20:30.123456+08:00"`, `"2024-05-01"`, `"soon"`,
		`1714558830`, `-0.25`, `1e400`, `"1714558830"`, `"0001-01-01T00:00:00+14:00"`, `-62135596800.5`, `"\ud800"`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var v svc.Time
		if v.UnmarshalJSON(b) != nil {
			return
		}
		text := encode(t, v)
		again := decode[svc.Time](t, text)
		require.True(t, v.Equal(again.Time), "%s became %s", b, text)
		require.Equal(t, v.Raw(), again.Raw())
		require.Equal(t, text, encode(t, again))
		if !v.IsZero() {
			require.GreaterOrEqual(t, v.Year(), 1)
			require.LessOrEqual(t, v.Year(), 9999)
			if std, err := time.Parse(time.RFC3339Nano, v.Raw()); err == nil {
				require.True(t, std.Equal(v.Time), "time.Parse reads %s as %s", v.Raw(), std)
			}
		}
	})
}
