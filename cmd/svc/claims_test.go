package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/svc/ledger"
	"example.com/svc/svctest"
)

// claim is what a command of a story has said, with how things were before and are after it.
type claim struct {
	*story
	act
	e             ended
	before, after moment
	alone         bool // no other command has run at the same time
}

// wrong returns what of it is not true, or "".
func (c claim) wrong() string {
	why := c.code()
	if why == "" && c.e.code >= 0 && c.args[0] != "run" {
		why = c.document()
	}
	for text, holds := range sentences {
		for _, found := range regexp.MustCompile(`(?m)`+text).FindAllStringSubmatch(c.e.stderr, -1) {
			if why == "" && !holds(c, append(found, "")) {
				why = "it is not true: " + found[0]
			}
		}
	}
	if why == "" && c.advised && (c.e.code == exitUsage || c.e.code == exitLedger) {
		why = "the command was advised, and is refused"
	}
	return why
}

// created lists the endpoints of the name that the command has created, or another one at the same time.
func (c claim) created() (ids []string) {
	for _, e := range c.after.named(c.name) {
		if _, was := c.before.endpoints[e.ID]; !was {
			ids = append(ids, e.ID)
		}
	}
	return ids
}

// code compares the exit code with the truth.
func (c claim) code() string {
	code, command, running := c.e.code, c.args[0], c.after.running(c.name)
	if n := len(c.created()); n > 1 && c.alone || c.name == "keyed" && len(running) > 1 {
		return fmt.Sprintf("%d endpoints were created, and %v are running", n, running)
	}
	if goName := goNames.FindString(c.e.stdout + c.e.stderr); goName != "" || strings.Contains(c.e.stdout+c.e.stderr, c.srv.Token()) {
		return "a name of Go or the token is shown: " + goName
	}
	if !c.changes() || !c.alone {
		return ""
	}
	if len(running) > 0 && !c.mayRun() && !c.notKnown() {
		return fmt.Sprintf("code %d says that nothing is running, but %v are", code, running)
	}
	if code != exitOK {
		return ""
	}
	switch n, _ := strconv.Atoi(c.word(len(c.args) - 5)); {
	case command == "scale" && !slices.ContainsFunc(c.after.named(c.name), func(e svctest.Endpoint) bool { return !e.Deleted && e.Instances == n }):
		return fmt.Sprintf("no endpoint has %d instances", n)
	case command == "deploy" && !slices.Contains(c.args, "--dry-run") && len(running) == 0 && !c.stopped():
		return "the deployment has succeeded, and nothing runs"
	}
	return ""
}

// stopped reports whether an endpoint of the name has 0 instances.
func (c claim) stopped() bool {
	return slices.ContainsFunc(c.after.named(c.name), func(e svctest.Endpoint) bool { return !e.Deleted && e.Instances == 0 })
}

func (c claim) word(i int) string {
	if i < 0 || i >= len(c.args) {
		return ""
	}
	return c.args[i]
}

// mayRun reports whether the exit code says that an endpoint may be running.
func (c claim) mayRun() bool {
	code, command := c.e.code, c.args[0]
	return code == exitRunning || code == exitUnknown || code == exitLedger || code < 0 || code == exitUsage || code == exitOK && command != "delete" && command != "run"
}

// notKnown reports whether the command has not found the endpoint, which proves nothing: the document tells.
func (c claim) notKnown() bool { return c.e.code == exitNotFound && c.args[0] != "run" }

// document compares the document with the truth.
func (c claim) document() string {
	var all map[string]any
	var doc struct {
		MayBeRunning bool   `json:"may_be_running"`
		ServiceID    string `json:"service_id"`
		Created      *bool  `json:"created"`
		Deleted      bool   `json:"deleted"`
		ExitCode     int    `json:"exit_code"`
		Key          string `json:"key"`
		Entries      []struct {
			ServiceID string  `json:"service_id"`
			Deleted   bool    `json:"deleted"`
			State     string  `json:"state"`
			Seconds   float64 `json:"instance_seconds"`
		}
		Endpoints []struct {
			ServiceID string `json:"service_id"`
			Deleted   bool   `json:"deleted"`
		}
	}
	if err := cmp.Or(json.Unmarshal([]byte(c.e.stdout), &doc), json.Unmarshal([]byte(c.e.stdout), &all)); err != nil {
		return "no document: " + err.Error()
	}
	schemas, err := strictSchemas()
	if err == nil {
		err = schemas[c.args[0]].Validate(any(all))
	}
	why := contradiction(all)
	if c.alone {
		why = cmp.Or(why, c.e.unsaid(all))
	}
	if why != "" || err != nil {
		return fmt.Sprint(why, err)
	}
	if doc.ExitCode != c.e.code {
		return "exit_code is not the exit code"
	}
	running, made := c.after.running(c.name), c.created()
	gone := func(id string) bool { e, has := c.after.endpoints[id]; return !has || e.Deleted }
	for _, e := range doc.Entries {
		if (e.Deleted || e.State == "deleted") && !gone(e.ServiceID) {
			return e.ServiceID + " is deleted, by the document only"
		}
		if bill := c.srv.Bill().ByEndpoint[e.ServiceID].Seconds(); c.alone && e.State == "created" && bill > e.Seconds+2 {
			return fmt.Sprintf("%s has run for %.1f s", e.ServiceID, bill)
		}
	}
	for _, e := range doc.Endpoints {
		if e.Deleted && !gone(e.ServiceID) {
			return e.ServiceID + " is deleted, by the document only"
		}
	}
	switch {
	case doc.Deleted && !gone(doc.ServiceID):
		return doc.ServiceID + " is deleted, by the document only"
	case doc.Created != nil && *doc.Created && (!slices.Contains(made, doc.ServiceID)):
		return fmt.Sprintf("it has created %s, by the document only", doc.ServiceID)
	case doc.Created != nil && !*doc.Created && c.alone && len(made) > 0:
		return fmt.Sprintf("created is false, but it has created %v", made)
	case c.alone && len(running) > 0 && !doc.MayBeRunning:
		return fmt.Sprintf("may_be_running is false, but %v are", running)
	case c.alone && c.changes() && !c.mayRun() && !c.notKnown() && doc.MayBeRunning:
		return fmt.Sprintf("code %d, and may_be_running", c.e.code)
	}
	return ""
}

func (c claim) changes() bool {
	return slices.Contains([]string{"deploy", "run", "delete", "scale", "sweep"}, c.args[0])
}

// sentences are what a command may say, and whether it holds. found has the parts of the sentence.
var sentences = map[string]func(c claim, found []string) bool{
	`^(?:svc: )?(svc-\d+)(?: of the key \S+)? is deleted(?: after .*|: another.*)?$`: func(c claim, found []string) bool {
		e, has := c.after.endpoints[found[1]]
		return !has || e.Deleted
	},
	`^created (svc-\d+), which`: func(c claim, found []string) bool { return slices.Contains(c.created(), found[1]) },
	`Nothing is left running\.`: func(c claim, _ []string) bool {
		return !slices.ContainsFunc(c.created(), func(id string) bool { return c.after.endpoints[id].Billed }) || !c.alone
	},
	`Nothing was created`: func(c claim, _ []string) bool { return !c.alone || len(c.created()) == 0 },
	`The number of instances was not changed`: func(c claim, _ []string) bool {
		return !c.alone || !slices.ContainsFunc(c.after.named(c.name), func(e svctest.Endpoint) bool {
			was, had := c.before.endpoints[e.ID]
			return had && was.Instances != e.Instances
		})
	},
	`(svc-\d+) has (\d+) instances, by another command`: func(c claim, found []string) bool {
		return c.after.endpoints[found[1]].Deleted || fmt.Sprint(c.after.endpoints[found[1]].Instances) == found[2]
	},
	`the key (\S+) is free again`: func(c claim, found []string) bool {
		return !c.alone || len(c.after.open(found[1])) == 0 && (strings.Contains(c.e.stderr, "on your word") || len(c.after.running(found[1])) == 0)
	},
	`was created with --instances (\d+)(?:.*has asked for (\d+) since)?`: func(c claim, found []string) bool {
		return c.anyEntry(func(e ledger.Entry) bool {
			return fmt.Sprint(e.Records[0].Instances) == found[1] && (found[2] == "" || fmt.Sprint(e.Instances) == found[2])
		})
	},
	`(svc-\d+) has (\d+) instances, and keeps`: func(c claim, found []string) bool {
		return c.after.endpoints[found[1]].Deleted || !c.alone || fmt.Sprint(c.after.endpoints[found[1]].Instances) == found[2]
	},
	`the lease of (svc-\d+) (?:still ends|now ends|ends) in ((?:\d+[dhms])+)`: func(c claim, found []string) bool {
		left, err := parseDays(strings.ReplaceAll(found[2], "h0m", "h"))
		return err == nil && (!c.alone || c.anyEntry(func(e ledger.Entry) bool {
			return e.ServiceID == found[1] && (time.Until(e.LeaseEnd)-left).Abs() < 2*time.Minute
		}))
	},
	`the lease of (svc-\d+) (?:is over since|was over)`: func(c claim, found []string) bool {
		return c.anyEntry(func(e ledger.Entry) bool { return e.ServiceID == found[1] && leaseEnded(e, time.Now()) })
	},
	`the service has accepted (?:a|the) delete of (svc-\d+)`:                func(c claim, found []string) bool { return c.deleteWasAccepted(found[1]) },
	`(?:by another command, of|another command has (?:proved|deleted|set))`: func(c claim, _ []string) bool { return !c.alone || len(c.log) > 1 },
	`the ledger has its deletion`: func(c claim, _ []string) bool {
		return c.anyEntry(func(e ledger.Entry) bool { return e.State == ledger.Deleted })
	},
	`an earlier command has created (svc-\d+)`: func(c claim, found []string) bool {
		_, was := c.before.endpoints[found[1]]
		return was || !c.alone
	},
	`It is not known whether the endpoint was created`: func(c claim, _ []string) bool {
		return !c.alone || c.anyEntry(func(e ledger.Entry) bool { return e.Open() && e.ServiceID == "" }) || len(c.created()) > 0
	},
	`(svc-\d+) (?:exists|is still there)`: func(c claim, found []string) bool {
		_, has := c.after.endpoints[found[1]]
		return has
	},
	`no open entries of the key (\S+) in`:  func(c claim, found []string) bool { return !c.alone || len(c.after.open(found[1])) == 0 },
	`the key "?(\S+?)"? has no open entry`: func(c claim, found []string) bool { return !c.alone || len(c.after.open(found[1])) == 0 },
}

// anyEntry reports whether something holds for an entry of the ledger, before or after the command.
func (c claim) anyEntry(holds func(ledger.Entry) bool) bool {
	return slices.ContainsFunc(slices.Concat(c.before.entries, c.after.entries), holds)
}

// deleteWasAccepted reports whether the response to a delete of an endpoint had a 2xx status.
func (s *story) deleteWasAccepted(id string) bool {
	for _, r := range s.srv.Requests() {
		if r.Method == "DELETE" && strings.HasSuffix(r.Path, "/"+id) && r.Status/100 == 2 {
			return true
		}
	}
	return false
}

// judgeDeletes checks that the deletes that the commands have sent are of endpoints that they may delete.
func (s *story) judgeDeletes(steps []act, before, after moment) string {
	for _, r := range s.srv.Requests()[before.requests:] {
		id := r.Path[strings.LastIndex(r.Path, "/")+1:]
		may := func(st act) bool {
			was, existed := before.endpoints[id]
			e := before.entry(id)
			extended := after.entry(id)
			switch st.args[0] {
			case "delete":
				return st.args[1] == id || slices.ContainsFunc(slices.Concat(before.open("keyed"), after.open("keyed")), func(e ledger.Entry) bool { return e.ServiceID == id }) || !existed
			case "run", "deploy":
				return !existed || slices.Contains(st.args, "--replace") && (s.fails || was.Status == "unavailable" || was.Status == "stopped" || !slices.ContainsFunc(steps, func(other act) bool { return other.args[0] == "deploy" }))
			case "sweep":
				return leaseEnded(e, r.Time) || leaseEnded(extended, r.Time) || extended.State == ledger.Deleted
			}
			return false
		}
		if r.Method == "DELETE" && !slices.ContainsFunc(steps, may) {
			return "a delete was sent that nobody asked for: " + id
		}
	}
	return ""
}

// judgeLedger checks that the ledger knows each endpoint that runs, by its ID or as a doubt, and that what it has as
// deleted is deleted.
func (s *story) judgeLedger(m moment) string {
	known := map[string]bool{}
	for _, entry := range m.entries {
		if e, has := m.endpoints[entry.ServiceID]; entry.State == ledger.Deleted && has && !e.Deleted {
			return entry.ServiceID + " is deleted, by the ledger only"
		}
		known[entry.ServiceID] = known[entry.ServiceID] || entry.Open()
		known["name "+entry.Name] = known["name "+entry.Name] || entry.Open() && entry.ServiceID == ""
	}
	for _, e := range m.endpoints {
		if e.Billed && !known[e.ID] && !known["name "+e.Name] {
			return e.ID + " is running, and the ledger does not know it"
		}
	}
	return ""
}
