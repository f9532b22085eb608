package ledger

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
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
func journal(records ...Record) []Record {
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

func intended() Record {
	return Record{Event: Intended, BaseURL: "https://svc.example", Name: "n", FlavorID: "f", Instances: 2,
		SettleBy: noon.Add(5 * time.Minute), Lease: time.Hour}
}

func event(e Event) Record {
	r := Record{Event: e}
	if e == Created || e == Deleted {
		r.ServiceID = "svc-1"
	}
	return r
}

func foldOne(t *testing.T, records ...Record) Entry {
	t.Helper()
	entries, err := Fold(journal(records...))
	require.NoError(t, err)
	require.Len(t, entries, 1)
	return entries[0]
}

// The state table of an entry: for each state, the state after each event. An empty text
// means that the event does not change the state.
func TestLedgerStates(t *testing.T) {
	paths := map[State][]Event{ // the events that lead to each state
		Intended: {}, Unknown: {Unknown}, Refused: {Refused},
		Forgotten: {Forgotten}, Created: {Created}, Deleted: {Created, Deleted},
	}
	events := []Event{Created, Refused, Unknown, Forgotten, Deleted}
	table := map[State][]State{
		Intended:  {"created", "refused", "unknown", "forgotten", ""},
		Unknown:   {"created", "", "", "forgotten", ""},
		Refused:   {"created", "", "", "", ""},
		Forgotten: {"created", "refused", "unknown", "", ""},
		Created:   {"", "", "", "", "deleted"},
		Deleted:   {"", "", "", "", ""},
	}
	for state, row := range table {
		for i, next := range row {
			records := []Record{intended()}
			for _, e := range paths[state] {
				records = append(records, event(e))
			}
			require.Equal(t, state, foldOne(t, records...).State)
			for _, kept := range []Event{Scaled, Extended} {
				require.Equal(t, state, foldOne(t, append(records[:len(records):len(records)], event(kept))...).State)
			}
			records = append(records, event(events[i]))
			e := foldOne(t, records...)
			if next == "" {
				next = state
			}
			require.Equal(t, next, e.State, "%s and %s", state, events[i])
			require.Len(t, e.Records, len(records), "every record is kept")
			require.Equal(t, next == Intended || next == Unknown || next == Created, e.Open())
		}
	}
}

func TestLedgerFold(t *testing.T) {
	e := foldOne(t, intended(),
		Record{Event: Unknown, ServiceID: "svc-?"},
		Record{Event: Created, ServiceID: "svc-1", Adopted: true},
		Record{Event: Scaled, Instances: 5},
		Record{Event: Extended, Lease: 3 * time.Hour},
		Record{Event: Deleted, ServiceID: "svc-9"}, // about another endpoint, so it has no effect
		Record{Event: Deleted, ServiceID: "svc-1"},
		Record{Event: Created, ServiceID: "svc-1"}) // comes too late to have an effect
	require.Len(t, e.Records, 8)
	e.Records, e.before = nil, nil
	require.Equal(t, Entry{
		Key: "k", Intent: intentA, BaseURL: "https://svc.example", Name: "n", FlavorID: "f", ServiceID: "svc-1", State: Deleted,
		Instances: 5, Adopted: true, RequestedAt: noon, SettleBy: noon.Add(5 * time.Minute), CreatedAt: noon.Add(2 * time.Minute),
		DeletedAt: noon.Add(6 * time.Minute), Lease: 3 * time.Hour, LeaseEnd: noon.Add(3 * time.Hour),
	}, e)

	b := intended()
	b.Intent = intentB
	entries, err := Fold(journal(intended(), event(Refused), b, Record{Event: Created, ServiceID: "svc-1", Intent: intentA}))
	require.NoError(t, err)
	require.Len(t, entries, 2, "one for each intent")
	require.EqualValues(t, Created, entries[0].State, "a create that is recorded late must not be lost")
	require.EqualValues(t, Intended, entries[1].State)

	gap := journal(intended(), event(Unknown), event(Created))
	entries, err = Fold([]Record{gap[0], gap[2]})
	require.ErrorContains(t, err, "record 2 is missing: the next record is 3")
	require.Equal(t, "svc-1", entries[0].ServiceID, "records before the gap are still shown")

	entries, err = Fold(journal(event(Refused)))
	require.NoError(t, err, "a refused record may stand in place of an intent that could not be written")
	require.Empty(t, entries)
}

// TestUndoneAdoptionLeavesNothing of the wrong endpoint: the lease and the number of instances are those from before it.
func TestUndoneAdoptionLeavesNothing(t *testing.T) {
	first := intended()
	first.Lease, first.Instances = 8*time.Hour, 1
	undone := []Record{
		first, event(Unknown), {Event: Created, ServiceID: "svc-2", Adopted: true}, {Event: Scaled, Instances: 5}, {Event: Extended, Lease: 1, ServiceTime: noon.Add(time.Hour)},
		{Event: Created, ServiceID: "svc-2"}, {Event: Unknown, ServiceID: "svc-2", Adopted: true},
	}
	right := Record{Event: Created, ServiceID: "svc-1", Adopted: true, ServiceTime: noon.Add(3 * time.Minute)}
	for _, tt := range []struct {
		more      []Record
		lease     time.Time
		instances int
	}{
		{nil, noon.Add(8 * time.Hour), 1},
		{[]Record{right}, noon.Add(8*time.Hour + 3*time.Minute), 1},
		{[]Record{right, {Event: Scaled, Instances: 3}, {Event: Extended, Lease: time.Hour, ServiceTime: noon.Add(2 * time.Hour)}}, noon.Add(3 * time.Hour), 3},
		{[]Record{{Event: Created, ServiceID: "svc-3", Adopted: true}, {Event: Extended}, {Event: Unknown, ServiceID: "svc-3", Adopted: true}, right}, noon.Add(8*time.Hour + 3*time.Minute), 1},
		{[]Record{{Event: Extended, Lease: time.Hour, ServiceTime: noon}, right}, noon.Add(time.Hour), 1},
	} {
		e := foldOne(t, append(slices.Clone(undone), tt.more...)...)
		require.Equal(t, tt.instances, e.Instances)
		require.Equal(t, tt.lease, e.LeaseEnd)
		require.True(t, e.Open())
	}
}

func TestLedgerDamage(t *testing.T) {
	two := event(Created)
	two.ServiceID = "svc-2"
	gap := journal(intended(), event(Unknown), event(Forgotten))
	for want, records := range map[string][]Record{
		`record 2 has the unknown event "paused"`:                                                 journal(intended(), event("paused")),
		`record 3 has the endpoint "svc-2", but an earlier record of the same create has "svc-1"`: journal(intended(), event(Created), two),
		"record 2 is missing: the next record is 3":                                               {gap[0], gap[2]},
		"record 2 (\"unknown\") belongs to a create without a record of the event \"intended\"":   gap[1:],
		"record 3 is missing: the next record is 2":                                               {gap[0], gap[1], gap[1]},
		"record 1 (\"created\") belongs to a create without a record of the event \"intended\"":   journal(event(Created)),
		`has no endpoint ID`: journal(intended(), Record{Event: Created}),
		"record 3 has the unknown event \"\": a later version of this package": journal(intended(), event(Created), event("")),
	} {
		other := intended()
		other.Key, other.Seq = "other", 1
		entries, err := Fold(append([]Record{other}, records...))
		require.ErrorContains(t, err, want)
		var e *Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, "k", e.Key)
		require.Equal(t, "other", entries[0].Key, "other keys can be read")
	}
}

func TestLedgerVerdicts(t *testing.T) {
	body := []byte(`{"name":"n","resource_metadata":{"flavor_id":"f","target_instance_number":2}}`)
	asked, err := ParseRequest(body)
	require.NoError(t, err)
	mine := func() Record {
		r := intended()
		r.RequestHash = asked.hash(intentA, asked.FlavorID)
		return r
	}
	const unpicked = `{"name":"n","resource_metadata":{"target_instance_number":2}}`
	picked := func() Record {
		r := intended()
		open, err := ParseRequest([]byte(unpicked))
		require.NoError(t, err)
		r.RequestHash = open.hash(intentA, "")
		return r
	}
	b := intended()
	b.Intent = intentB
	for name, tc := range map[string]struct {
		records []Record
		body    string
		base    string
		after   time.Duration
		verdict Verdict
		text    string
	}{
		"nothing":                    {},
		"refused":                    {records: []Record{mine(), event(Refused)}},
		"forgotten":                  {records: []Record{mine(), event(Forgotten)}},
		"deleted":                    {records: []Record{mine(), event(Created), event(Deleted)}},
		"intended":                   {records: []Record{mine()}, verdict: Wait},
		"intended, just":             {records: []Record{mine()}, after: 6*time.Minute - 1, verdict: Wait},
		"intended, later":            {records: []Record{mine()}, after: 6 * time.Minute, verdict: InDoubt},
		"unknown":                    {records: []Record{mine(), event(Unknown)}, verdict: InDoubt},
		"unknown, other":             {records: []Record{mine(), event(Unknown)}, body: `{"name":"x"}`, verdict: InDoubt},
		"created":                    {records: []Record{mine(), event(Created)}, verdict: Resume},
		"created, long ago":          {records: []Record{mine(), event(Created)}, after: 1e6 * time.Hour, verdict: Resume},
		"created, scaled":            {records: []Record{mine(), event(Created), event(Scaled)}, verdict: Resume},
		"created, other name":        {records: []Record{mine(), event(Created)}, body: `{"name":"x"}`, verdict: InUse, text: `the endpoint of the key was created with the name "n", and this call asks for "x"`},
		"created, other image":       {records: []Record{mine(), event(Created)}, body: strings.Replace(string(body), "}}", `},"deploy_metadata":{"image_url":"i"}}`, 1), verdict: InUse, text: "with the same name, flavor and number of instances, but other fields of the request body differ, such as the image"},
		"created, any flavor":        {records: []Record{mine(), event(Created)}, body: `{"name":"m","resource_metadata":{"target_instance_number":2}}`, verdict: InUse, text: `with the name "n", and this call asks for "m"`},
		"created, its flavor picked": {records: []Record{picked(), event(Created)}, verdict: Resume},
		"created, no flavor":         {records: []Record{mine(), event(Created)}, body: unpicked, verdict: Resume},
		"created, picked again":      {records: []Record{picked(), event(Created)}, body: unpicked, verdict: Resume},
		"created, picked, other":     {records: []Record{picked(), event(Created)}, body: strings.Replace(string(body), `"f"`, `"g"`, 1), verdict: InUse, text: `with the flavor "f", and this call asks for "g"`},
		"created, picked, image":     {records: []Record{picked(), event(Created)}, body: strings.Replace(string(body), "}}", `},"deploy_metadata":{"image_url":"i"}}`, 1), verdict: InUse, text: "such as the image"},
		"created, picked, scale":     {records: []Record{picked(), event(Created)}, body: strings.Replace(string(body), `"f"`, `"f","scale_type":"auto"`, 1), verdict: InUse, text: "other fields of the request body"},
		"created, other field":       {records: []Record{mine(), event(Created)}, body: strings.Replace(string(body), "}}", `},"x":1}`, 1), verdict: InUse, text: "other fields of the request body"},
		"created, other base":        {records: []Record{mine(), event(Created)}, base: "https://other.example", verdict: InUse, text: "https://other.example"},
		"two open":                   {records: []Record{mine(), event(Unknown), b}, after: time.Hour, verdict: InUse, text: "2 open entries"},
		"forgotten, late":            {records: []Record{mine(), event(Forgotten), b, event(Created)}, verdict: InUse, text: "2 open entries"},
	} {
		t.Run(name, func(t *testing.T) {
			entries, err := Fold(journal(tc.records...))
			require.NoError(t, err)
			want := asked
			if tc.body != "" {
				want, err = ParseRequest([]byte(tc.body))
				require.NoError(t, err)
			}
			verdict, _, text := judge(entries, cmp.Or(tc.base, "https://svc.example"), want, noon.Add(tc.after))
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
	want := Request{Name: "n", FlavorID: "f", Instances: 2, fields: map[string]any{"name": "whatever"}}
	e := Entry{Records: []Record{had}}
	require.Empty(t, e.Differs(had.BaseURL, want))
	want.Instances++
	require.Contains(t, e.Differs(had.BaseURL, want), `number of instances "2", and this call asks for "3"`)
}

func TestLedgerRequestHash(t *testing.T) {
	hashOf := func(intent, body string) string {
		r, err := ParseRequest([]byte(body))
		require.NoError(t, err)
		return r.hash(intent, r.FlavorID)
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
	for body, want := range map[string]Record{
		`{"name":"n"}`: {Name: "n", Instances: 1},
		`{"name":"n","resource_metadata":{"flavor_id":"f","target_instance_number":0}}`:    {Name: "n", FlavorID: "f"},
		`{"name":"n","resource_metadata":{"flavor_id":"f","target_instance_number":"3"}}`:  {Name: "n", FlavorID: "f", Instances: 3},
		`{"name":"n","resource_metadata":{"flavor_id":"f","target_instance_number":null}}`: {Name: "n", FlavorID: "f", Instances: 1},
	} {
		r, err := ParseRequest([]byte(body))
		require.NoError(t, err)
		record, same, err := r.Intend("k", "b", []byte(body), false)
		require.NoError(t, err)
		require.Equal(t, body, string(same))
		want.Key, want.BaseURL, want.Event, want.Intent, want.RequestHash = "k", "b", Intended, record.Intent, r.hash(record.Intent, r.FlavorID)
		require.Equal(t, want, record, body)
	}
	for _, bad := range []string{`{"name":"n","resource_metadata":{"target_instance_number":"two"}}`, `{"name":5}`, `[]`} {
		_, err := ParseRequest([]byte(bad))
		require.ErrorIs(t, err, errBody)
	}
}

func TestLedgerMark(t *testing.T) {
	for body, want := range map[string]string{
		`{"name":"n"}`:                        `{"description":"[svc:I]","name":"n"}`,
		`{"name":"n","description":""}`:       `{"description":"[svc:I]","name":"n"}`,
		`{"name":"n","description":null}`:     `{"description":"[svc:I]","name":"n"}`,
		`{"name":"n","description":" mine "}`: `{"description":"[svc:I] mine","name":"n"}`,
		`{"description":"a copy [svc:` + intentB + `]","seed":12345678901234567890}`: `{"description":"[svc:I] a copy","seed":12345678901234567890}`,
	} {
		r, err := ParseRequest([]byte(body))
		require.NoError(t, err)
		record, marked, err := r.Intend("k", "b", []byte(body), true)
		require.NoError(t, err)
		require.Equal(t, strings.Replace(want, "svc:I", "svc:"+record.Intent, 1), string(marked))
	}
	for _, bad := range []string{`5`, `{}`} {
		_, _, err := Request{}.Intend("k", "b", []byte(`{"description":`+bad+`}`), true)
		require.ErrorContains(t, err, "must be a string", bad)
	}

	for description, want := range map[string][2]string{
		"":                            {},
		"mine":                        {"", "mine"},
		"[svc:" + intentA + "]":       {intentA, ""},
		"mine [svc:" + intentA + "]":  {intentA, "mine"},
		" x [svc:" + intentA + "] \n": {intentA, "x"},
		"[svc:" + intentA + "] x":     {intentA, "x"},
		"[svc:" + intentA + "] [svc:" + intentB + "]": {intentA, ""},
		"[svc:" + intentA[1:] + "]":                   {"", "[svc:" + intentA[1:] + "]"},
		"[svc:" + intentA + "A]":                      {"", "[svc:" + intentA + "A]"},
		"[svc:" + intentA[1:] + "1]":                  {"", "[svc:" + intentA[1:] + "1]"},
	} {
		intent, without := FindMark(description)
		require.Equal(t, want, [2]string{intent, without}, "%q", description)
	}
}

func TestLedgerMayForget(t *testing.T) {
	over := noon.Add(6 * time.Minute)
	for name, tc := range map[string]struct {
		records  []Record
		seenFor  time.Duration
		date     time.Time
		notFound bool
		ok       bool
		clock    time.Duration // error of the clock of the process that created
		blind    bool          // that process did not know the service's time
	}{
		"unknown":           {records: []Record{intended(), event(Unknown)}, date: over, ok: true},
		"intended":          {records: []Record{intended()}, date: over, ok: true},
		"no date":           {records: []Record{intended()}},
		"no date, waited":   {records: []Record{intended()}, seenFor: 6 * time.Minute, ok: true},
		"waited too little": {records: []Record{intended(), event(Unknown)}, seenFor: 6*time.Minute - 1},
		"date too early":    {records: []Record{intended(), event(Unknown)}, date: over.Add(-1)},
		"a clock is ahead":  {records: []Record{intended()}, seenFor: 6 * time.Minute, date: noon.Add(-24 * time.Hour), ok: true},
		"date, blind":       {records: []Record{intended(), event(Unknown)}, date: over.Add(time.Hour), blind: true},
		"clock behind":      {records: []Record{intended()}, date: over.Add(-1), clock: -7 * time.Minute},
		"clock behind, ok":  {records: []Record{intended()}, date: over, clock: -7 * time.Minute, ok: true},
		"clock ahead":       {records: []Record{intended()}, date: over.Add(time.Minute - 1), clock: time.Minute},
		"told by a failure": {records: []Record{intended(), {Event: Unknown, ServiceTime: noon}}, date: over.Add(-5 * time.Minute), clock: -time.Hour, blind: true, ok: true},
		"created":           {records: []Record{intended(), event(Created)}, date: over},
		"not found":         {records: []Record{intended(), event(Created)}, notFound: true, ok: true},
		"deleted":           {records: []Record{intended(), event(Created), event(Deleted)}, notFound: true, date: over},
		"refused":           {records: []Record{intended(), event(Refused)}, date: over},
		"forgotten before":  {records: []Record{intended(), event(Forgotten)}, date: over},
	} {
		begin := &tc.records[0]
		if begin.At, begin.SettleBy = noon.Add(tc.clock), begin.SettleBy.Add(tc.clock); !tc.blind {
			begin.ServiceTime = noon
		}
		e := foldOne(t, tc.records...)
		e.seenFor = tc.seenFor
		require.Equal(t, tc.ok, e.mayForget(e.BaseURL, tc.notFound, tc.date) == nil, name)
		require.ErrorContains(t, e.mayForget("https://other.test", tc.notFound, tc.date), "another base URL", name)
	}
}

func TestLedgerMayAdopt(t *testing.T) {
	const base = "https://svc.example"
	over := noon.Add(6 * time.Minute)
	marked := func() Endpoint { return Endpoint{Name: "n", Description: "d [svc:" + intentA + "]"} }
	for state, ok := range map[State]bool{"": true, Unknown: true, Forgotten: true, Refused: false, Created: false} {
		records := []Record{intended()}
		if state != "" {
			records = append(records, event(Event(state)))
		}
		e := foldOne(t, records...)
		require.Equal(t, ok, e.mayAdopt(base, marked(), false, over) == nil, state)
	}
	e := foldOne(t, intended())
	require.NoError(t, e.mayAdopt(base, marked(), false, over.Add(-1)), "the mark proves that the endpoint belongs to the entry")
	require.ErrorContains(t, e.mayAdopt(base, Endpoint{Name: "n"}, true, over.Add(-1)), "too early", "the creating process may still record the outcome")
	require.ErrorContains(t, e.mayAdopt("https://other.example", marked(), false, over), base)
	for want, change := range map[string]func(*Endpoint){
		"deleted":                  func(s *Endpoint) { s.Deleted = true },
		"the name of the endpoint": func(s *Endpoint) { s.Name = "other" },
		"another entry, whose intent is " + intentB: func(s *Endpoint) { s.Description = "[svc:" + intentB + "]" },
		"it has no mark": func(s *Endpoint) { s.Description = "d" },
	} {
		s := marked()
		change(&s)
		require.ErrorContains(t, e.mayAdopt(base, s, false, over), want)
		require.Equal(t, want == "it has no mark", e.mayAdopt(base, s, true, over) == nil, want)
	}
}

func TestLedgerMayUndo(t *testing.T) {
	adopted, created := event(Created), event(Created)
	adopted.ServiceID, adopted.Adopted, created.ServiceID = "svc-9", true, "svc-9"
	deleted := event(Deleted)
	deleted.ServiceID = "svc-9"
	bare, marked := Endpoint{ID: "svc-9"}, Endpoint{ID: "svc-9", Description: "[svc:" + intentA + "] d"}
	for name, tc := range map[string]struct {
		records []Record
		s       Endpoint
		ok      bool
	}{
		"adopted without a mark":        {[]Record{event(Unknown), adopted}, bare, true},
		"after a wrong Forget":          {[]Record{event(Forgotten), adopted}, bare, true},
		"another endpoint was read":     {[]Record{event(Unknown), adopted}, Endpoint{ID: "svc-1"}, false},
		"the mark proves that it is it": {[]Record{event(Unknown), adopted}, marked, false},
		"created, not adopted":          {[]Record{created}, bare, false},
		"deleted":                       {[]Record{event(Unknown), adopted, deleted}, bare, false},
		"in doubt":                      {[]Record{event(Unknown)}, bare, false},
	} {
		e := foldOne(t, append([]Record{intended()}, tc.records...)...)
		require.Equal(t, tc.ok, e.mayUndo(e.BaseURL, tc.s) == nil, name)
		require.ErrorContains(t, e.mayUndo("https://other.test", tc.s), "another base URL", name)
	}
}

func TestLedgerMayReap(t *testing.T) {
	const base = "https://svc.example"
	end := noon.Add(time.Hour)
	created := event(Created)
	created.ServiceTime = noon
	e := foldOne(t, intended(), created)
	require.False(t, e.Overdue(base, end))
	require.True(t, e.Overdue(base, end.Add(time.Second)))
	require.False(t, e.Overdue("https://other.example", end.Add(time.Hour)))
	deleted := foldOne(t, intended(), event(Created), event(Deleted))
	require.False(t, deleted.Overdue(base, end.Add(time.Hour)))
	free := foldOne(t, intended(), event(Created), Record{Event: Extended})
	require.False(t, free.Overdue(base, end.Add(1e6*time.Hour)), "no lease")

	mine, other := "[svc:"+intentA+"]", "[svc:"+intentB+"]"
	require.NoError(t, e.MayReap(end.Add(time.Second), Endpoint{Name: "N ", Description: mine}))
	require.NoError(t, e.MayReap(end.Add(time.Second), Endpoint{Name: "N ", Description: "no mark"}))
	require.ErrorIs(t, e.MayReap(end.Add(time.Second), Endpoint{Name: "N ", Description: other}), ErrMark)
	require.Error(t, e.MayReap(end, Endpoint{Name: "N ", Description: mine}), "by the service's clock the lease has not ended yet")
	require.Error(t, e.MayReap(end.Add(time.Second), Endpoint{Name: "other"}), "another name")
	require.Error(t, e.MayReap(time.Time{}, Endpoint{Name: "N ", Description: mine}), "no Date")
	unknown := foldOne(t, intended(), event(Created)) // the service did not say when
	require.ErrorContains(t, unknown.MayReap(end.Add(time.Hour), Endpoint{Name: "n"}), "had no Date header")
	require.ErrorContains(t, unknown.MayReap(end.Add(time.Hour), Endpoint{Name: "n", CreatedAt: noon}), "had no Date header", "created_at may be of another clock")
	e.Adopted = true
	require.NoError(t, e.MayReap(end.Add(time.Second), Endpoint{Name: "N ", Description: mine}))
	require.ErrorIs(t, e.MayReap(end.Add(time.Second), Endpoint{Name: "N ", Description: "no mark"}), ErrMark)
}

func TestLedgerInstanceTime(t *testing.T) {
	scaled := func(at time.Duration, n int) Record {
		return Record{Event: Scaled, Instances: n, At: noon.Add(at)}
	}
	deleted := Record{Event: Deleted, ServiceID: "svc-1", At: noon.Add(50 * time.Minute)}
	for name, tc := range map[string]struct {
		records []Record
		want    time.Duration // instance time one hour after noon
	}{
		"intended":             {[]Record{intended()}, 2 * time.Hour},
		"unknown":              {[]Record{intended(), event(Unknown)}, 2 * time.Hour},
		"refused":              {[]Record{intended(), event(Refused)}, 0},
		"forgotten":            {[]Record{intended(), event(Forgotten)}, 0},
		"created":              {[]Record{intended(), event(Created)}, 2 * time.Hour},
		"deleted":              {[]Record{intended(), event(Created), deleted}, 100 * time.Minute},
		"scaled":               {[]Record{intended(), event(Created), scaled(10*time.Minute, 5), scaled(30*time.Minute, 0), scaled(40*time.Minute, 1)}, (20 + 100 + 20) * time.Minute},
		"scaled, deleted":      {[]Record{intended(), event(Created), scaled(10*time.Minute, 5), deleted}, (20 + 200) * time.Minute},
		"scaled in the future": {[]Record{intended(), event(Created), scaled(2*time.Hour, 5)}, 2 * time.Hour},
		"a clock behind":       {[]Record{intended(), event(Created), scaled(-time.Hour, 1)}, 2 * time.Hour},
	} {
		require.Equal(t, tc.want, foldOne(t, tc.records...).InstanceTime(noon.Add(time.Hour)), name)
	}
	require.Zero(t, foldOne(t, intended()).InstanceTime(noon.Add(-time.Hour)))
}

// An intent says until when its create may be sent: for five minutes, or until the deadline of its ctx.
func TestLedgerClaimSetsItsTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := NewJournal(Memory(), "b", func(err error) error { return err })
		for deadline, want := range map[time.Duration]time.Duration{0: SettleLimit, time.Hour: SettleLimit, time.Minute: time.Minute} {
			ctx := t.Context()
			if deadline > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, deadline)
				defer cancel()
			}
			r := Record{Key: "k", Seq: int64(want + deadline), Intent: intentA, Event: Intended}
			ok, err := j.Claim(ctx, &r)
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, want, r.SettleBy.Sub(r.At))
			require.True(t, r.At.Equal(time.Now()))
			for _, v := range []time.Time{r.At, r.SettleBy} {
				require.NotContains(t, v.String(), "m=", "the monotonic clock stands still while the machine sleeps")
				require.Equal(t, time.UTC, v.Location())
			}
		}
	})
}

func TestLedgerKeys(t *testing.T) {
	for _, good := range []string{"a", "0", "-", "deploy_7-x", strings.Repeat("k", 64)} {
		require.True(t, ValidKey(good), good)
	}
	for _, bad := range []string{"", "A", "a b", "a/b", "..", "a@1", "ä", "a\n", strings.Repeat("k", 65)} {
		require.False(t, ValidKey(bad), "%q", bad)
	}
}

func TestLedgerErrorText(t *testing.T) {
	e := &Error{Op: "append created", Key: "k", Intent: intentA, ServiceID: "svc-1", Err: fmt.Errorf("disk full\nreally")}
	require.Equal(t, "svc: ledger: append created, key k, endpoint svc-1: disk full really", e.Error())
	require.NotEmpty(t, new(Error).Error())
}
