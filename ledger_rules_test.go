package svc

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	noon    = time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)
	intentA = strings.Repeat("A", 26)
	intentB = strings.Repeat("B", 26)
)

// journal gives all records the key "k", numbers them, and sets their times one minute
// apart.
func journal(records ...LedgerRecord) []LedgerRecord {
	for i := range records {
		r := &records[i]
		r.Key, r.Seq = "k", int64(i+1)
		if r.Intent == "" {
			r.Intent = intentA
		}
		if r.At.IsZero() {
			r.At = noon.Add(time.Duration(i) * time.Minute)
		}
	}
	return records
}

func intended() LedgerRecord {
	return LedgerRecord{Event: LedgerIntended, BaseURL: "https://svc.example", Name: "n", FlavorID: "f", Instances: 2,
		SettleBy: noon.Add(5 * time.Minute), LeaseEnd: noon.Add(time.Hour)}
}

func event(e LedgerEvent) LedgerRecord {
	r := LedgerRecord{Event: e}
	if e == LedgerCreated || e == LedgerDeleted {
		r.ServiceID = "svc-1"
	}
	return r
}

func foldOne(t *testing.T, records ...LedgerRecord) LedgerEntry {
	t.Helper()
	entries, err := foldLedger(journal(records...))
	require.NoError(t, err)
	require.Len(t, entries, 1)
	return entries[0]
}

// The state table of an entry: for each state, the state after each event. An empty text
// means that the event does not change the state.
func TestLedgerStates(t *testing.T) {
	paths := map[LedgerEvent][]LedgerEvent{ // the events that lead to each state
		LedgerIntended: {}, LedgerUnknown: {LedgerUnknown}, LedgerRefused: {LedgerRefused},
		LedgerForgotten: {LedgerForgotten}, LedgerCreated: {LedgerCreated}, LedgerDeleted: {LedgerCreated, LedgerDeleted},
	}
	events := []LedgerEvent{LedgerCreated, LedgerRefused, LedgerUnknown, LedgerForgotten, LedgerDeleted}
	table := map[LedgerEvent][]LedgerEvent{
		LedgerIntended:  {"created", "refused", "unknown", "forgotten", ""},
		LedgerUnknown:   {"created", "", "", "forgotten", ""},
		LedgerRefused:   {"created", "", "", "", ""},
		LedgerForgotten: {"created", "refused", "unknown", "", ""},
		LedgerCreated:   {"", "", "", "", "deleted"},
		LedgerDeleted:   {"", "", "", "", ""},
	}
	for state, row := range table {
		for i, next := range row {
			records := []LedgerRecord{intended()}
			for _, e := range paths[state] {
				records = append(records, event(e))
			}
			require.Equal(t, state, foldOne(t, records...).State)
			for _, kept := range []LedgerEvent{LedgerScaled, LedgerExtended} {
				require.Equal(t, state, foldOne(t, append(records[:len(records):len(records)], event(kept))...).State)
			}
			records = append(records, event(events[i]))
			e := foldOne(t, records...)
			if next == "" {
				next = state
			}
			require.Equal(t, next, e.State, "%s and %s", state, events[i])
			require.Len(t, e.Records, len(records), "every record is kept")
			require.Equal(t, next == LedgerIntended || next == LedgerUnknown || next == LedgerCreated, e.Open())
		}
	}
}

func TestLedgerFold(t *testing.T) {
	e := foldOne(t, intended(),
		LedgerRecord{Event: LedgerUnknown, ServiceID: "svc-?"},
		LedgerRecord{Event: LedgerCreated, ServiceID: "svc-1", Adopted: true},
		LedgerRecord{Event: LedgerScaled, Instances: 5},
		LedgerRecord{Event: LedgerExtended, LeaseEnd: noon.Add(3 * time.Hour)},
		LedgerRecord{Event: LedgerDeleted, ServiceID: "svc-9"}, // about another endpoint, so it has no effect
		LedgerRecord{Event: LedgerDeleted, ServiceID: "svc-1"},
		LedgerRecord{Event: LedgerCreated, ServiceID: "svc-1"}) // comes too late to have an effect
	require.Len(t, e.Records, 8)
	e.Records = nil
	require.Equal(t, LedgerEntry{
		Key: "k", Intent: intentA, BaseURL: "https://svc.example", Name: "n", FlavorID: "f", ServiceID: "svc-1", State: LedgerDeleted,
		Instances: 5, Adopted: true, RequestedAt: noon, SettleBy: noon.Add(5 * time.Minute), CreatedAt: noon.Add(2 * time.Minute),
		DeletedAt: noon.Add(6 * time.Minute), LeaseEnd: noon.Add(3 * time.Hour),
	}, e)

	b := intended()
	b.Intent = intentB
	entries, err := foldLedger(journal(intended(), event(LedgerRefused), b, LedgerRecord{Event: LedgerCreated, ServiceID: "svc-1", Intent: intentA}))
	require.NoError(t, err)
	require.Len(t, entries, 2, "one for each intent")
	require.Equal(t, LedgerCreated, entries[0].State, "a create that is recorded late must not be lost")
	require.Equal(t, LedgerIntended, entries[1].State)

	gap := journal(intended(), event(LedgerUnknown), event(LedgerCreated))
	entries, err = foldLedger([]LedgerRecord{gap[0], gap[2]})
	require.ErrorContains(t, err, "record 2 is missing: the next record is 3")
	require.Equal(t, "svc-1", entries[0].ServiceID, "records before the gap are still shown")

	entries, err = foldLedger(journal(event(LedgerRefused)))
	require.NoError(t, err, "a refused record may stand in place of an intent that could not be written")
	require.Empty(t, entries)
}

func TestLedgerDamage(t *testing.T) {
	two := event(LedgerCreated)
	two.ServiceID = "svc-2"
	gap := journal(intended(), event(LedgerUnknown), event(LedgerForgotten))
	for want, records := range map[string][]LedgerRecord{
		`record 2 has the unknown event "paused"`:                                                 journal(intended(), event("paused")),
		`the endpoint "svc-2" was created, but an earlier record of the same create says "svc-1"`: journal(intended(), event(LedgerCreated), two),
		"record 2 is missing: the next record is 3":                                               {gap[0], gap[2]},
		"record 2 (\"unknown\") belongs to a create without a record of the event \"intended\"":   gap[1:],
		"record 3 is missing: the next record is 2":                                               {gap[0], gap[1], gap[1]},
		"record 1 (\"created\") belongs to a create without a record of the event \"intended\"":   journal(event(LedgerCreated)),
		`does not hold its ID`: journal(intended(), LedgerRecord{Event: LedgerCreated}),
		"record 3 has the unknown event \"\": a later version of this package": journal(intended(), event(LedgerCreated), event("")),
	} {
		other := intended()
		other.Key, other.Seq = "other", 1
		entries, err := foldLedger(append([]LedgerRecord{other}, records...))
		require.ErrorContains(t, err, want)
		var e *LedgerError
		require.ErrorAs(t, err, &e)
		require.Equal(t, "k", e.Key)
		require.Equal(t, "other", entries[0].Key, "other keys can be read")
	}
}

func TestLedgerVerdicts(t *testing.T) {
	body := []byte(`{"name":"n","resource_metadata":{"flavor_id":"f","target_instance_number":2}}`)
	fields, want, err := readBody(body, 1)
	require.NoError(t, err)
	want.BaseURL = "https://svc.example"
	mine := func() LedgerRecord {
		r := intended()
		r.RequestHash = requestHash(intentA, fields)
		return r
	}
	b := intended()
	b.Intent = intentB
	for name, tc := range map[string]struct {
		records []LedgerRecord
		body    string
		base    string
		after   time.Duration
		verdict ledgerVerdict
		text    string
	}{
		"nothing":              {},
		"refused":              {records: []LedgerRecord{mine(), event(LedgerRefused)}},
		"forgotten":            {records: []LedgerRecord{mine(), event(LedgerForgotten)}},
		"deleted":              {records: []LedgerRecord{mine(), event(LedgerCreated), event(LedgerDeleted)}},
		"intended":             {records: []LedgerRecord{mine()}, verdict: ledgerWait},
		"intended, just":       {records: []LedgerRecord{mine()}, after: 6*time.Minute - 1, verdict: ledgerWait},
		"intended, later":      {records: []LedgerRecord{mine()}, after: 6 * time.Minute, verdict: ledgerDoubt},
		"unknown":              {records: []LedgerRecord{mine(), event(LedgerUnknown)}, verdict: ledgerDoubt},
		"unknown, other":       {records: []LedgerRecord{mine(), event(LedgerUnknown)}, body: `{"name":"x"}`, verdict: ledgerDoubt},
		"created":              {records: []LedgerRecord{mine(), event(LedgerCreated)}, verdict: ledgerResume},
		"created, long ago":    {records: []LedgerRecord{mine(), event(LedgerCreated)}, after: 1e6 * time.Hour, verdict: ledgerResume},
		"created, scaled":      {records: []LedgerRecord{mine(), event(LedgerCreated), event(LedgerScaled)}, verdict: ledgerResume},
		"created, other name":  {records: []LedgerRecord{mine(), event(LedgerCreated)}, body: `{"name":"x"}`, verdict: ledgerInUse, text: `name "n", flavor "f", instances 2`},
		"created, other field": {records: []LedgerRecord{mine(), event(LedgerCreated)}, body: strings.Replace(string(body), "}}", `},"x":1}`, 1), verdict: ledgerInUse, text: "other fields of the request body"},
		"created, other base":  {records: []LedgerRecord{mine(), event(LedgerCreated)}, base: "https://other.example", verdict: ledgerInUse, text: "https://other.example"},
		"two open":             {records: []LedgerRecord{mine(), event(LedgerUnknown), b}, after: time.Hour, verdict: ledgerInUse, text: "2 open entries"},
		"forgotten, late":      {records: []LedgerRecord{mine(), event(LedgerForgotten), b, event(LedgerCreated)}, verdict: ledgerInUse, text: "2 open entries"},
	} {
		t.Run(name, func(t *testing.T) {
			entries, err := foldLedger(journal(tc.records...))
			require.NoError(t, err)
			want, sent := want, fields
			if tc.body != "" {
				sent, want, err = readBody([]byte(tc.body), 1)
				require.NoError(t, err)
				want.BaseURL = "https://svc.example"
			}
			if tc.base != "" {
				want.BaseURL = tc.base
			}
			verdict, _, text := judgeKey(entries, &want, sent, noon.Add(tc.after))
			require.Equal(t, tc.verdict, verdict)
			require.Contains(t, text, tc.text)
			require.Equal(t, tc.text == "", text == "")
		})
	}
}

// A hash of an unknown version cannot be compared, so the fields in clear text are
// compared.
func TestLedgerHashOfAnotherVersion(t *testing.T) {
	had := intended()
	had.Intent, had.RequestHash = intentA, "2:abc"
	want := had
	require.Empty(t, differs(&had, &want, map[string]any{"name": "whatever"}))
	want.Instances++
	require.Contains(t, differs(&had, &want, nil), "instances 2")
}

func TestLedgerRequestHash(t *testing.T) {
	hashOf := func(intent, body string) string {
		fields, _, err := readBody([]byte(body), 1)
		require.NoError(t, err)
		return requestHash(intent, fields)
	}
	hash := func(body string) string { return hashOf(intentA, body) }
	base := hash(`{"name":"n","description":"d","port":80}`)
	require.Regexp(t, `^1:[0-9a-f]{64}$`, base)
	require.NotContains(t, base, intentA)
	for _, same := range []string{
		`{ "port": 80, "description": "d", "name": "n" }`,
		`{"name":"n","description":"d [svc:` + intentB + `]","port":80}`,
		`{"name":"n","description":" d ","port":80}`,
		`{"name":"\u006e","description":"d","port":80}`,
	} {
		require.Equal(t, base, hash(same), same)
	}
	for _, other := range []string{
		`{"name":"n","description":"d","port":80.0}`, `{"name":"n","description":"d","port":"80"}`, `{"name":"n","description":"d"}`,
		`{"name":"n","description":"d","port":80,"x":null}`, `{"name":"n","description":"e","port":80}`,
	} {
		require.NotEqual(t, base, hash(other), other)
	}
	require.NotEqual(t, hash(`{"seed":12345678901234567890}`), hash(`{"seed":12345678901234567891}`), "numbers are text")
	require.NotEqual(t, base, hashOf(intentB, `{"name":"n","description":"d","port":80}`), "the intent must be part of the hash")
}

func TestLedgerIntendedRecord(t *testing.T) {
	for body, want := range map[string]LedgerRecord{
		`{"name":"n"}`: {Name: "n", Instances: 1},
		`{"name":"n","resource_metadata":{"flavor_id":"f","target_instance_number":0}}`:    {Name: "n", FlavorID: "f"},
		`{"name":"n","resource_metadata":{"flavor_id":"f","target_instance_number":"3"}}`:  {Name: "n", FlavorID: "f", Instances: 3},
		`{"name":"n","resource_metadata":{"flavor_id":"f","target_instance_number":null}}`: {Name: "n", FlavorID: "f", Instances: 1},
	} {
		want.Event = LedgerIntended
		_, r, err := readBody([]byte(body), 1)
		require.NoError(t, err)
		require.Equal(t, want, r, body)
	}
	for _, bad := range []string{`{"name":"n","resource_metadata":{"target_instance_number":"two"}}`, `{"name":5}`, `[]`} {
		_, _, err := readBody([]byte(bad), 1)
		require.ErrorAs(t, err, new(*ValidationError))
	}
}

func TestLedgerMark(t *testing.T) {
	for body, want := range map[string]string{
		`{"name":"n"}`:                        `{"description":"[svc:I]","name":"n"}`,
		`{"name":"n","description":""}`:       `{"description":"[svc:I]","name":"n"}`,
		`{"name":"n","description":null}`:     `{"description":"[svc:I]","name":"n"}`,
		`{"name":"n","description":" mine "}`: `{"description":"mine [svc:I]","name":"n"}`,
		`{"description":"a copy [svc:` + intentB + `]","seed":12345678901234567890}`: `{"description":"a copy [svc:I]","seed":12345678901234567890}`,
	} {
		fields, _, err := readBody([]byte(body), 1)
		require.NoError(t, err)
		marked, err := addMark(fields, intentA)
		require.NoError(t, err)
		require.Equal(t, strings.Replace(want, "svc:I", "svc:"+intentA, 1), string(marked))
	}
	for _, bad := range []any{5, map[string]any{}} {
		_, err := addMark(map[string]any{"description": bad}, intentA)
		require.ErrorAs(t, err, new(*ValidationError), bad)
	}

	for description, want := range map[string][2]string{
		"":                            {},
		"mine":                        {"", "mine"},
		"[svc:" + intentA + "]":       {intentA, ""},
		"mine [svc:" + intentA + "]":  {intentA, "mine"},
		" x [svc:" + intentA + "] \n": {intentA, "x"},
		"[svc:" + intentA + "] [svc:" + intentB + "]": {intentB, "[svc:" + intentA + "]"},
		"[svc:" + intentA[1:] + "]":                   {"", "[svc:" + intentA[1:] + "]"},
		"[svc:" + intentA + "A]":                      {"", "[svc:" + intentA + "A]"},
		"[svc:" + intentA[1:] + "1]":                  {"", "[svc:" + intentA[1:] + "1]"},
	} {
		intent, without := findMark(description)
		require.Equal(t, want, [2]string{intent, without}, "%q", description)
	}
}

func TestLedgerMayForget(t *testing.T) {
	over := noon.Add(6 * time.Minute)
	for name, tc := range map[string]struct {
		records   []LedgerRecord
		now, date time.Time
		ok        bool
	}{
		"unknown":          {records: []LedgerRecord{intended(), event(LedgerUnknown)}, now: over, date: over, ok: true},
		"intended":         {records: []LedgerRecord{intended()}, now: over, date: over, ok: true},
		"no date":          {records: []LedgerRecord{intended()}, now: over},
		"local too early":  {records: []LedgerRecord{intended(), event(LedgerUnknown)}, now: over.Add(-1), date: over},
		"date too early":   {records: []LedgerRecord{intended(), event(LedgerUnknown)}, now: over.Add(time.Hour), date: over.Add(-1)},
		"created":          {records: []LedgerRecord{intended(), event(LedgerCreated)}, now: over, date: over},
		"refused":          {records: []LedgerRecord{intended(), event(LedgerRefused)}, now: over, date: over},
		"forgotten before": {records: []LedgerRecord{intended(), event(LedgerForgotten)}, now: over, date: over},
	} {
		e := foldOne(t, tc.records...)
		require.Equal(t, tc.ok, e.mayForget(e.BaseURL, tc.now, tc.date) == nil, name)
		require.ErrorContains(t, e.mayForget("https://other.test", tc.now, tc.date), "another base URL", name)
	}
}

func TestLedgerMayAdopt(t *testing.T) {
	const base = "https://svc.example"
	over := noon.Add(6 * time.Minute)
	marked := func() *InferenceService { return &InferenceService{Name: "n", Description: "d [svc:" + intentA + "]"} }
	for state, ok := range map[LedgerEvent]bool{"": true, LedgerUnknown: true, LedgerForgotten: true, LedgerRefused: false, LedgerCreated: false} {
		records := []LedgerRecord{intended()}
		if state != "" {
			records = append(records, event(state))
		}
		e := foldOne(t, records...)
		require.Equal(t, ok, e.mayAdopt(base, marked(), false, over) == nil, state)
	}
	e := foldOne(t, intended())
	require.NoError(t, e.mayAdopt(base, marked(), false, over.Add(-1)), "the mark proves that the endpoint belongs to the entry")
	require.ErrorContains(t, e.mayAdopt(base, &InferenceService{Name: "n"}, true, over.Add(-1)), "too early", "the creating process may still record the outcome")
	require.ErrorContains(t, e.mayAdopt("https://other.example", marked(), false, over), base)
	for want, change := range map[string]func(*InferenceService){
		"deleted":                  func(s *InferenceService) { s.IsDeleted = true },
		"the name of the endpoint": func(s *InferenceService) { s.Name = "other" },
		"another entry, whose intent is " + intentB: func(s *InferenceService) { s.Description = "[svc:" + intentB + "]" },
		"it has no mark": func(s *InferenceService) { s.Description = "d" },
	} {
		s := marked()
		change(s)
		require.ErrorContains(t, e.mayAdopt(base, s, false, over), want)
		require.Equal(t, want == "it has no mark", e.mayAdopt(base, s, true, over) == nil, want)
	}
}

func TestLedgerMayReap(t *testing.T) {
	const base = "https://svc.example"
	end := noon.Add(time.Hour)
	e := foldOne(t, intended(), event(LedgerCreated))
	require.False(t, e.overdue(base, end))
	require.False(t, e.overdue(base, end.Add(time.Second)), "one second of difference may come from the resolution of Date")
	require.True(t, e.overdue(base, end.Add(time.Second+1)))
	require.False(t, e.overdue("https://other.example", end.Add(time.Hour)))
	deleted := foldOne(t, intended(), event(LedgerCreated), event(LedgerDeleted))
	require.False(t, deleted.overdue(base, end.Add(time.Hour)))
	free := foldOne(t, intended(), event(LedgerCreated), LedgerRecord{Event: LedgerExtended})
	require.False(t, free.overdue(base, end.Add(1e6*time.Hour)), "no lease")

	mine, other := "[svc:"+intentA+"]", "[svc:"+intentB+"]"
	require.NoError(t, e.mayReap(end.Add(time.Second), &InferenceService{Name: "N ", Description: mine}))
	require.NoError(t, e.mayReap(end.Add(time.Second), &InferenceService{Name: "N ", Description: "no mark"}))
	require.ErrorIs(t, e.mayReap(end.Add(time.Second), &InferenceService{Name: "N ", Description: other}), ErrLedgerMark)
	require.Error(t, e.mayReap(end, &InferenceService{Name: "N ", Description: mine}), "by the service's clock the lease has not ended yet")
	require.Error(t, e.mayReap(end.Add(time.Second), &InferenceService{Name: "other"}), "another name")
	require.Error(t, e.mayReap(time.Time{}, &InferenceService{Name: "N ", Description: mine}), "no Date")
	e.Adopted = true
	require.NoError(t, e.mayReap(end.Add(time.Second), &InferenceService{Name: "N ", Description: mine}))
	require.ErrorIs(t, e.mayReap(end.Add(time.Second), &InferenceService{Name: "N ", Description: "no mark"}), ErrLedgerMark)
}

func TestLedgerInstanceTime(t *testing.T) {
	scaled := func(at time.Duration, n int) LedgerRecord {
		return LedgerRecord{Event: LedgerScaled, Instances: n, At: noon.Add(at)}
	}
	deleted := LedgerRecord{Event: LedgerDeleted, ServiceID: "svc-1", At: noon.Add(50 * time.Minute)}
	for name, tc := range map[string]struct {
		records []LedgerRecord
		want    time.Duration // instance time one hour after noon
	}{
		"intended":             {[]LedgerRecord{intended()}, 2 * time.Hour},
		"unknown":              {[]LedgerRecord{intended(), event(LedgerUnknown)}, 2 * time.Hour},
		"refused":              {[]LedgerRecord{intended(), event(LedgerRefused)}, 0},
		"forgotten":            {[]LedgerRecord{intended(), event(LedgerForgotten)}, 0},
		"created":              {[]LedgerRecord{intended(), event(LedgerCreated)}, 2 * time.Hour},
		"deleted":              {[]LedgerRecord{intended(), event(LedgerCreated), deleted}, 100 * time.Minute},
		"scaled":               {[]LedgerRecord{intended(), event(LedgerCreated), scaled(10*time.Minute, 5), scaled(30*time.Minute, 0), scaled(40*time.Minute, 1)}, (20 + 100 + 20) * time.Minute},
		"scaled, deleted":      {[]LedgerRecord{intended(), event(LedgerCreated), scaled(10*time.Minute, 5), deleted}, (20 + 200) * time.Minute},
		"scaled in the future": {[]LedgerRecord{intended(), event(LedgerCreated), scaled(2*time.Hour, 5)}, 2 * time.Hour},
		"a clock behind":       {[]LedgerRecord{intended(), event(LedgerCreated), scaled(-time.Hour, 1)}, 2 * time.Hour},
	} {
		require.Equal(t, tc.want, foldOne(t, tc.records...).InstanceTime(noon.Add(time.Hour)), name)
	}
	require.Zero(t, foldOne(t, intended()).InstanceTime(noon.Add(-time.Hour)))
}

func TestLedgerSettleBy(t *testing.T) {
	now := time.Now()
	require.True(t, noon.Add(5*time.Minute).Equal(settleBy(noon, time.Time{})))
	require.True(t, noon.Add(5*time.Minute).Equal(settleBy(noon, noon.Add(time.Hour))))
	require.True(t, noon.Add(time.Minute).Equal(settleBy(noon, noon.Add(time.Minute))))
	for _, v := range []time.Time{settleBy(now, time.Time{}), settleBy(now, now), wallClock()} {
		require.NotContains(t, v.String(), "m=", "the monotonic clock stands still while the machine sleeps")
		require.Equal(t, time.UTC, v.Location())
	}
}

func TestLedgerKeys(t *testing.T) {
	for _, good := range []string{"a", "0", "-", "deploy_7-x", strings.Repeat("k", 64)} {
		var p problems
		checkKey(&p, good)
		require.NoError(t, p.err(), good)
	}
	for _, bad := range []string{"", "A", "a b", "a/b", "..", "a@1", "ä", "a\n", strings.Repeat("k", 65)} {
		var p problems
		checkKey(&p, bad)
		require.ErrorAs(t, p.err(), new(*ValidationError), "%q", bad)
	}
}

func TestLedgerErrorText(t *testing.T) {
	e := &LedgerError{Op: "append created", Key: "k", Intent: intentA, ServiceID: "svc-1", Err: fmt.Errorf("disk full\nreally")}
	require.Equal(t, "svc: ledger: append created, key k, endpoint svc-1: disk full really", e.Error())
	require.NotEmpty(t, new(LedgerError).Error())
}
