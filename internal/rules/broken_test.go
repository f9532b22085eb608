package rules

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each rule is broken in a copy of the source. Then a test of this package must fail.
func TestABrokenRuleIsNoticed(t *testing.T) {
	if testing.Short() || os.Getenv("SVC_RULES_BROKEN") != "" {
		t.Skip("compiles this package once for each rule")
	}
	for name, c := range map[string]struct{ file, from, to, tests string }{
		"a read voids":                {"evidence.go", "e.Read, e.runs = true, [len(proofs)]run{}", "e.Read = true", "NoSequence"},
		"grace":                       {"evidence.go", "!e.Read && o.At.Before(e.Readable)", "false", "NoSequence"},
		"copies":                      {"evidence.go", "if e.copied || e.early {", "if e.copied = false; e.early {", "NoSequence"},
		"token":                       {"evidence.go", "p.known && !o.Known", "false", "NoSequence"},
		"10 s":                        {"evidence.go", "{true, Service, false, 2, 10 * time.Second}", "{true, Service, false, 2, time.Second}", "NoSequence"},
		"60 s":                        {"evidence.go", "{true, Intermediary, false, 3, time.Minute}", "{true, Intermediary, false, 3, 10 * time.Second}", "NoSequence"},
		"25 s only after a delete":    {"evidence.go", "p.late && !e.accepted", "false", "NoSequence"},
		"a page is not the service":   {"evidence.go", "p.class != o.Class, ", "", "NoSequence"},
		"the list is fresh":           {"evidence.go", "e.listed = false // an", "// an", "ListIsAnswered"},
		"the list is of the run":      {"evidence.go", "r.last, r.came, r.between = o.At, came, between", "r.last, r.came, r.between = o.At, came, true", "NoSequence"},
		"the list is no copy":         {"evidence.go", "if !o.unshared(e.seen[(e.next+len(e.seen)-1)%len(e.seen)]).copyOf(e.list) {", "if true {", "NoSequence"},
		"silence":                     {"evidence.go", "silent > Silence", "silent < 0", "OnlyWhatWasSeen"},
		"a proof is reached":          {"evidence.go", "case Listed:", "case 99:", "EverySequence"},
		"the time of a proof":         {"evidence.go", "{true, Service, true, 2, 3 * time.Second}", "{true, Service, true, 2, 8 * time.Second}", "TimeOfAProof"},
		"another response":            {"evidence.go", "case Odd:\n\t\te = e.interrupted(Intermediary)", "case Odd:", "AnotherResponse"},
		"what may be the record":      {"evidence.go", "case Unclear:", "case 99:", "NoSequence"},
		"an ID of the request":        {"evidence.go", "o.unshared(e.list).copyOf", "o.copyOf", "SharedRequestID"},
		"an old refusal":              {"failures.go", "now.Sub(s.latest) > Silence", "false", "NotFoundForgets"},
		"the confirmation of refusal": {"failures.go", "contact && now.Sub(s.refused) < confirm", "false", "WhatEndsATask"},
		"a refusal that is over":      {"failures.go", "other.foreign++; f.Class == Service", "other.foreign++; false", "NotFoundForgets"},
		"what a cleanup tolerates":    {"failures.go", "s.Task >= Reaping ||", "", "CleanupBeforeContact"},
		"the class of a 404":          {"rules.go", "!NotFound(r.Status) && r.Status < 500, isJSON(body)", "true", "ClassOfAResponse"},
	} {
		t.Run(name, func(t *testing.T) {
			source, err := os.ReadFile(c.file)
			require.NoError(t, err)
			require.Equal(t, 1, strings.Count(string(source), c.from), "the source has changed: break the rule in another way")
			dir := t.TempDir()
			broken, overlay := filepath.Join(dir, c.file), filepath.Join(dir, "overlay.json")
			require.NoError(t, os.WriteFile(broken, []byte(strings.Replace(string(source), c.from, c.to, 1)), 0o600))
			whole, err := filepath.Abs(c.file)
			require.NoError(t, err)
			replace, err := json.Marshal(map[string]map[string]string{"Replace": {whole: broken}})
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(overlay, replace, 0o600))
			test := exec.CommandContext(t.Context(), "go", "test", "-short", "-vet=off", "-overlay", overlay, "-run", c.tests, ".")
			test.Env = append(os.Environ(), "SVC_RULES_BROKEN=1")
			out, err := test.CombinedOutput()
			require.Error(t, err, "no test has noticed it")
			require.Contains(t, string(out), "--- FAIL", "it must fail, not only not compile")
		})
	}
}
