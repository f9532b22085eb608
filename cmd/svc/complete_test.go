package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/ledger"
	"example.com/svc/svctest"
)

// deployed creates an endpoint under a key, in the ledger of the session.
func (s *session) deployed(key string) (id string) {
	s.t.Helper()
	dir := filepath.Join(s.env["HOME"], ".local", "state", "svc-ledger")
	store, err := ledger.Dir(dir)
	require.NoError(s.t, err)
	client, err := svc.NewClient(s.srv.URL(), svc.WithToken(s.srv.Token()), svc.WithLedger(store))
	require.NoError(s.t, err)
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	service, err := client.InferenceServices.Deploy(ctx, svc.CreateInferenceServiceRequest{
		Name: "name-of-" + key, ResourceMetadata: svc.CreateResourceMetadata{TargetInstanceNumber: 1},
		DeployMetadata: svc.CreateDeployMetadata{ImageURL: "registry.example/app:1", Port: 8000, GPUNum: 1},
	}, &svc.DeployOptions{Key: key})
	require.NoError(s.t, err)
	return service.ServiceID
}

// words are the words that a shell would offer.
func (s *session) words(args ...string) string {
	s.t.Helper()
	e := s.must(exitOK, append([]string{"__complete"}, args...)...)
	return strings.TrimSpace(e.stdout[:strings.LastIndex(e.stdout, ":")])
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	s := newSession(t, svctest.WithFlavors(svctest.Flavor{ID: "flavor-a", DisplayName: "A100", USDPrice: 1.5, Stock: 5}))
	require.Empty(t, s.words("get", ""), "there is no ledger, and a shell has no place for an error")
	id := s.deployed("chat")
	s.srv.AddFile("data.jsonl", "fine-tune", nil)
	for line, want := range map[string]string{
		"get ":               id + "\tname-of-chat",
		"get --key ":         "chat\tname-of-chat " + id,
		"get --key chat ":    "",
		"get " + id + " ":    "",
		"flavors -o ":        "table\njson\nyaml\nname",
		"jobs ls --kind ":    "video\nimage",
		"jobs get ":          "",
		"files rm file-7 ":   "file-1\tdata.jsonl",
		"files download ":    "file-1\tdata.jsonl",
		"files link file-1 ": "",
	} {
		require.Equal(t, want, s.words(strings.Split(line, " ")...), line)
	}
	require.Contains(t, s.words("fil"), "files\tupload")

	// What settles an entry completes those that it accepts.
	s.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
	s.must(exitUnknown, with(deploy, "--key", "lost", "--flavor", "flavor-a")...)
	for line, want := range map[string]string{
		"adopt ":                "lost\tdemo",
		"adopt lost ":           "",
		"adopt --undo ":         "",
		"forget ":               "lost\tdemo",
		"forget --other-token ": "chat\tname-of-chat " + id + "\nlost\tdemo",
		"extend ":               "chat\tname-of-chat " + id + "\nlost\tdemo",
	} {
		require.Equal(t, want, s.words(strings.Split(line, " ")...), line)
	}
	s.must(exitOK, "adopt", "lost", "svc-2")
	require.Equal(t, "lost\tdemo svc-2", s.words("adopt", "--undo", ""))
	require.Empty(t, s.words("adopt", ""))
	s.deployed("-x")
	require.NotContains(t, s.words("extend", ""), "-x", "it would be read as a flag")
	require.Contains(t, s.words("get", "--key", ""), "-x\t")
	require.Contains(t, s.words("flavors", "--max"), "--max-price")
	require.Contains(t, s.must(exitOK, "__complete", "files", "upload", "").stdout, ":0\n", "files of the folder")
	require.Equal(t, "flavor-a\tA100, 1.5 USD", s.words("deploy", "--flavor", ""))

	s.env["SVC_API_TOKEN"] = ""
	require.Empty(t, s.words("files", "rm", ""))
	require.Contains(t, s.words("get", ""), id, "the ledger needs no token")
}

// TestCompletionScripts: each shell gets a script, and bash can run its own.
func TestCompletionScripts(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		e := s.must(exitOK, "completion", shell)
		require.Contains(t, e.stdout, "__complete")
		require.Empty(t, e.stderr)
	}
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("there is no bash")
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-euc", `
		eval "$(svc completion bash)"
		_get_comp_words_by_ref() { cur=ver prev=svc words=(svc ver) cword=1; }
		compopt() { :; }
		COMP_LINE="svc ver" COMP_POINT=7 COMP_WORDS=(svc ver) COMP_CWORD=1 COMP_TYPE=9 COMPREPLY=()
		__start_svc svc; printf '%s\n' "${COMPREPLY[@]}"`)
	cmd.Env = append(s.command().Env, "PATH="+filepath.Dir(binary)+":"+s.env["PATH"])
	out, err := cmd.Output()
	require.NoError(t, err)
	require.Equal(t, "version", strings.TrimSpace(string(out)))
}

// TestCompletionThatCannotBeWritten: a full disk is no usage error.
func TestCompletionThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("there is no /dev/full")
	}
	defer full.Close()
	s := newSession(t)
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		cmd := s.command("completion", shell)
		cmd.Stdout = full
		require.Equal(t, exitFailed, s.finish(cmd).code, shell)
	}
	require.Contains(t, s.must(exitOK, "completion", "--help").stdout, "needs the package bash-completion")
}
