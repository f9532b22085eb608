package rules

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each rule is broken in a copy of the source. Then a test of this package must fail.
func TestABrokenRuleIsNoticed(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles this package once for each rule")
	}
	rules := map[string]struct{ file, from, to, tests string }{
		"a read voids":                {"evidence.go", "e.Read, e.runs = true, [len(proofs)]run{}", "e.Read = true", "NoSequence"},
		"grace":                       {"evidence.go", "!e.Read && o.At.Before(e.Readable)", "false", "NoSequence"},
		"copies":                      {"evidence.go", "if e.copied || e.early {", "if e.copied = false; e.early {", "NoSequence"},
		"token":                       {"evidence.go", "p.known != o.Known", "false", "NoSequence"},
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
	}
	copies, dirs := newBrokenCopies(t), map[string]string{}
	for name, c := range rules {
		dirs[name] = fmt.Sprint("rule", len(dirs))
		copies.add(dirs[name], c.file, c.from, c.to)
	}
	program := copies.build()
	for name, c := range rules {
		t.Run(name, func(t *testing.T) {
			out, err := exec.CommandContext(t.Context(), program, "-test.short", "-test.run", "^Test$/^"+dirs[name]+"$/"+c.tests).CombinedOutput()
			require.Error(t, err, "no test has noticed it")
			require.Contains(t, string(out), "--- FAIL")
		})
	}
}

// brokenCopies are copies of this package, with their tests, in one test program: to link a program for
// each would take longer than everything else. They are in folders that only the overlay has.
type brokenCopies struct {
	t              *testing.T
	dir            string            // of the files
	overlay        map[string]string // where the compiler sees a file, and where it is
	sources        map[string]string // of this package and its tests, by name
	imports, tests strings.Builder   // of the program
}

func newBrokenCopies(t *testing.T) *brokenCopies {
	b := &brokenCopies{t: t, dir: t.TempDir(), overlay: map[string]string{}, sources: map[string]string{}}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, file := range files {
		if file != "broken_test.go" {
			source, err := os.ReadFile(file)
			require.NoError(t, err)
			b.sources[file] = string(source)
		}
	}
	return b
}

// write writes a file of a folder.
func (b *brokenCopies) write(folder, file, text string) {
	path := filepath.Join(b.dir, folder+"_"+file)
	require.NoError(b.t, os.WriteFile(path, []byte(text), 0o600))
	seen, err := filepath.Abs(filepath.Join("broken", folder, file))
	require.NoError(b.t, err)
	b.overlay[seen] = path
}

var testNames = regexp.MustCompile(`(?m)^func (Test\w+)\(t `)

// add adds a copy in which a piece of a file is replaced.
func (b *brokenCopies) add(folder, file, from, to string) {
	require.Equal(b.t, 1, strings.Count(b.sources[file], from), "the source has changed: break the rule in another way: %s", from)
	tests := "package rules\n\nimport \"testing\"\n\nvar Tests = map[string]func(*testing.T){\n"
	for name, source := range b.sources {
		for _, test := range testNames.FindAllStringSubmatch(source, -1) {
			tests += fmt.Sprintf("%q: %s,\n", test[1], test[1])
		}
		if name == file {
			source = strings.Replace(source, from, to, 1)
		}
		b.write(folder, strings.Replace(name, "_test.go", "_tests.go", 1), source)
	}
	b.write(folder, "tests.go", tests+"}\n")
	fmt.Fprintf(&b.imports, "%s \"example.com/svc/internal/rules/broken/%s\"\n", folder, folder)
	fmt.Fprintf(&b.tests, "%q: %s.Tests,\n", folder, folder)
}

// build returns the path of the program. The tests of a folder are the subtests Test/FOLDER.
func (b *brokenCopies) build() string {
	b.write("", "all_test.go", "package broken\n\nimport (\n\"testing\"\n"+b.imports.String()+`)

func Test(t *testing.T) {
	for folder, tests := range map[string]map[string]func(*testing.T){
`+b.tests.String()+`} {
		t.Run(folder, func(t *testing.T) {
			for name, test := range tests {
				t.Run(name, test)
			}
		})
	}
}
`)
	replace, err := json.Marshal(map[string]any{"Replace": b.overlay})
	require.NoError(b.t, err)
	overlay, program := filepath.Join(b.dir, "overlay.json"), filepath.Join(b.dir, "broken.test")
	require.NoError(b.t, os.WriteFile(overlay, replace, 0o600))
	out, err := exec.CommandContext(b.t.Context(), "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", program, "./broken").CombinedOutput()
	require.NoError(b.t, err, "%s", out)
	return program
}
