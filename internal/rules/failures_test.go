package rules

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The table of what ends a task: before the client had contact with the service, after it, and
// for a cleanup.
func TestWhatEndsATask(t *testing.T) {
	const (
		ends     = "ends"     // at once
		confirms = "confirms" // if it is still there 10 s later
		fifth    = "fifth"    // five in a row
		passes   = "passes"
	)
	service := func(status int) Failure { return Failure{Class: Service, Status: status} }
	for name, c := range map[string]struct {
		f                      Failure
		before, after, cleanup string
	}{
		"the token source fails": {Failure{Class: Local}, ends, passes, passes},
		"a certificate":          {Failure{Class: Transport, Persistent: true}, ends, passes, passes},
		"the connection fails":   {Failure{Class: Transport}, passes, passes, passes},
		"408":                    {service(408), passes, passes, passes},
		"425":                    {service(425), passes, passes, passes},
		"429":                    {service(429), passes, passes, passes},
		"500":                    {service(500), passes, passes, passes},
		"503, as a page":         {Failure{Class: Intermediary, Status: 503}, passes, passes, passes},
		"a page":                 {Failure{Class: Intermediary, Status: 200}, fifth, passes, passes},
		"a 403 of a proxy":       {Failure{Class: Intermediary, Status: 403}, fifth, passes, passes},
		"cannot be decoded":      {Failure{Class: Service, Status: 200, Undecodable: true}, fifth, passes, passes},
		"401":                    {service(401), ends, confirms, passes},
		"403":                    {service(403), ends, confirms, passes},
		"409":                    {service(409), ends, confirms, passes},
		"423":                    {service(423), ends, confirms, passes},
		"400":                    {service(400), ends, confirms, confirms},
		"422":                    {service(422), ends, confirms, confirms},
		"a redirect":             {service(301), ends, confirms, confirms},
		"no token":               {Failure{Class: Local, Final: true}, ends, ends, ends},
		"Permanent":              {Failure{Final: true}, ends, ends, ends},
	} {
		t.Run(name, func(t *testing.T) {
			for _, column := range []struct {
				task    Task
				contact bool
				want    string
			}{
				{Wait, false, c.before},
				{Wait, true, c.after},
				{Removal, false, c.before},
				{Removal, true, c.cleanup},
				{Cleanup, true, c.cleanup},
			} {
				e, now, failures := Failures{Task: column.task}, walkStart, 1
				var goesOn bool
				for ; failures < 100; failures++ {
					if e, goesOn = e.After(c.f, column.contact, now); !goesOn {
						break
					}
					now = now.Add(time.Second)
				}
				got := map[int]string{1: ends, 5: fifth, 11: confirms, 100: passes}[failures]
				require.Equal(t, column.want, got, "task %d, contact %v: %d failures", column.task, column.contact, failures)
			}
		})
	}
}

func TestCleanupBeforeContactEnduresWhatACleanupEndures(t *testing.T) {
	e := Failures{Task: Cleanup}
	for _, f := range []Failure{{Class: Local}, {Class: Transport, Persistent: true}, {Class: Intermediary, Status: 200}, {Status: 401}, {Status: 409}} {
		for range 20 {
			_, goesOn := e.After(f, false, walkStart)
			require.True(t, goesOn, "%+v", f)
		}
	}
}

// Failures in a row are counted from the start after a "not found".
func TestNotFoundForgetsFailures(t *testing.T) {
	found := func(e Failures) Failures {
		e, goesOn := e.After(Failure{Status: 404}, false, walkStart)
		require.True(t, goesOn)
		return e
	}
	e := Failures{Task: Wait}
	for i := range 50 {
		var goesOn bool
		if e, goesOn = e.After(Failure{Class: Intermediary, Status: 200}, false, walkStart); i%4 == 3 {
			e = found(e)
		}
		require.True(t, goesOn)
	}
	e, _ = e.After(Failure{Status: 401}, true, walkStart)
	_, goesOn := found(e).After(Failure{Status: 401}, true, walkStart.Add(time.Hour))
	require.True(t, goesOn)
	_, goesOn = e.After(Failure{Status: 401}, true, walkStart.Add(confirm))
	require.False(t, goesOn)
	junk, _ := e.After(Failure{Class: Service, Status: 200, Undecodable: true}, true, walkStart)
	_, goesOn = junk.After(Failure{Status: 401}, true, walkStart.Add(confirm))
	require.True(t, goesOn, "the service accepted the token in between")
	for _, took := range []time.Duration{confirm, 9 * time.Minute} { // an outage between two refusals
		outage, _ := e.After(Failure{Status: 503}, true, walkStart.Add(took))
		_, goesOn = outage.After(Failure{Status: 401}, true, walkStart.Add(took))
		require.Equal(t, took > confirm, goesOn, took)
	}
	page, _ := e.After(Failure{Class: Intermediary, Status: 200}, true, walkStart)
	_, goesOn = page.After(Failure{Status: 401}, true, walkStart.Add(confirm))
	require.False(t, goesOn, "a page does not say that the service accepts the token")
}

func TestOverslept(t *testing.T) {
	for _, c := range []struct {
		interval, silent time.Duration
		want             bool
	}{
		{time.Second, time.Second, false}, {time.Second, 2 * time.Second, false}, {time.Second, 3 * time.Second, true},
		{15 * time.Second, 20 * time.Second, false}, {15 * time.Second, time.Hour, true},
		{time.Millisecond, 500 * time.Millisecond, false}, // a busy machine
	} {
		require.Equal(t, c.want, WasSuspended(c.interval, c.silent), "%+v", c)
	}
}

func TestClassOfAResponse(t *testing.T) {
	const json, html, text = "application/json", "text/html; charset=utf-8", "text/plain"
	for name, c := range map[string]struct {
		r    Response
		want Class
		why  string
	}{
		"record":              {Response{200, json, []byte(`{"id":1}`), false, false, nil}, Service, ""},
		"404 in JSON":         {Response{404, json, []byte(" {}\n"), false, false, nil}, Service, ""},
		"404 in JSON, BOM":    {Response{404, json, []byte("\xef\xbb\xbf{}"), false, false, nil}, Service, ""},
		"404 in JSON, text":   {Response{404, text, []byte(`{"message":"no"}`), false, false, nil}, Service, ""},
		"404, empty":          {Response{404, json, nil, false, false, nil}, Intermediary, IsPlain},
		"410, empty":          {Response{410, "", nil, false, false, nil}, Intermediary, IsPlain},
		"404, text":           {Response{404, text, []byte("404 page not found"), false, false, nil}, Intermediary, IsPlain},
		"404, a number":       {Response{404, text, []byte("404"), false, false, nil}, Intermediary, IsPlain},
		"404, broken JSON":    {Response{404, json, []byte(`{"message":`), false, false, nil}, Intermediary, IsPlain},
		"404, a page":         {Response{404, html, []byte("<html>"), false, false, nil}, Intermediary, IsHTML},
		"404, called a page":  {Response{404, html, []byte("{}"), false, false, nil}, Intermediary, AsHTML},
		"404, cut":            {Response{404, json, []byte(`{"a":1}`), true, false, nil}, Intermediary, IsCut},
		"502, text":           {Response{502, text, []byte("bad gateway"), false, false, nil}, Intermediary, IsPlain},
		"503 in JSON":         {Response{503, json, []byte("{}"), false, false, nil}, Service, ""},
		"401, empty":          {Response{401, "", nil, false, false, nil}, Service, ""},
		"403 in JSON":         {Response{403, json, []byte("[]"), false, false, nil}, Service, ""},
		"delete, empty":       {Response{204, "", nil, false, false, nil}, Service, ""},
		"to a login page":     {Response{302, "", nil, false, true, nil}, Intermediary, IsElsewhere},
		"200, XML of a proxy": {Response{200, "application/xml", []byte("<?xml?>"), false, false, nil}, Intermediary, IsHTML},
	} {
		t.Run(name, func(t *testing.T) {
			class, why := Classify(c.r)
			require.Equal(t, c.want, class)
			require.Equal(t, c.why, why)
		})
	}
}

func TestNamesThatAServiceMakes(t *testing.T) {
	for _, c := range []struct {
		asked, given string
		want         bool
	}{
		{"demo", "demo", true}, {"demo", " Demo", true}, {"My App", "my-app", true}, {"my_app", "my-app-7f3a", true},
		{"a-name-that-is-too-long", "a-name-that-is-t", true}, {"名前", "名前", true},
		{"demo", "somebody-elses", false}, {"demo", "de", true}, {"demo", "d", false}, {"demo", "", false}, {"demo", "--", false}, {"--", "demo", false},
	} {
		require.Equal(t, c.want, Renamed(c.asked, c.given), "%q and %q", c.asked, c.given)
	}
}
