package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fakeTool puts a program in the place of svc that is quick and keeps what runs in a file: a key, an image, and an ID a
// line. Each of its calls has two moments, and each $(...) of a script that reads a value has one. At the moment AT, EVENT
// happens: a signal to the process group, or the end of this one process with a code.
func (s *session) fakeTool(runs ...string) {
	s.t.Helper()
	home := s.env["HOME"]
	require.NoError(s.t, os.WriteFile(filepath.Join(home, "runs"), []byte(strings.Join(runs, "\n")+"\n"), 0o600))
	require.NoError(s.t, os.WriteFile(filepath.Join(home, "moments.sh"), []byte(`
printf() {
	if [ "$1" = %s ] && [ "$BASH_SUBSHELL" != 0 ]; then moment; fi
	builtin printf "$@"
}
moment() {
	local all
	echo x >>"$HOME/moments"
	all=$(<"$HOME/moments")
	[ $(((${#all} + 1) / 2)) = "$AT" ] || return 0
	case $EVENT in [0-9]*) exit "$EVENT" ;; *) kill "-$EVENT" 0 ;; esac
}
`), 0o600))
	s.env["BASH_ENV"] = filepath.Join(home, "moments.sh")
	s.tool("sleep", "")
	s.tool("switch", "")
	s.tool("svc", `
moment() {
	echo x >>"$HOME/moments"
	[ $(wc -l <"$HOME/moments") = "$AT" ] || return 0
	case $EVENT:${code-} in 1:0) ;; [0-9]*) exit "$EVENT" ;; *) kill "-$EVENT" 0 ;; esac # svc never ends with 1 if it has done its work
}
command=$1 line=$* key='' image='' id=''
while [ $# != 0 ]; do
	case $1 in --key) key=$2 ;; --image) image=$2 ;; svc-*) id=$1 ;; esac
	shift
done
moment
runs() { while read -r k i d; do case ${key:-$k} in $k) echo "$k $i $d" ;; esac; done <"$HOME/runs"; }
runs=$(runs)
code=0
case $line in
deploy*--help*) ;;
deploy*) case $image=$runs in
	*=$key\ $image\ *) ;;
	*=?*) code=9; echo "error_kind: key_in_use" ;;
	*) case $line:$image in *--dry-run*) ;; *:bad*) code=11 ;; *) echo "$key $image svc-$(wc -l <"$HOME/moments" | tr -d ' ')" >>"$HOME/runs" ;; esac ;;
	esac ;;
delete*) while read -r k i d; do case $k:$d in "$key":*|*:"$id") ;; *) echo "$k $i $d" ;; esac; done <"$HOME/runs" >"$HOME/new"; mv "$HOME/new" "$HOME/runs" ;;
url*) echo "service_id: ${runs##* }"; echo 'url: https://app.example' ;;
ls\ *-o\ yaml*) echo entries:; [ -z "$runs" ] || echo "$runs" | while read -r k i d; do
	printf '  - %s\n    %s\n    %s\n    %s\n    %s\n    %s\n    %s\n' "key: $k" "state: created" "service_id: $d" "open: true" "instances: 1" "created_instances: 1" "flavor_id: flavor-9"
	done ;;
ls*) [ -z "$runs" ] || { echo KEY; echo "$runs"; } ;;
get*) [ -n "$runs" ] || exit 5; echo 'instances: 1'; echo 'flavor_id: flavor-9' ;;
flavors*) echo flavor-9 ;;
esac
moment
exit $code`)
}

// Whatever ends a script, and when: its code is one that is true by the table in its head. A code of a $(...), which the
// script has not chosen, is never the code of the script.
func TestScriptsEndWithATrueCode(t *testing.T) {
	t.Parallel()
	same := func(a, b []string) bool { return slices.Equal(a, b) }
	rollout := func(code int, before, after []string) bool {
		switch code {
		case 0:
			return same(after, []string{"app app:2"})
		case 1:
			return same(after, []string{"app app:1"})
		case exitRunning:
			return true // one may run
		case exitDeleted, 20:
			return len(after) == 0
		}
		return code != 2 && code <= exitInterrupted && same(after, before)
	}
	release := func(code int, before, after []string) bool {
		const released = "app--2 app:2"
		switch code {
		case 0:
			return same(after, []string{released})
		case 20:
			return slices.Contains(after, released)
		case exitRunning:
			return same(after[:len(before)], before)
		}
		return code != 2 && code <= exitInterrupted && same(after, before)
	}
	swept := func(code int, _, _ []string) bool {
		return slices.Contains([]int{0, 1, exitRunning, exitInterrupted}, code)
	}
	for i, tt := range []struct {
		line    []string
		before  []string
		holds   func(code int, before, after []string) bool
		moments int // so many there are at least
	}{
		{[]string{"rollout.sh", "app", "app:2", "app:1"}, []string{"app app:1"}, rollout, 25},
		{[]string{"rollout.sh", "app", "bad:2", "app:1"}, []string{"app app:1"}, rollout, 25},
		{[]string{"rollout.sh", "app", "app:2", "app:1"}, nil, rollout, 5},
		{[]string{"blue-green.sh", "app", "2", "app:2", "switch"}, []string{"app--1 app:1", "other other:1"}, release, 40},
		{[]string{"blue-green.sh", "app", "2", "app:2", "switch"}, nil, release, 20},
		{[]string{"blue-green.sh", "app", "2", "bad:2", "switch"}, []string{"app--1 app:1"}, release, 15},
		{[]string{"nightly-sweep.sh"}, []string{"app--1 app:1"}, swept, 5},
	} {
		t.Run(fmt.Sprint(tt.line, len(tt.before)), func(t *testing.T) {
			t.Parallel()
			for at := 1; ; at++ {
				skipped := (at+i)%5 != 0 && !*tryAll
				happened := skipped
				for j, event := range []string{"INT", "TERM", "130", "143", "2", "1"} {
					if skipped || j != at/5%6 && !*tryAll {
						continue
					}
					s := newSession(t)
					before := tt.before
					runs := slices.Clone(before)
					for n := range runs {
						runs[n] += fmt.Sprintf(" svc-0%d", n)
					}
					s.fakeTool(runs...)
					s.env["AT"], s.env["EVENT"] = strconv.Itoa(at), event
					e := s.startGroup(tt.line[0], tt.line[1:]...).end()
					text, err := os.ReadFile(filepath.Join(s.env["HOME"], "runs"))
					require.NoError(t, err)
					var after []string
					for line := range strings.Lines(string(text)) {
						if f := strings.Fields(line); len(f) > 1 && (f[0] != "other" || tt.line[0] != "blue-green.sh") {
							after = append(after, f[0]+" "+f[1])
						}
					}
					before = slices.DeleteFunc(slices.Clone(before), func(line string) bool { return strings.HasPrefix(line, "other") })
					all := fmt.Sprintf("%s at %d of %v: %d, %q after %q\n%s", event, at, tt.line, e.code, after, before, e.stderr)
					require.True(t, tt.holds(e.code, before, after), all)
					if code, _ := strconv.Atoi(event); code == 0 && e.code > 1 && e.code != exitDeleted {
						require.Contains(t, e.stderr, "stopped by ", all)
					}
					moments, err := os.ReadFile(filepath.Join(s.env["HOME"], "moments"))
					require.NoError(t, err)
					happened = happened || len(moments) >= 2*at
				}
				if !happened {
					require.Greater(t, at, tt.moments)
					return
				}
			}
		})
	}
}
