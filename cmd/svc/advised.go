package main

import (
	"fmt"
	"slices"
	"strings"

	"example.com/svc/internal/valid"
	"example.com/svc/ledger"
)

// cmd returns a command line for an advice, which can be run as it is printed: it has those global flags of this command
// that it needs. What is in the environment is not repeated. In place of adopt or forget of a key whose records are damaged, which
// would refuse it, it says what works.
func (t *tool) cmd(format string, args ...any) string {
	return t.cmdAt(t.flags.baseURL, format, args...)
}

// cmdOf is cmd for a command about the endpoint of an entry, which may be at another address.
func (t *tool) cmdOf(e ledger.Entry, format string, args ...any) string {
	if t.elsewhere(e) {
		return t.cmdAt(e.BaseURL, format, args...)
	}
	return t.cmd(format, args...)
}

// cmdAt is cmd with a value for --base-url; if it is empty, the address is that of the environment.
func (t *tool) cmdAt(address, format string, args ...any) string {
	line, rest := commandLine(format, args...)
	name, _, _ := strings.Cut(line, " ")
	if settles := name == "adopt" || name == "forget"; settles && len(args) > 0 && t.hasDamaged(fmt.Sprint(args[0])) {
		return damagedText(args[0])
	}
	before := ""
	if !slices.Contains([]string{"files", "jobs", "flavors"}, name) {
		before, line = t.withLedger(line)
	}
	if name != "ls" && name != "ledger" { // they need no service
		line += t.ofService(address, name)
	}
	return before + "svc " + line + rest
}

// showsURL are the commands that are about the URL of an endpoint.
var showsURL = []string{"get", "url", "wait", "deploy", "doctor", "run"}

// ofService returns the flags that a command needs to reach the service.
func (t *tool) ofService(address, name string) (flags string) {
	if _, problem := valid.ParseBase(address, true); problem == "" { // one that is refused may hold a password
		flags += " --base-url " + shellWord(address)
	}
	if t.flags.tokenFile != "" {
		flags += " --token-file " + shellWord(t.flags.tokenFile)
	}
	if url := t.flags.inferenceURL; url != "" && slices.Contains(showsURL, name) {
		flags += " --inference-url " + shellWord(url)
	}
	if t.flags.insecureHTTP {
		flags += " --insecure-http"
	}
	return flags
}

// commandLine returns a command line, and what must stand after its last flag: if an argument looks like a flag, as the
// key -x does, all arguments follow "--". Each word of the format has one verb at most, and a word after a flag that is
// no flag is its value.
func commandLine(format string, args ...any) (line, rest string) {
	var words, command, arguments []string
	after, looks := "", false // the word before; an argument looks like a flag
	for _, form := range strings.Fields(format) {
		word := form
		if strings.Contains(form, "%") && len(args) > 0 {
			word, args = fmt.Sprintf(form, shellWords(args[0])), args[1:]
		}
		flag := strings.HasPrefix(form, "-")
		switch {
		case flag, strings.HasPrefix(after, "-"), word == form && len(arguments) == 0 && form == strings.ToLower(form):
			command = append(command, word)
		default:
			arguments = append(arguments, word)
			bare := strings.TrimPrefix(word, "'")
			looks = looks || len(bare) > 1 && bare[0] == '-'
		}
		words, after = append(words, word), form
	}
	if looks {
		return strings.Join(command, " "), " -- " + strings.Join(arguments, " ")
	}
	return strings.Join(words, " "), ""
}

// shellWords quotes a text for a shell, as one word, and several texts as several.
func shellWords(arg any) any {
	switch arg := arg.(type) {
	case string:
		return shellWord(arg)
	case []string:
		var words []string
		for _, text := range arg {
			words = append(words, shellWord(text))
		}
		return strings.Join(words, " ")
	}
	return arg
}

// withLedger returns a command line with the ledger of --ledger, if that was given. A connection string that may hold a
// password is not shown: it belongs into SVC_LEDGER, which stands before the command.
func (t *tool) withLedger(line string) (before, with string) {
	if t.flags.ledger == "" {
		return "", line
	}
	p, err := findLedger(t.flags.ledger)
	switch {
	case err != nil: // it is refused
		return "", line
	case p.usable == "":
		return "SVC_LEDGER=postgres://… ", line
	}
	return "", line + " --ledger " + shellWord(p.usable)
}

// damagedText says what works for a key whose records are damaged, in place of a command that does not.
func damagedText(key any) string {
	return fmt.Sprintf("no command works while the records of the key %s are damaged: restore them from a copy, or use another key", key)
}

// noteDamaged notes the keys whose records are damaged, as far as an error says it.
func (t *tool) noteDamaged(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range damages(err) {
		if !slices.Contains(t.damagedKeys, e.Key) { // a wait reads the ledger many times
			t.damagedKeys = append(t.damagedKeys, e.Key)
		}
	}
}

// hasDamaged reports whether the records of a key are known to be damaged.
func (t *tool) hasDamaged(key string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Contains(t.damagedKeys, key)
}

// settle returns the two commands that settle an entry in doubt.
func (t *tool) settle(e ledger.Entry) string {
	if t.hasDamaged(e.Key) {
		return damagedText(e.Key)
	}
	return t.cmdOf(e, "adopt %s ID", e.Key) + ", or: " + t.cmdOf(e, "forget %s", e.Key)
}
